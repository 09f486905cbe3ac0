"""Agent programs: whoever plays an episode by asking the model through an OpenAI-compatible address."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from torl.agents.base import Agent, AgentLimits, limits_of
from torl.agents.command import CommandAgent
from torl.agents.function import FunctionAgent

AGENTS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType(
    {
        "command": CommandAgent,
        "function": FunctionAgent,
    }
)
"""By the names that a configuration calls them."""
AGENT_SHORTHANDS = ("command", "function")
"""Of these, the names that an option of the same name stands for: `command = "python agent.py"`."""

__all__ = ["AGENTS", "AGENT_SHORTHANDS", "Agent", "AgentLimits", "CommandAgent", "FunctionAgent", "limits_of"]
