"""A run as the text that an interactive interpreter would show."""

from collections.abc import Iterator

from torl.sandbox.execution import Execution


def render_transcript(outcome: Execution) -> str:
    """What the run printed, the value of its last statement, its traceback; and a word where a limit stopped it."""
    return "\n".join(part.rstrip("\n") for part in _parts(outcome) if part)


def _parts(outcome: Execution) -> Iterator[str]:
    yield outcome.stdout
    yield outcome.value or ""
    yield outcome.stderr
    if not outcome.ok and outcome.exception_type is None:
        yield f"[{outcome.status.value}]"
