"""The base classes of tools."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Self

from torl.base.component import Component
from torl.base.guard import Guarded, InvalidResultError, describe, guarded
from torl.base.types import Outcome, OutcomeStatus, Problem

_SCALARS = (str, bool, int, float, type(None))


def check_outcome(outcome: object, *_: object, **__: object) -> None:
    """Raise `InvalidResultError` unless the outcome of a custom component's call is a valid `Outcome`."""
    if not isinstance(outcome, Outcome):
        raise InvalidResultError(f"expected Outcome, such as Outcome(OutcomeStatus.OK, text); got {describe(outcome)}")
    if not isinstance(outcome.text, str):
        raise InvalidResultError(f"expected str as the text of the Outcome, got {describe(outcome.text)}")
    if not isinstance(outcome.status, OutcomeStatus):
        raise InvalidResultError(f"expected OutcomeStatus as its status, got {describe(outcome.status)}")
    if not isinstance(outcome.error, str | None):
        raise InvalidResultError(f"expected the type of its error as str, or None; got {describe(outcome.error)}")
    if not isinstance(outcome.details, Mapping):
        raise InvalidResultError(f"expected a mapping as its details, got {describe(outcome.details)}")
    for name, value in outcome.details.items():
        if not isinstance(name, _SCALARS) or not (isinstance(value, _SCALARS) or _is_json(value)):
            raise InvalidResultError(f"expected plain JSON as its details, got {name!r}: {describe(value)}")


def _is_json(value: object) -> bool:
    try:
        json.dumps(value, default=as_object)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def as_object(value: object) -> dict[Any, Any]:
    """Return a mapping as a dict, for `json.dumps`; raise `TypeError` for another value."""
    if not isinstance(value, Mapping):
        raise TypeError(f"not JSON: {describe(value)}")
    return dict(value)


def _check_session(session: object, *_: object, **__: object) -> None:
    if not isinstance(session, ToolSession):
        raise InvalidResultError(f"expected ToolSession, got {describe(session)}")


class ToolSession(Guarded, ABC, kind="tool"):
    """A tool within one episode. Its calls run one after the other, and each sees the state after the previous one."""

    @guarded(check_outcome, fails_episode=True)
    @abstractmethod
    async def call(self, arguments: Mapping[str, Any]) -> Outcome:
        """Execute a call. Its arguments fit the tool's `parameters`. Other mistakes of the model are outcomes.

        Raises:
            ToolUnavailableError: The call has no outcome this time. It is retried in another fork of the session; after
                the last retry, its episode fails and is left out of training.
            TorlError: The host has failed. The run stops. Any other exception fails the episode.
        """

    @guarded(_check_session, fails_episode=True)
    def fork(self) -> Self:
        """Return an independent session that continues from the state of this one.

        A session without state returns itself; its calls may then run concurrently.
        """
        return self


class BaseTool(Component, kind="tool"):
    """The common base of `Tool` and `StatefulTool`: a description for the model, and a session for each episode.

    Attributes:
        description: Description of the tool, for the model.
        parameters: JSON schema of the arguments.
        speculative: Whether a call may start before its turn ends, in a fork of the session. The call is cancelled if
            the turn does not make it.
        checks_arguments: Whether the tool checks the arguments of a call itself. Otherwise a call whose arguments do
            not fit `parameters` does not reach the tool: its outcome is an error.
        has_own_limits: Whether the tool enforces its own limits, and checks its arguments. All other tools are wrapped
            in `BoundedTool`.
    """

    description: str
    parameters: Mapping[str, Any]
    speculative: bool = False
    checks_arguments: bool = False
    has_own_limits: bool = False

    @guarded(_check_session, fails_episode=True)
    @abstractmethod
    def session(self, seed: int) -> ToolSession:
        """Open a session for one episode.

        Args:
            seed: Seed of the problem. Equal seeds and equal calls must yield equal outcomes.
        """

    @guarded(_check_session, fails_episode=True)
    def problem_session(self, problem: Problem, seed: int) -> ToolSession:
        """Open a session for one episode of a problem. By default the session of `session`.

        A tool that needs the problem, such as its metadata, overrides this method.

        Args:
            problem: Problem of the episode.
            seed: Seed of the problem.
        """
        return self.session(seed)

    @guarded()
    def provided_tools(self, name: str) -> "Mapping[str, BaseTool]":
        """Return the tools that the model may call, by name. Also works before `start`.

        Args:
            name: Key of the tool's section in the configuration.
        """
        return {name: self}


class Tool(BaseTool, ToolSession):
    '''A tool without state: every call is independent. Use `StatefulTool` if calls depend on earlier ones. Example:

        import json
        from collections.abc import Mapping
        from pathlib import Path
        from typing import Any

        import torl
        from torl import Outcome, OutcomeStatus

        class Dictionary(torl.Tool):
            """Looks words up."""

            description = "The meaning of a word."
            parameters = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}

            def __init__(self, path: str) -> None:
                self.meanings = json.loads(Path(path).read_text())

            async def call(self, arguments: Mapping[str, Any]) -> Outcome:
                meaning = self.meanings.get(arguments["word"])
                if meaning is None:
                    return Outcome(OutcomeStatus.ERROR, "there is no such word", error="UnknownWord")
                return Outcome(OutcomeStatus.OK, meaning)

        [rollout.tools.dictionary]
        name = "my_package.tools:Dictionary"
        path = "words.json"

    Formats call the tool by the key of its section. The parameters of `__init__` are its options.

    Attributes:
        description: Description of the tool, for the model.
        parameters: JSON schema of the arguments.
        speculative: Whether a call may start before its turn ends.
    '''

    def session(self, seed: int) -> Self:
        return self

    def fork(self) -> Self:
        return self


class StatefulTool(BaseTool):
    '''A tool whose calls depend on earlier calls of the same episode. Example:

        from collections.abc import Mapping
        from typing import Any, Self

        import torl
        from torl import Outcome, OutcomeStatus

        class Notebook(torl.StatefulTool):
            """Collects notes."""

            description = "Adds a note and returns all notes."
            parameters = {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}

            def session(self, seed: int) -> "NotebookSession":
                return NotebookSession([])

        class NotebookSession(torl.ToolSession):
            def __init__(self, notes: list[str]) -> None:
                self.notes = notes

            async def call(self, arguments: Mapping[str, Any]) -> Outcome:
                self.notes.append(arguments["note"])
                return Outcome(OutcomeStatus.OK, "; ".join(self.notes))

            def fork(self) -> Self:
                return type(self)([*self.notes])

        [rollout.tools.notes]
        name = "my_package.tools:Notebook"

    `fork` must copy the state: a call is retried, or started early, in a fork of the session.
    '''
