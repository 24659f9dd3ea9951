"""From prompt to trajectory: a renderer that only appends, an episode, a worker that keeps many of them in flight."""
