"""Engines turn tokens into sampled tokens. `engine.py` is the protocol; the other files are implementations."""
