"""SimpleRL-Zoo: see README.md."""
