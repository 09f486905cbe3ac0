"""Environments that a model interacts with: an episode is a conversation with one."""

from types import MappingProxyType

from torl.components.environments.bounded import BoundedEnvironment as BoundedEnvironment
from torl.components.environments.bounded import BoundedSession as BoundedSession
from torl.components.environments.bounded import EnvironmentLimits as EnvironmentLimits
from torl.components.environments.bounded import make_environment as make_environment
from torl.components.environments.environment import Environment as Environment
from torl.components.environments.environment import EnvironmentSession as EnvironmentSession
from torl.components.environments.environment import Message as Message
from torl.components.environments.environment import Reply as Reply
from torl.components.environments.environment import ToolSchema as ToolSchema

ENVIRONMENTS: MappingProxyType[str, str] = MappingProxyType(
    {
        "openenv": "torl.components.interop.openenv:OpenEnvEnvironment",
        "trl": "torl.components.interop.trl:TrlEnvironment",
    }
)
"""Environments by their names in a configuration. Imported when chosen, because `interop` imports this package."""
ENVIRONMENT_SHORTHANDS = ("openenv", "trl")
"""Names of `ENVIRONMENTS` that an option of the same name selects: `openenv = "http://host:8000"`."""
