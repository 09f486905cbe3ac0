"""The statuses of outcomes, which torl's tools share, and the errors of the sandbox itself."""

from enum import StrEnum


class TorlError(Exception):
    """Base class of all errors that torl raises on purpose. The message names the problem, its location and a fix."""


class SandboxError(TorlError):
    """A failure of the sandbox itself: a missing guest, a failed self-test, a dead pool."""


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
