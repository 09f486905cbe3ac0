"""Environments that a model is trained in: an episode is a conversation with one."""

from collections.abc import Callable
from types import MappingProxyType
from typing import Any

from torl.environments.base import Environment, EnvironmentSession, Message, Reply, ToolSchema
from torl.environments.bounded import BoundedEnvironment, BoundedSession, make_environment
from torl.environments.limits import EnvironmentBounds
from torl.environments.openenv import OpenEnvEnvironment
from torl.environments.trl import TrlEnvironment
from torl.environments.verifiers import VerifiersEnvironment, verifiers_problems

ENVIRONMENTS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType(
    {"openenv": OpenEnvEnvironment, "verifiers": VerifiersEnvironment, "trl": TrlEnvironment}
)
"""By the names that a configuration calls them."""
ENVIRONMENT_OPTIONS = ("openenv", "verifiers", "trl")
"""Of these, the names that an option of the same name stands for: `openenv = "http://host:8000"`."""

ENVIRONMENT_PROBLEMS: MappingProxyType[str, Callable[..., Any]] = MappingProxyType({"verifiers": verifiers_problems})
"""Problem sources that are an environment's data set, by the names that a configuration calls them."""

__all__ = [
    "ENVIRONMENTS",
    "ENVIRONMENT_OPTIONS",
    "ENVIRONMENT_PROBLEMS",
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
