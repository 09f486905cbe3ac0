"""Environments that a model interacts with: an episode is a conversation with one."""

from types import MappingProxyType

from torl.components.environments.bounded import BoundedEnvironment, BoundedSession, EnvironmentLimits, make_environment
from torl.components.environments.environment import Environment, EnvironmentSession, Message, Reply, ToolSchema

ENVIRONMENTS: MappingProxyType[str, str] = MappingProxyType(
    {
        "openenv": "torl.components.interop.openenv:OpenEnvEnvironment",
        "trl": "torl.components.interop.trl:TrlEnvironment",
    }
)
"""Environments by their names in a configuration. Imported when chosen, because `interop` imports this package."""
ENVIRONMENT_SHORTHANDS = ("openenv", "trl")
"""Names of `ENVIRONMENTS` that an option of the same name selects: `openenv = "http://host:8000"`."""

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
