"""ToRA: see README.md."""
