"""The repetition of an audit during which the run was resumed: a resume removes records that the audit expects."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

from torl.base.errors import RecordError, TorlError
from torl.run.records.receipt import read_receipt

Result = TypeVar("Result")


async def repeat_if_resumed(
    directory: Path, audit: Callable[[], Awaitable[Result]], is_right: Callable[[Result], bool]
) -> Result:
    """Audit a run, again for as long as an audit fails and the run has been resumed in the meantime.

    A run that only continues appends to its records, which no audit needs to repeat.

    Args:
        directory: Run directory.
        audit: Function that audits.
        is_right: Whether a result has no mismatch.
    """
    while True:
        before = await asyncio.to_thread(_lines, directory)
        try:
            result = await audit()
            if is_right(result) or not await asyncio.to_thread(_was_resumed, directory, before):
                return result
        except (OSError, TorlError):
            if not await asyncio.to_thread(_was_resumed, directory, before):
                raise


def _was_resumed(directory: Path, before: list[dict[str, Any]]) -> bool:
    now = _lines(directory)
    return now[: len(before)] != before or any(line["event"] == "start" for line in now[len(before) :])


def _lines(directory: Path) -> list[dict[str, Any]]:
    try:
        return read_receipt(directory)
    except RecordError:  # a mismatch of the audit
        return []
