"""ZeroTIR: see README.md."""
