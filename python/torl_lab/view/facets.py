"""The facets of a trajectory: the numbers that the viewer filters, counts and sorts by."""

from enum import IntFlag
from typing import Final

import numpy as np

from torl.base.types import FinishReason, OutcomeStatus

FACETS: Final = np.dtype(
    [
        ("file", "<u4"),  # number of the file in the index
        ("line", "<u4"),  # from 0
        ("offset", "<u8"),  # in bytes
        ("length", "<u4"),  # in bytes, without the end of the line
        ("step", "<i4"),
        ("set", "<u2"),  # number of the set in the index
        ("problem", "<u4"),  # number of the problem in the index
        ("group", "<u4"),  # hash of the name
        ("sample", "<u4"),
        ("flags", "<u2"),
        ("reward", "<f4"),  # with turn rewards
        ("advantage", "<f4"),  # NaN outside the batch
        ("calls", "<u2"),
        ("failed", "<u2"),  # calls that ran and failed
        ("statuses", "<u1"),  # one bit for each of STATUSES
        ("tokens", "<u4"),  # of the response
        ("sampled", "<u4"),  # tokens
        ("turns", "<u2"),
        ("finish", "<u1"),  # index in FINISHES
        ("oldest", "<i4"),  # policy version, -1 without sampled tokens
        ("newest", "<i4"),
        ("seconds", "<f4"),
    ]
)
"""The columns of the index, one record for each line of a trajectory file."""

NOT_EXECUTED: Final = "not_executed"
STATUSES: Final = (*(status.value for status in OutcomeStatus), NOT_EXECUTED)
"""Names of call outcomes, in the order of their bits: the statuses, and calls without a run."""
FINISHES: Final = (*(reason.value for reason in FinishReason), "unknown")


class Flag(IntFlag):
    """Properties of a trajectory that are true or false.

    Attributes:
        CORRECT: The answer is correct.
        VALID_FORMAT: The response has the format that the reward requires.
        ANSWERED: The response has an answer.
        GRADER_FAILURE: The grader failed.
        TRAINED: The trajectory has an advantage.
        INVENTED: The model wrote the result of a tool itself.
        RECOVERED: The response is correct, and a failed run is followed by a successful one.
        BRANCHES: The episode has several token sequences.
        DAMAGED: The line is not a trajectory.
    """

    CORRECT = 1
    VALID_FORMAT = 2
    ANSWERED = 4
    GRADER_FAILURE = 8
    TRAINED = 16
    INVENTED = 32
    RECOVERED = 64
    BRANCHES = 128
    DAMAGED = 256


def status_names(bits: int) -> list[str]:
    """Return the outcomes of a trajectory's calls by name."""
    return [name for index, name in enumerate(STATUSES) if bits & 1 << index]
