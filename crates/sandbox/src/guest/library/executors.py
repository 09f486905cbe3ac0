"""`concurrent.futures` on one thread: submitted work runs to completion at once."""

import concurrent.futures
import concurrent.futures.thread
import contextvars
import threading

import _torl_waiting as waiting

BrokenThreadPool = concurrent.futures.thread.BrokenThreadPool


class Worker:
    """A thread of a pool, which is entered for each piece of work."""

    def __init__(self, name):
        self.thread = threading.Thread(name=name)
        self.thread._started.set()
        self.ident = self.thread._ident = waiting.new_ident()
        self.context = contextvars.Context()

    def call(self, function):
        threading._active[self.ident] = self.thread
        try:
            return waiting.run_as(self.ident, lambda: self.context.run(function))
        finally:
            del threading._active[self.ident]


class Serial(concurrent.futures.Executor):
    """The common part of the executors."""

    def submit(self, function, /, *args, **kwargs):
        if self._broken:
            raise type(self)._torl_broken(self._broken)
        if self._torl_is_shut_down():
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = concurrent.futures.Future()
        future.set_running_or_notify_cancel()
        try:
            result = self._torl_call(function, args, kwargs)
        except BaseException as error:
            if waiting.is_stuck(error):
                raise
            future.set_exception(error)
        else:
            future.set_result(result)
        return future

    def _torl_initialize(self, call):
        """Run the initializer by `call`, once for each worker; its exception breaks the pool."""
        if self._initializer is None:
            return
        try:
            call(lambda: self._initializer(*self._initargs))
        except BaseException as error:
            if waiting.is_stuck(error):
                raise
            concurrent.futures._base.LOGGER.critical("Exception in initializer:", exc_info=True)
            self._broken = "an initializer failed, the pool is not usable anymore"
            raise type(self)._torl_broken(self._broken) from None


class ThreadPoolExecutor(Serial, concurrent.futures.thread.ThreadPoolExecutor):
    _torl_broken = BrokenThreadPool

    def __init__(self, max_workers=None, thread_name_prefix="", initializer=None, initargs=(), **options):
        super().__init__(max_workers, thread_name_prefix, initializer, initargs, **options)
        self._initializer, self._initargs = initializer, initargs
        # More than one worker is active only if a piece of work submits another.
        self._torl_idle, self._torl_hired = [], 0

    def _torl_is_shut_down(self):
        return self._shutdown

    def _torl_call(self, function, args, kwargs):
        if self._torl_idle:
            worker = self._torl_idle.pop()
        else:
            worker = Worker(f"{self._thread_name_prefix}_{self._torl_hired}")
            self._torl_hired += 1
            self._torl_initialize(worker.call)
        try:
            return worker.call(lambda: function(*args, **kwargs))
        finally:
            self._torl_idle.append(worker)


ThreadPoolExecutor.__module__ = "concurrent.futures.thread"


def install():
    concurrent.futures.ThreadPoolExecutor = concurrent.futures.thread.ThreadPoolExecutor = ThreadPoolExecutor
