"""Baselines: see README.md."""
