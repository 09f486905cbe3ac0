"""Where a run's parts are and what they hold: devices, moves, bytes, seconds. Pure functions; no torch."""
