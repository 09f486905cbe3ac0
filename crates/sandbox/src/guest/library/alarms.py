"""`signal.alarm` and timers on the virtual clock: the signal arrives when the program waits or computes that long.

The host holds the alarm and sends its signal, with the first object that the program destroys when the time has come.
A program that waits waits no longer than until then: that is a timer of `_torl_waiting`.
"""

import os
import signal
import time

import _torl_waiting as waiting

DESCRIPTOR = 1003
_NANO = 1_000_000_000

# Values on Linux, which are missing here.
ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF = 0, 1, 2
SIGALRM = 14

_read, _write, _exit = os.read, os.write, os._exit
_monotonic_ns = time.monotonic_ns
_signal, _getsignal = signal.signal, signal.getsignal


class ItimerError(OSError):
    pass


ItimerError.__module__, ItimerError.__qualname__ = "signal", "itimer_error"


class _Timer:
    """The alarm among the timers that fire while the program waits. It does not keep the program from ending."""

    daemon = True

    def _go_off(self):
        # Due (1), and not counted as an arrival in a computation.
        if _pending()[0] == 1 and _getsignal(SIGALRM) is signal.SIG_DFL:
            _terminate()
        _follow()


_timer = _Timer()


def _pending():
    """Return the nanoseconds until the signal arrives (0: never), and its interval."""
    found = _read(DESCRIPTOR, 16)
    return int.from_bytes(found[:8], "little"), int.from_bytes(found[8:], "little")


def _follow():
    """Make the timer that of the host's alarm, which may have arrived, and been set again, in a computation."""
    _monotonic_ns()  # the host sends a signal that is due, and counts it
    rest, _ = _pending()
    waiting.remove_timer(_timer)
    if rest:
        waiting.add_timer(_timer, rest / _NANO)


def _terminate(*_):
    """End the program as the signal does without a handler."""
    _exit(128 + SIGALRM)


def _set(rest, interval):
    # The interpreter sends no signal to a program without a handler.
    if rest and _getsignal(SIGALRM) is signal.SIG_DFL:
        _signal(SIGALRM, _terminate)
    _write(DESCRIPTOR, rest.to_bytes(8, "little") + interval.to_bytes(8, "little"))
    _follow()


def _exchange(rest, interval):
    """Set the alarm and return the one before."""
    _monotonic_ns()
    before = _pending()
    _set(rest, interval)
    return before


def alarm(seconds, /):
    """Arrange for SIGALRM to arrive after the given number of seconds."""
    rest, _ = _exchange(max(0, int(seconds)) * _NANO, 0)
    # As Linux does: rounded to the nearest second, and never to zero.
    return max(1, (rest + _NANO // 2) // _NANO) if rest else 0


def setitimer(which, seconds, interval=0.0, /):
    """Set a timer, and return the previous one's remaining seconds and interval."""
    if which not in (ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF) or seconds < 0 or interval < 0:
        raise ItimerError(22, "Invalid argument")
    if which != ITIMER_REAL:
        return (0.0, 0.0)  # no clock of used CPU time exists
    rest, again = _exchange(round(seconds * _NANO), round(interval * _NANO))
    return (rest / _NANO, again / _NANO)


def getitimer(which, /):
    """Return the remaining seconds and the interval of a timer."""
    if which not in (ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF):
        raise ItimerError(22, "Invalid argument")
    _monotonic_ns()
    rest, interval = _pending() if which == ITIMER_REAL else (0, 0)
    return (rest / _NANO, interval / _NANO)


def pause():
    """Wait until a signal arrives."""
    _follow()
    waiting.wait_for_timer("signal.pause() waits for a signal, and no alarm is set that could send one.")


def install():
    signal.alarm, signal.setitimer, signal.getitimer, signal.pause = alarm, setitimer, getitimer, pause
    signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF = ITIMER_REAL, ITIMER_VIRTUAL, ITIMER_PROF
    signal.ItimerError = signal.itimer_error = ItimerError
    for function in (alarm, setitimer, getitimer, pause):
        function.__module__ = "signal"
