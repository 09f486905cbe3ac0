"""Search-R1's format: what stands between <search> tags is searched for, and comes back between <information> tags."""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import ClassVar

from torl._core import StopCondition
from torl.formats.base import Format, strip_overshoot
from torl.formats.observation import render_outcome
from torl.options import PositiveInt, Section
from torl.types import MalformedCall, Outcome, ToolRequest, Turn

SEARCH = "search"
"""The tool that is asked."""
INVALID = (
    "\nMy previous action is invalid. If I want to search, I should put the query between <search> and </search>. If I "
    "want to give the final answer, I should put the answer between <answer> and </answer>. Let me try again.\n"
)
"""What Search-R1 says of a turn without a query (`execute_predictions` in `search_r1/llm_agent/generation.py`)."""

NO_QUERY = MalformedCall("NoQuery", "there was no query between <search> and </search>")
"""A turn that closes a query and has none."""

_QUERY = re.compile(r"<search>(.*?)</search>", re.DOTALL)


class SearchR1Options(Section):
    """Options of the format "search_r1"."""

    max_observation_tokens: PositiveInt = 500
    """Passages are cut so that an observation has no more tokens, tags included."""


class SearchR1Format(Format):
    """Search-R1 (section 3.2): at "</search>" the query is searched for, <information> with the passages goes in.

    An answer ends the response where `rollout.stop` holds "</answer>".
    """

    name: ClassVar[str] = "search_r1"

    def __init__(self, options: SearchR1Options | None = None) -> None:
        """Take the options of a configuration, or the defaults."""
        self.options = options or SearchR1Options()

    def stop_condition(self) -> StopCondition:
        """The tag that closes a query."""
        return StopCondition.marker(b"</search>")

    def parse_calls(self, turn: Turn) -> Sequence[ToolRequest | MalformedCall]:
        """What stands behind the first <search>."""
        found = _QUERY.search(turn.text)
        query = found.group(1).strip() if found else ""
        return [ToolRequest(SEARCH, {"query": query}) if query else NO_QUERY]

    def render_observation(
        self, turn: Turn, outcomes: Sequence[Outcome], overshoot: bytes, fits_tokens: Callable[[str, int], bool]
    ) -> str:
        """What the token that ended the turn may hold beyond the tag is not repeated.

        Search-R1 cuts the tokens of an observation, its closing tag among them; here the passages are cut.
        """
        if outcomes[0] == NO_QUERY.outcome:
            return strip_overshoot(overshoot, INVALID)
        text = render_outcome(outcomes[0], max_characters=None).strip()
        most = self.options.max_observation_tokens
        if not fits_tokens(_framed(text), most):
            too_long = bisect_left(
                range(len(text)), True, key=lambda length: not fits_tokens(_framed(text[:length]), most)
            )
            text = text[: max(0, too_long - 1)]
        return strip_overshoot(overshoot, _framed(text))


def _framed(passages: str) -> str:
    return f"\n\n<information>{passages}</information>\n\n"
