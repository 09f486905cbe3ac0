"""Locks and conditions that wait by `_torl_waiting`. Waiting for a lock of the interpreter would trap."""

import _frozen_importlib
import _thread
import _threading_local
import queue
import threading

import _torl_waiting as waiting


class Lock:
    """`threading.Lock`."""

    __slots__ = ("_held", "__weakref__")

    def __init__(self):
        self._held = False

    def acquire(self, blocking=True, timeout=-1):
        if self._held:
            if not blocking:
                if timeout != -1:
                    raise ValueError("can't specify a timeout for a non-blocking call")
                return False
            if timeout < 0 and timeout != -1:
                raise ValueError("timeout value must be a non-negative number")
            if timeout == 0:
                return False
            # The holder is suspended, and would release the lock: the timeout is not meaningful.
            if waiting.in_thread():
                timeout = -1
            if not waiting.wait(self._is_free, timeout, "a lock that is held"):
                return False
        self._held = True
        return True

    def _is_free(self):
        return not self._held

    def release(self):
        if not self._held:
            raise RuntimeError("release unlocked lock")
        self._held = False

    def locked(self):
        return self._held

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *error):
        self.release()

    def _at_fork_reinit(self):
        self._held = False

    acquire_lock, release_lock, locked_lock = acquire, release, locked

    def __repr__(self):
        return f"<{'locked' if self._held else 'unlocked'} _thread.lock object at {id(self):#x}>"


Lock.__name__ = Lock.__qualname__ = "lock"
Lock.__module__ = "_thread"

# Contains the threads that waited for a condition until a timeout.
_in_vain = "_torl_in_vain"


def _wait(self, timeout=None):
    """`Condition.wait`. In a thread a timeout is honored once, which ends a loop that drains a queue. A thread that
    waits again, or is called after that, would have behaved differently with real threads.
    """
    if not self._is_owned():
        raise RuntimeError("cannot wait on un-acquired lock")
    waiter = Lock()
    waiter.acquire()
    self._waiters.append(waiter)
    saved = self._release_save()
    called = False
    try:
        if timeout is None or timeout > 0:
            again = waiting.in_thread() and waiting.get_ident() in getattr(self, _in_vain, ())
            called = waiting.wait(
                waiter._is_free, None if again else timeout, "an event, a queue or a condition"
            )
            if not called and waiting.in_thread():
                setattr(self, _in_vain, {*getattr(self, _in_vain, ()), waiting.get_ident()})
        return called
    finally:
        self._acquire_restore(saved)
        if not called:
            try:
                self._waiters.remove(waiter)
            except ValueError:
                pass


_notify_original = threading.Condition.notify


def _notify(self, n=1):
    waiters = getattr(self, _in_vain, None)
    # After a join the thread is known to be over: it would not have noticed the notification.
    if waiters and not waiters <= {waiting.get_ident(), *waiting.joined}:
        raise waiting.stuck(waiting.TOO_LATE)
    _notify_original(self, n)


def install():
    # The import system keeps the interpreter's locks: it never waits.
    own = type(_thread)("_thread")
    own.__dict__.update(_thread.__dict__)
    _frozen_importlib._thread = own
    for module, names in (
        (_thread, ("allocate_lock", "allocate", "lock", "LockType")),
        (threading, ("Lock", "_allocate_lock", "_LockType")),
    ):
        for name in names:
            setattr(module, name, Lock)
    threading._CRLock = None
    # Thread-local values, for the thread that `threading` knows.
    threading.local = _thread._local = _threading_local.local
    threading.Condition.wait = _wait
    threading.Condition.notify = _notify
    queue.SimpleQueue = queue._PySimpleQueue
