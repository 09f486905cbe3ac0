"""Checkpoints of the learner: directories that are complete or absent, and what each rank writes into them."""
