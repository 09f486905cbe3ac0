"""ToRL: see README.md."""
