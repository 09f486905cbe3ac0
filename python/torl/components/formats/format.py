"""The base class of formats: the protocol between a model and its tools."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import Any, ClassVar

from torl._core import StopCondition
from torl.base.guard import Guarded, InvalidResultError, describe, guarded
from torl.base.types import MalformedCall, Markup, ObservationText, Outcome, OutcomeStatus, ToolRequest, Turn
from torl.components.text.answers import find_answer

TOO_MANY_CALLS = Outcome(
    OutcomeStatus.ERROR, "TooManyCalls: no call is left of those that a response may make", error="TooManyCalls"
)
"""The outcome of a call beyond the limit of a response. Nothing ran."""


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
    r"""The format of tool calls in a model's text, and of their observations.

    One object serves all episodes of a run, so it keeps no state of an episode. A complete format that searches for the
    text between tags:

        from collections.abc import Sequence
        from types import MappingProxyType

        import torl
        from torl import MalformedCall, ObservationText, Outcome, StopCondition, ToolRequest, Turn

        class TaggedSearch(torl.Format):
            name = "tagged_search"
            tools = MappingProxyType({"search": "query"})

            def stop_condition(self) -> StopCondition:
                return StopCondition.marker(b"</search>")

            def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
                _, tag, query = turn.text.rpartition("<search>")
                query = query.partition("</search>")[0].strip()
                if not tag or not query:
                    return [MalformedCall("NoQuery", "there was no query to search for")]
                return [ToolRequest("search", {"query": query})]

            def render_observation(self, turn: Turn, outcomes: Sequence[Outcome]) -> ObservationText:
                return f"\n<result>{outcomes[0].text}</result>\n"

        [rollout.format]
        name = "my_package.formats:TaggedSearch"

    The parameters of its `__init__` are its options.

    Attributes:
        name: Name of the format in the records.
        tools: Names of the tools that a call can be written for; None if any name can be written. A mapping names, for
            each tool, the one argument that a call has, a string.
        end_tokens: Tokens of the model's vocabulary that end a turn with or without calls, in addition to its
            end-of-sequence tokens.
        control_tokens: All tokens that the model's vocabulary must have.
        visible_tokens: Special tokens that calls are written with: the text of a turn shows them if the vocabulary has
            them.
        every_block_is_a_call: Whether a speculative call of a block stays valid when the turn closes another block.
        result_tags: Text before and after each result. Sampled text with it is a result that the model has invented
            (`torl.components.formats.results`). None if the model's text cannot contain it.
        result_line_ends: Number of line ends that an observation has after a result. They have no loss in examples.
        call_opening: Text that opens a call. The learner records the probability of its first token. None if calls open
            with other texts, too.
        max_observation_tokens: Limit on the tokens of an observation; `shorten_observation` is called above it.
    """

    name: ClassVar[str]
    tools: Container[str] | None = None
    end_tokens: Sequence[str] = ()
    control_tokens: Sequence[str] = ()
    visible_tokens: Sequence[str] = ()
    every_block_is_a_call: bool = False
    result_tags: tuple[str, str] | None = None
    result_line_ends: int = 1
    call_opening: str | None = None
    max_observation_tokens: int | None = None

    @guarded(_check_stop_condition)
    @abstractmethod
    def stop_condition(self) -> StopCondition:
        """Return the condition that ends a turn with a call. It no longer applies after the last allowed call."""

    @guarded(_check_calls)
    @abstractmethod
    def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
        """Return the calls of the turn that just ended, in order. Without a call the response ends.

        A call that cannot be made is a `MalformedCall`, and its error is its outcome.
        """

    @guarded(_check_speculative_call)
    def speculative_call(self, code: str) -> ToolRequest | None:
        """Return the call that a closed block may become while its turn continues, or None to start nothing early."""
        return None

    @guarded(_check_observation)
    @abstractmethod
    def render_observation(self, turn: Turn, outcomes: Sequence[Outcome]) -> ObservationText:
        """Return the text that follows the turn. torl removes the part that the model has sampled already.

        Args:
            turn: Turn that made the calls.
            outcomes: Outcomes of its calls, in order.
        """

    @guarded(_check_observation)
    def shorten_observation(
        self, turn: Turn, outcomes: Sequence[Outcome], fits: Callable[[ObservationText], bool]
    ) -> ObservationText:
        """Return the text that replaces an observation of more than `max_observation_tokens`.

        Args:
            turn: Turn that made the calls.
            outcomes: Outcomes of its calls, in order.
            fits: Whether a text is within the limit.
        """
        raise NotImplementedError(f"{type(self).__name__} has max_observation_tokens and no shorten_observation")


def tool_mismatch(format: Format, name: str, parameters: Any) -> str | None:
    """Return why a format cannot call a tool, or None.

    Args:
        format: Format.
        name: Name of the tool.
        parameters: JSON schema of the tool's arguments, if it is known.
    """
    if format.tools is None:
        return None
    if name not in format.tools:
        names = f"{', '.join(format.tools)} alone" if isinstance(format.tools, Collection) else "no tool of this name"
        return f"it calls {names}"
    properties = parameters.get("properties") if isinstance(parameters, Mapping) else None
    if not isinstance(format.tools, Mapping) or not isinstance(properties, Mapping):
        return None
    argument = format.tools[name]
    required = parameters.get("required", ())
    types = {each: schema.get("type", "any") if schema is not True else "any" for each, schema in properties.items()}
    kind = types.get(argument, "none")
    takes_text = not {"string", "any"}.isdisjoint([kind] if isinstance(kind, str) else kind)
    if takes_text and set(required) <= {argument}:
        return None
    found = [f"{each} ({kind}{', required' if each in required else ''})" for each, kind in types.items()]
    return f"a call has one argument, the string {argument!r}, and the tool has {', '.join(found) or 'none'}"


def turn_stop_condition(format: Format, stop: Sequence[str], *, calls_left: bool) -> StopCondition:
    """Return what ends a turn: a call if one is left, and any of the run's stop strings."""
    end = format.stop_condition()
    return (end if calls_left else end.without_call()).with_stops(stop)


def limit_calls(calls: Sequence[ToolRequest | MalformedCall], calls_left: int) -> list[ToolRequest | Outcome]:
    """Return for each call of a turn the request to make, or its outcome if it is malformed or beyond the limit.

    A malformed call counts as one of `calls_left`.
    """
    limited: list[ToolRequest | Outcome] = []
    for number, call in enumerate(calls):
        if isinstance(call, MalformedCall):
            limited.append(call.outcome)
        else:
            limited.append(call if number < calls_left else TOO_MANY_CALLS)
    return limited


def is_void(format: Format, turn: Turn) -> bool:
    """Whether a turn has neither a well-formed call nor a boxed answer."""
    calls = any(isinstance(call, ToolRequest) for call in format.parse_calls(turn))
    return not calls and find_answer(turn.text) is None
