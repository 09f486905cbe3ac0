"""The errors of the sandbox. torl's errors have the same base class."""


class TorlError(Exception):
    """Base class of all errors that torl raises on purpose. The message names the problem, its location and a fix."""


class SandboxError(TorlError):
    """A failure of the sandbox itself: a missing guest, a failed self-test, a dead pool."""
