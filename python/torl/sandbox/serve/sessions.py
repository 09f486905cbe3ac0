"""Sessions that clients hold by name, and may forget."""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable

from torl.sandbox.session import Session


class SessionStore:
    """The sessions that were used last. For one event loop.

    One that nobody has used for long goes, and the one unused for longest goes when there are too many, or their states
    are too large together: a forgotten session costs no more than its place.
    """

    def __init__(
        self,
        most: int,
        most_bytes: int,
        idle_seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`most` is at least 1."""
        self._most = most
        self._most_bytes = most_bytes
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._used: OrderedDict[str, tuple[Session, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._used)

    def add(self, session: Session) -> str:
        """Keep a session; returns its name, which nobody can guess."""
        name = secrets.token_urlsafe(12)
        self._used[name] = (session, self._clock())
        self.tidy()
        return name

    def get(self, name: str) -> Session | None:
        """The session of this name, which now was used last; None if there is none, or none any more."""
        self.tidy()
        found = self._used.get(name)
        if found is None:
            return None
        self._used[name] = (found[0], self._clock())
        self._used.move_to_end(name)
        return found[0]

    def tidy(self) -> None:
        """Forget what is beyond the bounds; to be called when a session has grown."""
        oldest = self._clock() - self._idle_seconds
        held = sum(session.state_bytes for session, _ in self._used.values())
        while self._used:
            session, used = next(iter(self._used.values()))
            if used >= oldest and len(self._used) <= self._most and (held <= self._most_bytes or len(self._used) == 1):
                break
            self._used.popitem(last=False)
            held -= session.state_bytes
