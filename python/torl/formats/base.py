"""The protocol between a model and its tools that an episode follows."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar

from torl._core import StopCondition
from torl.guard import Guarded, InvalidResultError, describe, guarded
from torl.text.answers import find_answer
from torl.types import MalformedCall, Markup, ObservationText, Outcome, OutcomeStatus, ToolRequest, Turn

TOO_MANY_CALLS = Outcome(
    OutcomeStatus.ERROR, "TooManyCalls: no call is left of those that a response may make", error="TooManyCalls"
)
"""The outcome of a call that the turn of the last call holds beyond it. Nothing ran."""


def _check_calls(calls: object, turn: Turn) -> None:
    if not isinstance(calls, Sequence) or not all(isinstance(call, ToolRequest | MalformedCall) for call in calls):
        raise InvalidResultError(f"expected a list of ToolRequest and MalformedCall, got {describe(calls)}")


def _check_observation(text: object, *_: object) -> None:
    parts = text if isinstance(text, Sequence) and not isinstance(text, str) else [text]
    if not all(isinstance(part, str | Markup) for part in parts):
        raise InvalidResultError(f"expected str, Markup or a list of them, got {describe(text)}")


def _check_stop_condition(condition: object) -> None:
    if not isinstance(condition, StopCondition):
        raise InvalidResultError(f"expected StopCondition, got {describe(condition)}")


def _check_speculative_call(call: object, code: str) -> None:
    if not isinstance(call, ToolRequest | None):
        raise InvalidResultError(f"expected ToolRequest or None, got {describe(call)}")


class Format(Guarded, ABC, kind="format"):
    r"""How a model asks for a tool, and how it is answered.

    One object serves all episodes of a run, so it keeps nothing of any of them. A whole one, which searches what stands
    between tags:

        from collections.abc import Callable, Sequence

        import torl
        from torl import MalformedCall, ObservationText, Outcome, StopCondition, ToolRequest, Turn

        class TaggedSearch(torl.Format):
            name = "tagged_search"

            def stop_condition(self) -> StopCondition:
                return StopCondition.marker(b"</search>")

            def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
                _, opened, query = turn.text.rpartition("<search>")
                query = query.partition("</search>")[0].strip()
                if not opened or not query:
                    return [MalformedCall("NoQuery", "there was nothing to search for")]
                return [ToolRequest("search", {"query": query})]

            def render_observation(
                self, turn: Turn, outcomes: Sequence[Outcome], overshoot: bytes, fits_tokens: Callable[[str, int], bool]
            ) -> ObservationText:
                return f"\n<result>{outcomes[0].text}</result>\n"

        [rollout.format]
        name = "my_package.formats:TaggedSearch"

    The parameters of its `__init__`, if it has any, are its options.
    """

    name: ClassVar[str]
    """What records call it."""
    end_tokens: Sequence[str] = ()
    """Tokens of the model's vocabulary that end a turn, calls or none, beside its end-of-sequence tokens."""
    control_tokens: Sequence[str] = ()
    """All tokens that the model's vocabulary has to have."""
    visible_tokens: Sequence[str] = ()
    """Special tokens that calls are made of: where the vocabulary has them, a turn's text shows them."""
    every_block_is_a_call: bool = False
    """Whether a call that began early with its block is still asked for when the turn closes another."""

    @guarded(_check_stop_condition)
    @abstractmethod
    def stop_condition(self) -> StopCondition:
        """What ends a turn that may call a tool, beside an end token. After the last call nothing does."""

    @guarded(_check_calls)
    @abstractmethod
    def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
        """What the turn that just ended asks for, in its order; where that is nothing, the response ends with it.

        What cannot be called is a `MalformedCall`: it is answered with its error.
        """

    def supports_tool(self, tool: str) -> bool:
        """Whether a call of a tool of this name can be written."""
        return True

    @guarded(_check_speculative_call)
    def speculative_call(self, code: str) -> ToolRequest | None:
        """The call that a block may become which closed while its turn continues; None begins nothing early."""
        return None

    @guarded(_check_observation)
    @abstractmethod
    def render_observation(
        self, turn: Turn, outcomes: Sequence[Outcome], overshoot: bytes, fits_tokens: Callable[[str, int], bool]
    ) -> ObservationText:
        """What to put in.

        Args:
            turn: that asked.
            outcomes: of its requests, one for each.
            overshoot: what the token that ended the turn held beyond that end; the model has sampled it already.
            fits_tokens: whether a text has at most so many tokens of the model.
        """


def turn_stop_condition(format: Format, stop: Sequence[str], *, calls_left: bool) -> StopCondition:
    """What ends a turn: a call while one is left, and any of the run's stop strings."""
    end = format.stop_condition()
    return (end if calls_left else end.without_call()).with_stops(stop)


def limit_calls(asked: Sequence[ToolRequest | MalformedCall], calls_left: int) -> list[ToolRequest | Outcome]:
    """What is done about the calls of a turn, in their order: a request is made, anything else has its outcome.

    A malformed call counts as one of `calls_left`.
    """
    calls: list[ToolRequest | Outcome] = []
    for number, call in enumerate(asked):
        if isinstance(call, MalformedCall):
            calls.append(call.outcome)
        else:
            calls.append(call if number < calls_left else TOO_MANY_CALLS)
    return calls


def is_void(format: Format, turn: Turn) -> bool:
    """Whether a turn holds neither a call that can be made nor a boxed answer."""
    calls = any(isinstance(call, ToolRequest) for call in format.parse_calls(turn))
    return not calls and find_answer(turn.text) is None


def strip_overshoot(overshoot: bytes, text: str) -> str:
    """`text` less what was sampled of it already; all of it if something else was, or half a character."""
    rest = text.encode()
    if rest.startswith(overshoot):
        try:
            return rest[len(overshoot) :].decode()
        except UnicodeDecodeError:  # the token ended inside a character
            return text
    return text
