"""How a guest with one thread waits: time passes, timers that are due go off, and a wait that nothing can end raises.

What runs is a stack of flows. The first is the program; a thread is a flow of its own, from its start to its end, while the
one that started it stands still. So nobody can do what a waiting flow waits for, but a timer.
"""

import _thread
import heapq
import itertools
import sys
import time

ADVICE = (
    "This interpreter runs one thread at a time: start() and submit() run their work to its end before they return. "
)
IN_THREAD = ADVICE + (
    "This thread waits for {what}, which only the code behind its start() could bring about. "
    "Do that before start(), or call the functions one after the other without threads."
)
FOREVER = ADVICE + "This waits for {what}, and nothing is left that could end the wait."
TOO_LATE = ADVICE + (
    "A thread has waited for this in vain already, with a time limit. Do it before start(), or do without threads."
)

_monotonic = time.monotonic
_sleep = time.sleep
_idents = itertools.count(_thread.get_ident() + 1)
_flows = [_thread.get_ident()]
# (when, number, timer), the next one first.
_timers = []
_numbers = itertools.count()
# The threads that another one knows to be over.
joined = set()
# The error of a wait that nothing can end. It ends the program, not only the thread it was raised in.
_stuck = None


def get_ident():
    """The number of the thread that runs."""
    return _flows[-1]


def new_ident():
    return next(_idents)


def in_thread():
    return len(_flows) > 1


def run_as(ident, function):
    """Calls `function` as the thread `ident`, to its end."""
    events, tasks = sys.modules.get("asyncio.events"), sys.modules.get("asyncio.tasks")
    # A thread has no running event loop, whatever its starter is in the middle of.
    loop = events and events._get_running_loop()
    if loop is not None:
        task = tasks._swap_current_task(loop, None)
        events._set_running_loop(None)
    _flows.append(ident)
    try:
        return function()
    finally:
        _flows.pop()
        if loop is not None:
            events._set_running_loop(loop)
            tasks._swap_current_task(loop, task)


def stuck(text):
    """The error of a wait that nothing can end."""
    global _stuck
    _stuck = RuntimeError(text)
    return _stuck


def is_stuck(error):
    return error is not None and error is _stuck


def wait(is_over, timeout, what):
    """Lets time pass until `is_over()`, for `timeout` seconds at most (None or negative: forever); whether it is."""
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
    """`time.sleep`, during which timers go off."""
    if not _timers:
        return _sleep(seconds)
    deadline = _monotonic() + seconds
    while _timers and _timers[0][0] <= deadline:
        _let_next_timer_go_off()
    return _sleep(max(0.0, deadline - _monotonic()) if seconds > 0 else seconds)


def add_timer(timer, interval):
    heapq.heappush(_timers, (_monotonic() + max(interval, 0), next(_numbers), timer))


def remove_timer(timer):
    """Whether the timer was there."""
    rest = [entry for entry in _timers if entry[2] is not timer]
    found = len(rest) < len(_timers)
    heapq.heapify(rest)
    _timers[:] = rest
    return found


def wait_for_timer(otherwise):
    """Lets the next timer go off; raises the text `otherwise` if there is none."""
    if not _timers:
        raise stuck(otherwise)
    _let_next_timer_go_off()


def _let_next_timer_go_off():
    when, _, timer = heapq.heappop(_timers)
    _sleep(max(0.0, when - _monotonic()))
    timer._go_off()


def finish():
    """What a program waits for at its end: timers that are no daemons."""
    while _timers:
        if all(timer.daemon for _, _, timer in _timers):
            _timers.clear()
        else:
            _let_next_timer_go_off()
