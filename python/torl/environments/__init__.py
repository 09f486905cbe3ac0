"""Environments that a model is trained in: an episode is a conversation with one."""

from types import MappingProxyType

from torl.environments.base import Environment, EnvironmentSession, Message, Reply, ToolSchema
from torl.environments.bounded import BoundedEnvironment, BoundedSession, make_environment
from torl.environments.limits import EnvironmentLimits

ENVIRONMENTS: MappingProxyType[str, str] = MappingProxyType(
    {"openenv": "torl.interop.openenv:OpenEnvEnvironment", "trl": "torl.interop.trl:TrlEnvironment"}
)
"""By the names that a configuration calls them; imported when chosen, because `interop` imports this package."""
ENVIRONMENT_SHORTHANDS = ("openenv", "trl")
"""Of these, the names that an option of the same name stands for: `openenv = "http://host:8000"`."""

__all__ = [
    "ENVIRONMENTS",
    "ENVIRONMENT_SHORTHANDS",
    "BoundedEnvironment",
    "BoundedSession",
    "Environment",
    "EnvironmentLimits",
    "EnvironmentSession",
    "Message",
    "Reply",
    "ToolSchema",
    "make_environment",
]
