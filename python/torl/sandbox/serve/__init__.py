"""Doors for those who do not run Python beside the pool: SandboxFusion's HTTP interface, and MCP.

A door is opened by `python -m torl.sandbox serve` or `mcp`. What it is built on comes with an extra, so nothing here is
imported before it is asked for; `commands.py` alone can be read without.
"""
