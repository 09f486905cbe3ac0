"""Waiting in a guest with one thread: time passes, due timers fire, and a deadlock raises an error.

Execution is a stack of flows. The first is the program; a thread is a separate flow, from its start to its end, during
which the flow that started it is suspended. So only a timer can end the wait of a flow.
"""

import _thread
import heapq
import itertools
import sys
import time

ADVICE = (
    "This interpreter runs one thread at a time: start() and submit() run their work to completion before they return. "
)
IN_THREAD = ADVICE + (
    "This thread waits for {what}, which only the code after its start() could cause. "
    "Do that before start(), or call the functions one after the other without threads."
)
FOREVER = ADVICE + "This waits for {what}, and nothing can end the wait."
ENDLESS = ADVICE + (
    "This thread has slept {count} times: it seems to wait for something that only the code after its start() could "
    "cause. Do that before start(), or call the functions one after the other without threads."
)
TOO_LATE = ADVICE + (
    "A thread has already waited for this until a timeout. Do it before start(), or avoid threads."
)

# Number of sleeps after which a thread is stuck: it would have slept for seconds at least.
_MAX_SLEEPS = 50_000

_monotonic = time.monotonic
_sleep = time.sleep
_idents = itertools.count(_thread.get_ident() + 1)
_flows = [_thread.get_ident()]
# (when, number, timer), the next one first.
_timers = []
_numbers = itertools.count()
# The threads that another one knows to be over.
joined = set()
# The number of times that the running thread has slept.
_sleeps = 0
# The error of a deadlock. It ends the program, not only the thread that raised it.
_stuck = None


def get_ident():
    """Return the id of the running thread."""
    return _flows[-1]


def new_ident():
    return next(_idents)


def in_thread():
    return len(_flows) > 1


def run_as(ident, function):
    """Run `function` as the thread `ident`, to completion."""
    events, tasks = sys.modules.get("asyncio.events"), sys.modules.get("asyncio.tasks")
    # A thread has no running event loop, regardless of its starter.
    loop = events and events._get_running_loop()
    if loop is not None:
        task = tasks._swap_current_task(loop, None)
        events._set_running_loop(None)
    global _sleeps
    sleeps, _sleeps = _sleeps, 0
    _flows.append(ident)
    try:
        return function()
    finally:
        _flows.pop()
        _sleeps = sleeps
        if loop is not None:
            events._set_running_loop(loop)
            tasks._swap_current_task(loop, task)


def stuck(text):
    """The error of a deadlock."""
    global _stuck
    _stuck = RuntimeError(text)
    return _stuck


def is_stuck(error):
    return error is not None and error is _stuck


def wait(is_over, timeout, what):
    """Let time pass until `is_over()`, for at most `timeout` seconds (None or negative: no limit); return whether it
    is.
    """
    deadline = None if timeout is None or timeout < 0 else _monotonic() + timeout
    while not is_over():
        if _timers and (deadline is None or _timers[0][0] <= deadline):
            _let_next_timer_go_off()
        elif deadline is None:
            raise stuck((IN_THREAD if in_thread() else FOREVER).format(what=what))
        else:
            _sleep(max(0.0, deadline - _monotonic()))
            return is_over()
    return True


def sleep(seconds, /):
    """`time.sleep`, during which timers fire."""
    global _sleeps
    if in_thread() and seconds != 0:
        _sleeps += 1
        if _sleeps > _MAX_SLEEPS:
            raise stuck(ENDLESS.format(count=_MAX_SLEEPS))
    if not _timers:
        return _sleep(seconds)
    deadline = _monotonic() + seconds
    while _timers and _timers[0][0] <= deadline:
        _let_next_timer_go_off()
    return _sleep(max(0.0, deadline - _monotonic()) if seconds > 0 else seconds)


def add_timer(timer, interval):
    heapq.heappush(_timers, (_monotonic() + max(interval, 0), next(_numbers), timer))


def remove_timer(timer):
    """Remove a timer; return whether it was there."""
    rest = [entry for entry in _timers if entry[2] is not timer]
    found = len(rest) < len(_timers)
    heapq.heapify(rest)
    _timers[:] = rest
    return found


def wait_for_timer(otherwise):
    """Fire the next timer. Without a pending timer, raise an error with the text `otherwise`."""
    if not _timers:
        raise stuck(otherwise)
    _let_next_timer_go_off()


def _let_next_timer_go_off():
    """Wait for the next timer, which is removed when it goes off: the handler of an alarm may raise an error before."""
    when, _, timer = _timers[0]
    _sleep(max(0.0, when - _monotonic()))
    timer._go_off()


def finish():
    """Wait for timers that are not daemons, as a program does at its end."""
    while _timers:
        if all(timer.daemon for _, _, timer in _timers):
            _timers.clear()
        else:
            _let_next_timer_go_off()
