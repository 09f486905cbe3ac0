"""The protocol between a model and its tools that an episode follows."""

from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from torl._core import TurnEnd
from torl.types import Outcome, OutcomeStatus, ToolRequest, Turn

NO_REQUEST = Outcome(
    OutcomeStatus.ERROR, "NoCode: there was no complete ```python block to run", error="NoCode", details={}
)
"""The outcome of a call without a request. Nothing ran; it counts as a call, and as one that failed."""


class Format(Protocol):
    r"""How a model asks for a tool, and how it is answered.

    One object serves all episodes of a run, so it keeps nothing of any of them. A whole one, which searches what stands
    between tags:

        from collections.abc import Callable, Sequence

        import torl
        from torl import Outcome, ToolRequest, Turn, TurnEnd

        class TaggedSearch(torl.Format):
            name = "tagged_search"

            def turn_end(self) -> TurnEnd:
                return TurnEnd.marker(b"</search>")

            def request(self, turn: Turn) -> ToolRequest | None:
                _, opened, query = turn.text.rpartition("<search>")
                query = query.partition("</search>")[0].strip()
                return ToolRequest("search", {"query": query}) if opened and query else None

            def answer(self, outcome: Outcome, overshoot: bytes, fits: Callable[[str, int], bool]) -> str:
                return f"\n<result>{outcome.text}</result>\n"

        [rollout.format]
        name = "my_package.formats:TaggedSearch"

    The parameters of its `__init__`, if it has any, are its options.
    """

    name: ClassVar[str]
    """What records call it."""

    def turn_end(self) -> TurnEnd:
        """What ends a turn that may call a tool. After the last call nothing does."""
        ...

    def request(self, turn: Turn) -> ToolRequest | None:
        """What the turn that just ended asks for; None if it holds nothing to call, which is answered with an error."""
        ...

    def early_request(self, code: str) -> ToolRequest | None:
        """The call that a block may become which closed while its turn continues; None begins nothing early."""
        return None

    def answer(self, outcome: Outcome, overshoot: bytes, fits: Callable[[str, int], bool]) -> str:
        """The text to put in.

        Args:
            outcome: of the call.
            overshoot: what the token that ended the turn held beyond that end; the model has sampled it already.
            fits: whether a text has at most so many tokens of the model.
        """
        ...


def turn_end(format: Format, stop: Sequence[str], *, calls_left: bool) -> TurnEnd:
    """What ends a turn: a call while one is left, and any of the run's stop strings."""
    end = format.turn_end()
    return (end if calls_left else end.without_call()).with_stops(stop)


def without_overshoot(overshoot: bytes, text: str) -> str:
    """`text` less what was sampled of it already; all of it if something else was, or half a character."""
    rest = text.encode()
    if rest.startswith(overshoot):
        try:
            return rest[len(overshoot) :].decode()
        except UnicodeDecodeError:  # the token ended inside a character
            return text
    return text
