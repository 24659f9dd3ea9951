"""Prompt streams say which item each draw attempts. `stream.py` is the protocol; the other files implement it."""
