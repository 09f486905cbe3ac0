"""The errors of requests that the viewer answers with their message."""


class CannotReplayError(Exception):
    """A call cannot be run again. The message has the reason."""
