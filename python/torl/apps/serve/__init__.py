"""Doors for those who do not run Python beside the pool: SandboxFusion's HTTP interface, MCP, OpenEnv.

A door is opened by `python -m torl.sandbox serve`, `mcp` or `openenv`. What it is built on comes with an extra, so
nothing here is imported before it is asked for; `commands.py` alone can be read without.
"""
