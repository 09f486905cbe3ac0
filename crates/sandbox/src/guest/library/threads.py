"""Threads that run to completion when they are started, and timers that fire while the program waits."""

import _thread
import contextvars
import sys
import threading
import time
import types

import _torl_waiting as waiting


class Handle:
    """The handle of a thread in `threading`."""

    __slots__ = ("_over", "ident")

    def __init__(self):
        self.ident = None
        self._over = False

    def is_done(self):
        if self._over:
            waiting.joined.add(self.ident)
        return self._over

    def _set_done(self):
        self._over = True

    def join(self, timeout=None):
        # An unfinished thread has started the asking one, and is suspended.
        waiting.wait(self.is_done, None if waiting.in_thread() else timeout, "the end of a thread that started it")


def _make_thread_handle(ident):
    handle = Handle()
    handle.ident = ident
    return handle


def _start_joinable_thread(function, handle=None, daemon=True):
    handle = Handle() if handle is None else handle
    handle.ident = waiting.new_ident()
    try:
        waiting.run_as(handle.ident, function)
    finally:
        handle._set_done()
    return handle


def _start_new_thread(function, args, kwargs={}, /):
    ident = waiting.new_ident()
    try:
        waiting.run_as(ident, lambda: function(*args, **kwargs))
    except SystemExit:
        pass
    except BaseException as error:
        if waiting.is_stuck(error):
            raise
        sys.unraisablehook(
            types.SimpleNamespace(
                exc_type=type(error),
                exc_value=error,
                exc_traceback=error.__traceback__,
                err_msg="Exception ignored in thread started by",
                object=function,
            )
        )
    return ident


_start_original = threading.Thread.start
_make_invoke_original = threading._make_invoke_excepthook


def _make_invoke_excepthook():
    """Let a deadlock pass: it is not reported as the end of a thread, so that the starter receives the error."""
    invoke_original = _make_invoke_original()

    def invoke(thread):
        error = sys.exception()
        if waiting.is_stuck(error):
            thread._torl_stuck = error
        else:
            invoke_original(thread)

    return invoke


def _start(self):
    _start_original(self)
    error = self.__dict__.pop("_torl_stuck", None)
    if error is not None:
        raise error


class Timer(threading.Timer):
    """A timer that fires when the program sleeps or waits for longer than its delay, or has ended."""

    def start(self):
        if type(self).run is not threading.Timer.run:
            super().start()
            return
        if self._started.is_set():
            raise RuntimeError("threads can only be started once")
        self._started.set()
        self._context = contextvars.Context()
        self._ident = self._os_thread_handle.ident = waiting.new_ident()
        threading._active[self._ident] = self
        waiting.add_timer(self, self.interval)

    def cancel(self):
        super().cancel()
        if waiting.remove_timer(self):
            self._end()

    def _go_off(self):
        if not waiting.remove_timer(self):
            return  # the handler of an alarm has cancelled it

        def call():
            try:
                self.finished.set()
                self._context.run(self.function, *self.args, **self.kwargs)
            except BaseException:
                self._invoke_excepthook(self)

        waiting.run_as(self._ident, call)
        self._end()
        error = self.__dict__.pop("_torl_stuck", None)
        if error is not None:
            raise error

    def _end(self):
        threading._active.pop(self._ident, None)
        self._os_thread_handle._set_done()


Timer.__module__ = "threading"
Timer.run = threading.Timer.run


def install():
    for module, prefix in ((_thread, ""), (threading, "_")):
        setattr(module, prefix + "start_joinable_thread", _start_joinable_thread)
        setattr(module, prefix + "make_thread_handle" if prefix else "_make_thread_handle", _make_thread_handle)
        module._ThreadHandle = Handle
        module.get_ident = waiting.get_ident
    _thread.start_new_thread = _thread.start_new = _start_new_thread
    threading._make_invoke_excepthook = _make_invoke_excepthook
    threading.Thread.start = _start
    threading.Timer = Timer
    time.sleep = waiting.sleep
    main = threading._main_thread
    handle = _make_thread_handle(main.ident)
    main._os_thread_handle = handle
