"""The text of an observation: what the model sees of a call's outcome.

A fence inside the output is not escaped: a snippet that prints "```" ends its own output block early, as it would have
in the text that the model learned from.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from pydantic import Field

from torl.base.types import Markup, ObservationText, Outcome, OutcomeStatus, Turn
from torl.components.formats.format import Format
from torl_sandbox.errors import NO_OUTPUT

ErrorStyle = Annotated[
    Literal["last_line", "output_first", "traceback", "bare_traceback", "tagged", "hidden"],
    Field(
        description="Part of an error that the model sees: the last line of its traceback, the output before it (that "
        "line without output), the traceback, the traceback without file names and carets, the last line in <error> "
        "tags, or "
        "nothing."
    ),
]
"""The part of an error that the model sees. The description is the help of every option of this type."""

ELLIPSIS = "..."
_FILE = re.compile(r'File "[^"\n]*", ')
# Not the words of any Python exception: the model can tell a limit from an error in its code.
_LIMIT_LINES = {
    OutcomeStatus.TIMEOUT: "[time limit exceeded]",
    OutcomeStatus.MEMORY: "[memory limit exceeded]",
    OutcomeStatus.OUTPUT_LIMIT: "[output limit exceeded]",
    OutcomeStatus.CRASH: "[interpreter crashed]",
}


def render_observation(
    format: Format,
    turn: Turn,
    outcomes: Sequence[Outcome],
    overshoot: bytes,
    fits: Callable[[ObservationText, int], bool],
) -> ObservationText:
    """Return the text that torl splices in after a turn: the format's observation within its token limit.

    The part that the model has sampled already is left out.

    Args:
        format: Format of the run.
        turn: Turn that made the calls.
        outcomes: Outcomes of its calls, in order.
        overshoot: Bytes of the turn's last token after the end of the turn.
        fits: Whether an observation has at most a number of tokens of the model.
    """
    observation = format.render_observation(turn, outcomes)
    limit = format.max_observation_tokens
    if limit is not None and not fits(observation, limit):
        observation = format.shorten_observation(turn, outcomes, lambda text: fits(text, limit))
    if isinstance(observation, str):
        return strip_overshoot(overshoot, observation)
    first, *others = observation or [""]
    return observation if isinstance(first, Markup) else [strip_overshoot(overshoot, first), *others]


def strip_overshoot(overshoot: bytes, text: str) -> str:
    """Return `text` without the bytes at its start that the model has sampled already.

    All of it, if the model sampled something else or stopped inside a character.
    """
    data = text.encode()
    if not data.startswith(overshoot):
        return text
    try:
        return data[len(overshoot) :].decode()
    except UnicodeDecodeError:
        return text


def render_outcome(outcome: Outcome, error_style: ErrorStyle = "last_line", max_characters: int | None = 256) -> str:
    """Return the output of a call, or a line that describes its error, truncated to `max_characters`.

    Only the newlines at the end of the output are removed. A successful run without output yields a notice, so that it
    cannot be mistaken for a timeout (ToRL, section 3.2).
    """
    text = _text(outcome, error_style)
    return text if max_characters is None else truncate_middle(text, max_characters)


def truncate_middle(text: str, max_characters: int) -> str:
    """Return `text`; if it is longer, its first and last `max_characters // 2` characters with "..." between them."""
    if len(text) <= max_characters:
        return text
    half = max_characters // 2
    return text[:half] + ELLIPSIS + text[len(text) - half :]


def longest_prefix(text: str, fits: Callable[[str], bool]) -> str:
    """Return the longest prefix of `text` that fits, found by bisection; empty if none does."""
    too_long = bisect_left(range(len(text) + 1), True, key=lambda length: not fits(text[:length]))
    return text[: max(0, too_long - 1)]


def _text(outcome: Outcome, error_style: ErrorStyle) -> str:
    if outcome.ok:
        return outcome.text.rstrip("\n") or NO_OUTPUT
    if error_style == "hidden":
        return ""
    line = _LIMIT_LINES.get(outcome.status) or outcome.text or outcome.error or "Error"
    traceback = str(outcome.details.get("traceback") or "").rstrip("\n")
    if error_style == "output_first":
        return str(outcome.details.get("stdout") or "").rstrip("\n") or line
    if error_style == "traceback":
        return traceback or line
    if error_style == "bare_traceback":
        return _FILE.sub("", traceback).replace("^", "") or line
    return f"<error>{line}</error>" if error_style == "tagged" else line
