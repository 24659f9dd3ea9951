"""Presets: what differs between SAO and each baseline, as records of named choices (paper §4).

Read `sao.py` first; the others say in their docstring what they change. `options.py` holds what a recipe may set and
imports no torch; `build.py` turns a name and options into a `soliton.learner.method.Method`.
"""
