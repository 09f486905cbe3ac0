"""MathCoder: see README.md."""
