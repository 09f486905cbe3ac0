"""A model that judges what rules could not: one more part of a reward."""
