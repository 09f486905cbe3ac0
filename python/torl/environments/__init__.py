"""Environments that a model is trained in: an episode is a conversation with one."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from torl.environments.base import Environment, EnvironmentSession, Message, Reply, ToolSchema
from torl.environments.bounded import BoundedEnvironment, BoundedSession, make_environment
from torl.environments.limits import EnvironmentBounds
from torl.environments.openenv import OpenEnvEnvironment
from torl.environments.trl import TrlEnvironment

ENVIRONMENTS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType(
    {"openenv": OpenEnvEnvironment, "trl": TrlEnvironment}
)
"""By the names that a configuration calls them."""
ENVIRONMENT_OPTIONS = ("openenv", "trl")
"""Of these, the names that an option of the same name stands for: `openenv = "http://host:8000"`."""

__all__ = [
    "ENVIRONMENTS",
    "ENVIRONMENT_OPTIONS",
    "BoundedEnvironment",
    "BoundedSession",
    "Environment",
    "EnvironmentBounds",
    "EnvironmentSession",
    "Message",
    "Reply",
    "ToolSchema",
    "make_environment",
]
