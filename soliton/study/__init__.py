"""The paper's claims at small scale: many seeded runs, honest intervals, a verdict for each claim.

A study is a record (`study.py`): arms, seeds, a recipe, claims. Each run is a process (`one_run.py`), each finished run
leaves a small JSON file (`result.py`), and everything printed or drawn is computed from those files alone.

Read in this order: study, schedule, execute, one_run, digest, result, outcomes, statistics, claims, page; then the
studies themselves (`main_study.py` and its neighbours), which are data.
"""
