"""GTPO: see README.md."""
