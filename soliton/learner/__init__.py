"""The learner: trajectories in, weights out. It never knows how data arrived."""
