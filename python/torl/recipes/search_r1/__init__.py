"""Search-R1: see README.md."""
