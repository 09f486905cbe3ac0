"""What the model sees of a call's outcome.

A fence inside the output is not escaped: a snippet that prints "```" ends its own output block early, as it
would have in the text the model learned from, and the model has to live with that.
"""

import re
from typing import Literal

from torl.types import Outcome, OutcomeStatus

ErrorStyle = Literal["last_line", "output_first", "traceback", "bare_traceback", "tagged", "hidden"]
"""What an error shows: the last line of its traceback; what was printed before it, and that line if nothing was (ToRL's
code); the traceback; the traceback without the names of files and the carets (ZeroTIR's code); the last line in <error>
tags; nothing."""

_FILE = re.compile('File ".*?", ')
NO_OUTPUT = "[no output]"
ELLIPSIS = "..."
# Not the words of any Python exception: the model can tell a limit from an error in its code.
_LIMIT_LINES = {
    OutcomeStatus.TIMEOUT: "[time limit exceeded]",
    OutcomeStatus.MEMORY: "[memory limit exceeded]",
    OutcomeStatus.OUTPUT_LIMIT: "[output limit exceeded]",
    OutcomeStatus.CRASH: "[interpreter crashed]",
}


def render_outcome(outcome: Outcome, error_style: ErrorStyle = "last_line", max_characters: int | None = 256) -> str:
    """The observation of a run: what it printed, or one line on what went wrong; never more than the cap allows.

    Only the newlines at the end of the output are taken away. A run that ended well and printed nothing says so,
    and is not mistaken for a time-out. `error_style` chooses what an exception or a limit shows (ToRL, section 3.2).
    """
    text = _text(outcome, error_style)
    return text if max_characters is None else truncate_middle(text, max_characters)


def truncate_middle(text: str, max_characters: int) -> str:
    """`text`, or its first and last `max_characters // 2` characters with "..." between if it is longer."""
    if len(text) <= max_characters:
        return text
    half = max_characters // 2
    return text[:half] + ELLIPSIS + text[len(text) - half :]


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
