"""Environment servers of OpenEnv: a message, or the arguments of a call, is an action; an observation is the answer."""

import json
import urllib.request
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from torl.environments.base import Environment, EnvironmentSession, Message, Reply, ToolSchema
from torl.errors import ConfigError, ToolUnavailableError
from torl.options import Section
from torl.text.templates import Messages
from torl.tools.function import as_text
from torl.tools.server_startup import FIRST_ANSWER_SECONDS
from torl.types import Outcome, OutcomeStatus, Problem, ToolRequest

if TYPE_CHECKING:
    from openenv.core.generic_client import GenericEnvClient

_INVALID = "(code: VALIDATION_ERROR)"
_OVER = Outcome(OutcomeStatus.ERROR, "EpisodeOver: the environment has ended the episode", "EpisodeOver")


class OpenEnvOptions(Section):
    """Options of the environment "openenv"."""

    openenv: str
    """The server, as http://host:8000."""
    text_field: str = ""
    """Field of an action that holds a message which calls nothing, such as "message". When empty, such a message is no
    action: it ends the episode."""
    full_message: bool = False
    """Put the whole message there, its thinking and calls included; not only what it says besides."""
    tool: str = ""
    """Name of a tool whose arguments are an action, by the schema that the server has of it; no tool when empty."""
    description: str = "Take an action in the environment."
    """What a model is told of this tool."""
    visible_fields: tuple[str, ...] = ()
    """Fields of an observation that the model sees, below each other; when empty, all of it as JSON."""
    reset_arguments: Mapping[str, Any] = {}
    """What an episode is begun with (`reset`) beside its seed, and what a problem has as "reset" in its metadata."""


class OpenEnvEnvironment(Environment):
    """A server of OpenEnv's; each episode has a session of its own there. What its steps pay is one sum, "reward"."""

    def __init__(self, options: OpenEnvOptions) -> None:
        """Connect to nothing yet.

        Raises:
            ConfigError: no message could ever be an action.
        """
        if not (options.text_field or options.tool):
            raise ConfigError(
                "rollout.environment: OpenEnv's actions are made of messages (text_field) or of calls (tool): set one "
                "of them, or both"
            )
        self.options = options

    @cached_property
    def tools(self) -> Mapping[str, ToolSchema]:
        """One, if the options name it. The server is asked for its schema.

        Raises:
            ToolUnavailableError: there is no server, or it has no schema.
        """
        options = self.options
        if not options.tool:
            return {}
        url = f"{options.openenv.rstrip('/')}/schema"
        try:
            with urllib.request.urlopen(url, timeout=FIRST_ANSWER_SECONDS) as response:
                action = json.loads(response.read())["action"]
            taken = {name: field for name, field in action["properties"].items() if name != "metadata"}
        except (OSError, ValueError, LookupError) as error:
            raise ToolUnavailableError(f"{url} says no schema of actions: {type(error).__name__}: {error}") from error
        return {options.tool: ToolSchema(options.description, {**action, "properties": taken})}

    def session(self, problem: Problem, seed: int) -> "OpenEnvSession":
        """A session of the server's.

        Raises:
            ConfigError: OpenEnv is not installed.
        """
        try:
            from openenv.core.generic_client import GenericEnvClient
        except ImportError as error:
            raise ConfigError("the environment 'openenv' needs its library: pip install 'torl[openenv]'") from error

        class Client(GenericEnvClient):
            """One that never connects again: the server would begin another episode without a word."""

            connected = False

            async def _connect_async(self) -> Any:
                if self._ws is None or self._ws.close_code is not None:
                    if self.connected:
                        raise ConnectionError("the connection was lost, and the episode with it")
                    object.__setattr__(self, "connected", True)
                return await super()._connect_async()

        begun_with = {"seed": seed, **self.options.reset_arguments, **problem.metadata.get("reset", {})}
        return OpenEnvSession(Client(base_url=self.options.openenv), self.options, begun_with)


class OpenEnvSession(EnvironmentSession):
    """One episode."""

    def __init__(self, client: "GenericEnvClient", options: OpenEnvOptions, begun_with: Mapping[str, Any]) -> None:
        """`client` is of this episode alone."""
        self._client, self._options, self._begun_with = client, options, begun_with
        self._reward, self._over = 0.0, False

    async def reset(self, messages: Messages) -> Messages:
        """Reset; what is observed then stands behind the question."""
        result = await self._client.reset(**self._begun_with)
        text = self._shown(result.observation)
        if not text:
            return messages
        *before, last = messages
        return [*before, {**last, "content": "\n\n".join(filter(None, [last["content"], text]))}]

    async def step(self, message: Message) -> Reply:
        """A step for each call; or one for the message, where it calls nothing and text is an action."""
        if message.calls:
            return Reply([await self._called(call) for call in message.calls], done=self._over)
        field = self._options.text_field
        if not field:
            return Reply(done=True)
        text = await self._step({field: message.text if self._options.full_message else message.content})
        return Reply(user_messages=[text] if text or not self._over else [], done=self._over)

    async def rewards(self, last_message: Message | None) -> Mapping[str, float]:
        """The sum over all steps."""
        return {"reward": self._reward}

    async def close(self) -> None:
        """End the server's session."""
        await self._client.close()

    async def _called(self, call: ToolRequest) -> Outcome:
        if self._over:
            return _OVER
        try:
            return Outcome(OutcomeStatus.OK, await self._step(dict(call.arguments)))
        except RuntimeError as error:
            if not str(error).endswith(_INVALID):
                raise
            return Outcome(OutcomeStatus.ERROR, f"InvalidAction: {error}", "InvalidAction")

    async def _step(self, action: dict[str, Any]) -> str:
        result = await self._client.step(action)
        self._reward += float(result.reward or 0.0)
        self._over = bool(result.done)
        return self._shown(result.observation)

    def _shown(self, observation: Mapping[str, Any]) -> str:
        """The text of an observation.

        Raises:
            ConfigError: it lacks a field that the options name.
        """
        fields = self._options.visible_fields
        if not fields:
            return as_text(dict(observation))
        if missing := [name for name in fields if name not in observation]:
            raise ConfigError(
                f"rollout.environment.visible_fields: no {missing[0]!r} in the observation: {', '.join(observation)}"
            )
        return "\n".join(filter(None, (as_text(observation[name]) for name in fields)))
