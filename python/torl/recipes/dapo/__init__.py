"""DAPO: see README.md."""
