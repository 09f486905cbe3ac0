"""Audit of a run: recompute its records independently and compare."""
