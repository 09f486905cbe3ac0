"""Servers of the sandbox (SandboxFusion's HTTP interface, MCP, OpenEnv) and of the grader.

`torl sandbox serve`, `mcp` and `openenv` and `python -m torl.rewards serve` start a server. Their libraries
come with extras, so only the modules of the commands can be imported without them.
"""
