"""Sessions that clients hold by name, and may forget."""

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from torl.apps.serve.settings import SessionSettings
from torl.sandbox.session import Session


class SessionStore:
    """The sessions that were used last. Safe between threads.

    One that nobody has used for long goes, and the one unused for longest goes when there are too many, or their states
    are too large together: a forgotten session costs no more than its place.
    """

    def __init__(self, settings: SessionSettings, clock: Callable[[], float] = time.monotonic) -> None:
        """At least one session is kept."""
        self._most = max(settings.max_sessions, 1)
        self._max_bytes = settings.max_session_mib << 20
        self._idle_seconds = settings.session_ttl_seconds
        self._clock = clock
        self._used: OrderedDict[str, tuple[Session, float]] = OrderedDict()
        self._lock = threading.RLock()

    def __len__(self) -> int:
        return len(self._used)

    def add(self, session: Session) -> str:
        """Keep a session; returns its name, which nobody can guess."""
        name = secrets.token_urlsafe(12)
        with self._lock:
            self._used[name] = (session, self._clock())
            self.evict()
        return name

    def get(self, name: str) -> Session | None:
        """The session of this name, which now was used last; None if there is none, or none any more."""
        with self._lock:
            self.evict()
            found = self._used.get(name)
            if found is None:
                return None
            self._used[name] = (found[0], self._clock())
            self._used.move_to_end(name)
            return found[0]

    def drop(self, name: str) -> None:
        """Forget a session, if it is there."""
        with self._lock:
            self._used.pop(name, None)

    def evict(self) -> None:
        """Forget what is beyond the bounds; to be called when a session has grown."""
        with self._lock:
            oldest = self._clock() - self._idle_seconds
            held = sum(session.state_bytes for session, _ in self._used.values())
            while self._used:
                session, used = next(iter(self._used.values()))
                room = len(self._used) <= self._most and (held <= self._max_bytes or len(self._used) == 1)
                if used >= oldest and room:
                    break
                self._used.popitem(last=False)
                held -= session.state_bytes
