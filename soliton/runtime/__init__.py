"""Where the roles meet: clocks, the inline runtime, stages, checkpoints and the run folder."""
