"""Environment servers of OpenEnv. An action is a message or the arguments of a call; the reply is an observation."""

import json
import urllib.request
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torl.base.errors import ConfigError, ToolUnavailableError
from torl.base.options import Section
from torl.base.trust import require_trust
from torl.base.types import Outcome, OutcomeStatus, Problem, ToolRequest
from torl.components.environments.environment import Environment, EnvironmentSession, Message, Reply, ToolSchema
from torl.components.text.templates import Messages
from torl.components.tools.function import as_text
from torl.components.tools.retry import STARTUP_TIMEOUT_SECONDS

if TYPE_CHECKING:
    from openenv.core.generic_client import GenericEnvClient

_INVALID = "(code: VALIDATION_ERROR)"
_EPISODE_OVER = Outcome(OutcomeStatus.ERROR, "EpisodeOver: the environment has ended the episode", "EpisodeOver")


class OpenEnvOptions(Section):
    """Options of the environment "openenv"."""

    openenv: str
    """Address of the server, such as http://host:8000."""
    text_field: str = ""
    """Action field for messages without tool calls, such as "message"; it has their text without thinking. When empty,
    a message without calls ends the episode."""
    tool: str = ""
    """Name of a tool whose arguments are an action, with the server's schema. Empty provides no tool."""
    description: str = "Take an action in the environment."
    """Description of this tool, for the model."""
    visible_fields: tuple[str, ...] = ()
    """Observation fields that the model sees, one per line. When empty, the model sees the observation as JSON."""
    reset_arguments: Mapping[str, Any] = {}
    """Arguments of `reset`, in addition to the seed and to "reset" in the metadata of a problem."""


class OpenEnvEnvironment(Environment):
    """A server of OpenEnv, with a session for each episode. The reward part "reward" is the sum over all steps."""

    def __init__(self, options: OpenEnvOptions) -> None:
        """Check the options.

        Raises:
            ConfigError: Neither messages nor calls are actions.
        """
        if not (options.text_field or options.tool):
            raise ConfigError(
                "rollout.environment: OpenEnv's actions are messages (text_field) or calls (tool); set one or both"
            )
        require_trust(options.openenv, "connected to")
        self.options = options

    @cached_property
    def tools(self) -> Mapping[str, ToolSchema]:
        """The tool that the options name, with the schema of the server.

        Raises:
            ToolUnavailableError: The server cannot be reached, or returns no schema.
        """
        options = self.options
        if not options.tool:
            return {}
        url = f"{options.openenv.rstrip('/')}/schema"
        try:
            with urllib.request.urlopen(url, timeout=STARTUP_TIMEOUT_SECONDS) as response:
                action = json.loads(response.read())["action"]
            fields = {name: field for name, field in action["properties"].items() if name != "metadata"}
        except (OSError, ValueError, LookupError) as error:
            raise ToolUnavailableError(
                f"{url} returned no schema of actions: {type(error).__name__}: {error}"
            ) from error
        return {options.tool: ToolSchema(options.description, {**action, "properties": fields})}

    def session(self, problem: Problem, seed: int) -> "OpenEnvSession":
        """Open a session on the server.

        Raises:
            ConfigError: OpenEnv is not installed.
        """
        try:
            from openenv.core.generic_client import GenericEnvClient
        except ImportError as error:
            raise ConfigError("the environment 'openenv' needs its library: pip install 'torl[openenv]'") from error

        class Client(GenericEnvClient):
            """A client that never reconnects, because the server would silently start a new episode."""

            connected = False

            async def _connect_async(self) -> Any:
                if self._ws is None or self._ws.close_code is not None:
                    if self.connected:
                        raise ConnectionError("the connection was lost during the episode")
                    object.__setattr__(self, "connected", True)
                return await super()._connect_async()

        reset_arguments = {"seed": seed, **self.options.reset_arguments, **(problem.metadata.get("reset") or {})}
        return OpenEnvSession(Client(base_url=self.options.openenv), self.options, reset_arguments)


class OpenEnvSession(EnvironmentSession):
    """One episode."""

    def __init__(self, client: "GenericEnvClient", options: OpenEnvOptions, reset_arguments: Mapping[str, Any]) -> None:
        """Wrap a client of this episode only."""
        self._client, self._options, self._reset_arguments = client, options, reset_arguments
        self._reward, self._is_over = 0.0, False

    async def reset(self, messages: Messages) -> Messages:
        """Reset the environment, and append its first observation to the question."""
        result = await self._client.reset(**self._reset_arguments)
        text = self._text(result.observation)
        if not text:
            return messages
        *before, last = messages
        return [*before, {**last, "content": "\n\n".join(filter(None, [last["content"], text]))}]

    async def step(self, message: Message) -> Reply:
        """Take a step for each call, or one for a message without calls."""
        if message.calls:
            return Reply([await self._call(call) for call in message.calls], done=self._is_over)
        field = self._options.text_field
        if not field:
            return Reply(done=True)
        text = await self._step({field: message.content})
        return Reply(user_messages=[text] if text or not self._is_over else [], done=self._is_over)

    async def rewards(self, last_message: Message | None) -> Mapping[str, float]:
        return {"reward": self._reward}

    async def close(self) -> None:
        await self._client.close()

    async def _call(self, call: ToolRequest) -> Outcome:
        if self._is_over:
            return _EPISODE_OVER
        try:
            return Outcome(OutcomeStatus.OK, await self._step(dict(call.arguments)))
        except RuntimeError as error:
            if not str(error).endswith(_INVALID):
                raise
            return Outcome(OutcomeStatus.ERROR, f"InvalidAction: {error}", "InvalidAction")

    async def _step(self, action: dict[str, Any]) -> str:
        result = await self._client.step(action)
        self._reward += float(result.reward or 0.0)
        self._is_over = bool(result.done)
        return self._text(result.observation)

    def _text(self, observation: Mapping[str, Any]) -> str:
        """Return the text of an observation, which must have the fields that the options name."""
        fields = self._options.visible_fields
        if not fields:
            return as_text(dict(observation))
        if missing := [name for name in fields if name not in observation]:
            raise ConfigError(
                f"rollout.environment.visible_fields: no {missing[0]!r} in the observation: {', '.join(observation)}"
            )
        return "\n".join(filter(None, (as_text(observation[name]) for name in fields)))
