"""Sweeps: a training run for each combination of settings and seed, and one table of them."""
