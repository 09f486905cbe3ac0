"""A training run: the loop, what it learns from, and how that is selected."""
