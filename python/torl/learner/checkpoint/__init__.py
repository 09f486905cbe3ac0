"""Checkpoints of the learner: directories that are complete or absent, and the files of each rank in them."""
