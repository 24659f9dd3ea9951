"""Learner: one consumed batch in, moved weights and metrics out. It never knows how the batch arrived."""
