"""The errors of requests that the viewer answers with their message."""


class CannotReplayError(Exception):
    """A call cannot be run again. The message has the reason."""


class CannotVerifyError(Exception):
    """A trajectory cannot be verified. The message has the reason."""
