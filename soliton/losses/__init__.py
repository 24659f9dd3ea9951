"""Losses: pure functions over packed 1-D tensors, and the one reduction they share."""
