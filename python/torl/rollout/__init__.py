"""Rollouts: the episode loop, concurrent episodes, and sampling and evaluation without training."""
