"""Training runs: the loop, the selection of its data, and the run's components."""
