"""The mathematics of the update: pure functions from arrays to arrays. `losses` needs torch, `advantages` does not."""
