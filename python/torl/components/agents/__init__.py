"""Agents: programs that drive an episode through an OpenAI-compatible API."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from torl.components.agents.agent import Agent as Agent
from torl.components.agents.agent import AgentLimits as AgentLimits
from torl.components.agents.agent import limits_of as limits_of
from torl.components.agents.programs import CommandAgent as CommandAgent
from torl.components.agents.programs import FunctionAgent as FunctionAgent

AGENTS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType(
    {"command": CommandAgent, "function": FunctionAgent}
)
"""Agents by their names in a configuration."""
AGENT_SHORTHANDS = ("command", "function")
"""Names of `AGENTS` that an option of the same name selects: `command = "python agent.py"`."""
