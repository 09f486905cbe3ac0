"""What a controller and an object on a node tell each other, as bytes: one that cannot be read spoils no other."""

import pickle
import traceback
from typing import Any, Literal, NamedTuple

from torl.errors import TorlError


class CallMessage(NamedTuple):
    """To the object: call a method, or give a call up."""

    number: int
    """Of the call."""
    method: str | None
    """None: the call is given up."""
    arguments: bytes = b""
    streams: bool = False
    """Whether the method is an asynchronous generator."""


class ResultMessage(NamedTuple):
    """From the object: what a method gave."""

    number: int
    """Of the call."""
    kind: Literal["item", "end", "error"]
    """One of many; the last, which is what a coroutine returns; or what was raised."""
    value: bytes

    @classmethod
    def from_value(cls, number: int, kind: Literal["item", "end"], value: Any) -> "ResultMessage":
        """A value, or the error that it cannot be sent."""
        try:
            return cls(number, kind, pickle.dumps(value))
        except Exception as error:
            return cls.from_error(number, error)

    @classmethod
    def from_error(cls, number: int, error: Exception) -> "ResultMessage":
        """An error: torl's as it is; a defect with its traceback, as a note, or as the text of another error."""
        if not isinstance(error, TorlError):
            error.add_note("".join(traceback.format_exception(error)))
        try:
            value = pickle.dumps(error)
            pickle.loads(value)  # some can be written and not read: their class takes other arguments
        except Exception:
            value = pickle.dumps(RuntimeError("".join(traceback.format_exception(error))))
        return cls(number, "error", value)
