"""Open-Reasoner-Zero: see README.md."""
