"""Timed comparisons, one module each; `python -m benchmarks` runs them all. Benchmarks, never timed tests."""
