"""The mathematics of the update: pure functions from arrays to arrays. Nothing here loads torch."""
