"""SimpleTIR: see README.md."""
