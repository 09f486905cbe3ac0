"""ARTIST: see README.md."""
