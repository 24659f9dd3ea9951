"""The store owns draws, attempts and finished trajectories. `store.py` is the protocol, `memory.py` one process."""
