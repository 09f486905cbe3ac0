"""ToolRL: see README.md."""
