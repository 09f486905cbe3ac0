"""Placement of a run on a machine: devices, memory and the changes that make a run fit. Pure functions; no torch."""
