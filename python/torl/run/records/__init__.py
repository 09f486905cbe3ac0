"""The records of a run: metrics, trajectories and configuration, written and read."""
