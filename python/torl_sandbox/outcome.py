"""The status of a run, which torl's tools share, and the notice for a run without output."""

from enum import StrEnum

NO_OUTPUT = "[no output]"
"""Notice for the model that a successful run had no output."""


class OutcomeStatus(StrEnum):
    """The status of a tool call. Every status is data for the model, never a host failure.

    Attributes:
        OK: The call succeeded.
        ERROR: The code raised an exception, or an argument is invalid.
        TIMEOUT: The call exceeded its time limit.
        MEMORY: The call exceeded its memory limit.
        OUTPUT_LIMIT: The call printed too much.
        CRASH: The process that executed the call died, and died again in a second attempt.
    """

    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    MEMORY = "memory"
    OUTPUT_LIMIT = "output_limit"
    CRASH = "crash"
