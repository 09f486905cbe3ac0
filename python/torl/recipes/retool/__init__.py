"""ReTool: see README.md."""
