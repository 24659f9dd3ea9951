"""Environments speak messages, never tokens. `environment.py` is the protocol; the other files implement it."""
