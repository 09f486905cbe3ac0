"""Servers of the sandbox: SandboxFusion's HTTP interface, MCP, OpenEnv.

`python -m torl_sandbox serve`, `mcp` and `openenv` start a server. Their libraries come with extras, so only the
modules of the commands can be imported without them.
"""
