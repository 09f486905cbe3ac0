"""Environments of the library verifiers (to 0.2: `MultiTurnEnv` and its kinds), played by the library's own loop.

The loop asks a client for the model's messages. Here that client waits for torl's episode: all that the environment
does, its set-up, its answers, the end of a rollout and its rubric, is the library's doing.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from torl.environments.base import Environment, EnvironmentSession, Message, Reply, ToolSchema
from torl.errors import ConfigError
from torl.text.chat_templates import Messages
from torl.types import Outcome, OutcomeStatus, Problem

if TYPE_CHECKING:
    import verifiers

ROW = "verifiers"
"""Where a problem's metadata has its row of the environment's data set."""
_NOT_MADE = Outcome(OutcomeStatus.ERROR, "EpisodeOver: the environment ended the episode first", "EpisodeOver")


def verifiers_problems(environment: str, arguments: Mapping[str, Any] | None = None) -> Iterator[Problem]:
    """The data set of an environment of verifiers.

    Args:
        environment: Its name, as `verifiers.load_environment` takes it.
        arguments: What it is loaded with.

    Raises:
        ConfigError: it cannot be loaded.
    """
    for row in _load(environment, json.dumps(dict(arguments or {}))).get_dataset():
        prompt = row["prompt"]
        question = prompt if isinstance(prompt, str) else _text(prompt[-1])
        yield Problem(str(row["example_id"]), question, str(row.get("answer") or ""), {ROW: row})


class VerifiersEnvironment(Environment):
    """An environment of verifiers. Each function of its rubric that has a weight is a part of the reward."""

    def __init__(self, verifiers: str, arguments: Mapping[str, Any] | None = None, whole_text: bool = False) -> None:
        """Load it.

        Args:
            verifiers: Its name, as `verifiers.load_environment` takes it.
            arguments: What it is loaded with; the same as for the problems.
            whole_text: Whether it sees a message with its thinking and its calls; else it sees what it says besides.

        Raises:
            ConfigError: it cannot be loaded, or its rewards compare the rollouts of a group.
        """
        self._name, self._whole_text = verifiers, whole_text
        self._environment = _load(verifiers, json.dumps(dict(arguments or {})))
        if self._environment.requires_group_rollouts:
            raise ConfigError(f"{verifiers}: rewards that compare the rollouts of a group cannot be taken from it")

    @property
    def tools(self) -> Mapping[str, ToolSchema]:
        """Those that it has for all examples."""
        return {tool.name: ToolSchema(tool.description, tool.parameters) for tool in self._environment.tool_defs or []}

    def session(self, problem: Problem, seed: int) -> "VerifiersSession":
        """A rollout of the problem's row.

        Raises:
            ConfigError: the problem is of another data set, or has tools of its own.
        """
        row = problem.metadata.get(ROW)
        if row is None:
            raise ConfigError(
                f"problem {problem.id} is not of the environment's data set: take problems from it, by [data.train] "
                f'name = "verifiers", environment = "{self._name}"'
            )
        if "tool_defs" in (row.get("info") or {}):
            raise ConfigError(
                f"{self._name}: example {problem.id} has tools of its own; all have those of the run here"
            )
        return VerifiersSession(self._environment, row, self._whole_text)


@dataclass(slots=True)
class _Request:
    """A message that the loop waits for."""

    prompt: Sequence[Any]
    reply: "asyncio.Future[Any]"


class VerifiersSession(EnvironmentSession):
    """One rollout: the library's loop in a task, its requests in a queue."""

    def __init__(self, environment: "verifiers.Environment", row: Mapping[str, Any], whole_text: bool) -> None:
        """Begin nothing yet."""
        self._environment, self._row, self._whole_text = environment, row, whole_text
        self._requests: asyncio.Queue[_Request] = asyncio.Queue()
        self._rollout: asyncio.Task[Any] | None = None
        self._request: _Request | None = None  # that waits for a message
        self._prompt_messages = 0

    async def begin(self, messages: Messages) -> Messages:
        """The messages of its row, as the environment has set them up; those of the problem's template are left."""
        rollout = self._environment.run_rollout(dict(self._row), _client(self._requests), "torl", {})
        self._rollout = asyncio.ensure_future(rollout)
        self._request = await self._next()
        if self._request is None:
            raise RuntimeError(f"it ended before the first message: {self._rollout.result().get('error')}")
        self._prompt_messages = len(self._request.prompt)
        return [{"role": message.role, "content": _text(message)} for message in self._request.prompt]

    async def answer(self, message: Message) -> Reply:
        """What the loop asks for next shows what the environment said."""
        assert self._request is not None  # the episode goes on
        before = self._request.prompt
        self._send(message, "tool_calls" if message.calls else "stop")
        self._request = await self._next()
        if self._request is not None:
            prompt = list(self._request.prompt)
            if prompt[: len(before)] != list(before):
                raise ValueError("it changed messages that were sampled or said before: no such conversation is played")
            new = prompt[len(before) + 1 :]
        else:
            new = (await self._ended())["completion"][len(before) - self._prompt_messages + 1 :]
        said = [_text(each) for each in new if _get(each, "role") == "user"]
        results = {_get(each, "tool_call_id"): _text(each) for each in new if _get(each, "role") == "tool"}
        if others := {_get(each, "role") for each in new} - {"user", "tool"}:
            raise ValueError(f"it answered with a message of the role {min(others)!r}")
        texts = [results.get(_call_id(number)) for number, _ in enumerate(message.calls)]
        outcomes = [_NOT_MADE if text is None else Outcome(OutcomeStatus.OK, text) for text in texts]
        return Reply(outcomes, said, ended=self._request is None)

    async def rewards(self, unanswered: Message | None) -> Mapping[str, float]:
        """What the rubric says, by its functions, and as "rest" what it makes of them besides.

        As one "reward" where two functions have one name, or it does not say what they weigh (that of a group of
        environments).
        """
        import verifiers as vf

        if self._request is not None and unanswered is not None:
            self._send(unanswered, "length")
            self._request = await self._next()
        while self._request is not None:
            self._request.reply.set_exception(vf.OverlongPromptError("the episode ended at a limit"))
            self._request = await self._next()
        output = await self._ended()
        rubric, metrics, reward = self._environment.rubric, output["metrics"] or {}, float(output["reward"])
        names, weights = rubric._get_reward_func_names(), rubric._get_reward_weights()
        if not any(weights) or len(weights) != len(names) or len(set(names)) < len(names):
            return {"reward": reward}
        weighed = zip(names, weights, strict=True)
        parts = {name: weight * metrics.get(name, 0.0) for name, weight in weighed if weight}
        rest = reward - sum(parts.values())
        return parts if abs(rest) < 1e-6 else {**parts, "rest": parts.get("rest", 0.0) + rest}

    async def close(self) -> None:
        """End the loop."""
        if self._rollout is not None:
            self._rollout.cancel()
            await asyncio.wait([self._rollout])

    async def _next(self) -> _Request | None:
        """The next message that the loop waits for; None where it has ended."""
        assert self._rollout is not None
        asked = asyncio.ensure_future(self._requests.get())
        try:
            await asyncio.wait([asked, self._rollout], return_when=asyncio.FIRST_COMPLETED)
            return asked.result() if asked.done() else None
        finally:
            asked.cancel()

    async def _ended(self) -> Any:
        """What the library says of the rollout.

        Raises:
            RuntimeError: its infrastructure failed, and not the model.
        """
        assert self._rollout is not None
        import verifiers as vf

        output = await self._rollout
        error = output.get("error")
        kind = getattr(vf, error["error"], None) if error else None
        if error and not (isinstance(kind, type) and issubclass(kind, vf.ToolError)):
            raise RuntimeError(f"the rollout ended with {error['error_chain_repr']}")
        return output

    def _send(self, message: Message, reason: str) -> None:
        import verifiers as vf
        from verifiers.types import Response, ResponseMessage

        assert self._request is not None
        calls = [
            vf.ToolCall(id=_call_id(number), name=call.tool, arguments=json.dumps(dict(call.arguments)))
            for number, call in enumerate(message.calls)
        ]
        content = message.text if self._whole_text else message.content
        told = ResponseMessage(
            content=content, tool_calls=calls or None, finish_reason=reason, is_truncated=reason == "length"
        )
        self._request.reply.set_result(Response(id="", created=0, model="torl", message=told))


def _call_id(number: int) -> str:
    return f"call_{number}"


def _get(message: Any, field: str) -> Any:
    return message[field] if isinstance(message, Mapping) else getattr(message, field)


def _text(message: Any) -> str:
    """What a message says; raises ValueError for a picture or a sound."""
    content = _get(message, "content")
    if isinstance(content, str):
        return content
    parts = [dict(part) for part in content or []]
    if other := [part["type"] for part in parts if part["type"] != "text"]:
        raise ValueError(f"a message of it holds {other[0]!r}, and only text can be said here")
    return "".join(part["text"] for part in parts)


def _client(requests: "asyncio.Queue[_Request]") -> Any:
    """A client of verifiers whose answers come from who takes the requests."""
    from verifiers.clients import Client

    class Waiting(Client):
        async def get_response(self, prompt: Any, *_: Any, **__: Any) -> Any:
            request = _Request(prompt, asyncio.get_running_loop().create_future())
            await requests.put(request)
            return await request.reply

    # The rest of the interface turns messages into those of a server, which there is none of.
    Waiting.__abstractmethods__ = frozenset()
    return Waiting(None)


@cache
def _load(environment: str, arguments: str) -> "verifiers.Environment":
    """The environment; its data set and its rollouts are of one object.

    Raises:
        ConfigError: verifiers is not installed or has no such environments any more, or this one cannot be loaded.
    """
    try:
        import verifiers as vf

        load = vf.load_environment
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            "the environment 'verifiers' needs that library before its version 0.3: pip install 'verifiers==0.2.1'"
        ) from error
    try:
        return load(environment, **json.loads(arguments))
    except Exception as error:
        raise ConfigError(f"verifiers cannot load the environment {environment!r}: {error}") from error
