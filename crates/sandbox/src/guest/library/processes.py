"""`multiprocessing` without processes: a process runs to completion when it is started, with its own variables."""

import concurrent.futures
import concurrent.futures.process
import itertools
import multiprocessing
import multiprocessing.context
import multiprocessing.pool
import os
import sys
import threading
import traceback

import _torl_cells as cells
import _torl_channels as channels
import _torl_executors as executors
import _torl_memory as memory
import _torl_waiting as waiting

_pids = itertools.count(1001)


class Popen:
    """The view of a process object on the started process, which is over."""

    sentinel = None

    def __init__(self, process):
        self.pid = next(_pids)
        process._args = tuple(memory.apart(value) for value in process._args)
        process._kwargs = {name: memory.apart(value) for name, value in process._kwargs.items()}
        self.returncode = memory.Child(process).call(lambda: _run(process))

    def poll(self, flag=None):
        return self.returncode

    def wait(self, timeout=None):
        return self.returncode

    def terminate(self):
        pass

    kill = close = interrupt = terminate


def _run(process):
    """Return the exit code of a process."""
    try:
        process.run()
    except SystemExit as exit:
        if exit.code is None or isinstance(exit.code, int):
            return exit.code or 0
        print(exit.code, file=sys.stderr)
    except BaseException as error:
        if waiting.is_stuck(error):
            raise
        sys.stderr.write(f"Process {process.name}:\n")
        traceback.print_exc()
    else:
        return 0
    return 1


class Process(multiprocessing.process.BaseProcess):
    _start_method = "fork"
    _Popen = staticmethod(Popen)


class ForkProcess(Process):
    pass


class Context(multiprocessing.context.BaseContext):
    _name = "fork"
    Process = Process
    Value, RawValue, Array, RawArray = (staticmethod(kind) for kind in (cells.Value, cells.RawValue, cells.Array, cells.RawArray))

    def get_context(self, method=None):
        if method not in (None, "fork", "spawn", "forkserver"):
            raise ValueError(f"cannot find context for {method!r}")
        return ForkContext()

    def get_start_method(self, allow_none=False):
        return "fork"

    def set_start_method(self, method, force=False):
        self.get_context(method)

    def get_all_start_methods(self):
        return ["fork", "spawn", "forkserver"]

    def cpu_count(self):
        return os.cpu_count() or 1

    def Pool(self, processes=None, initializer=None, initargs=(), maxtasksperchild=None):
        return Pool(processes, initializer, initargs, maxtasksperchild)

    def Manager(self):
        return channels.Manager()

    def Pipe(self, duplex=True):
        return channels.pipe(duplex)

    def Queue(self, maxsize=0):
        return channels.Queue(maxsize)

    JoinableQueue = Queue

    def SimpleQueue(self):
        return channels.Queue()


for _name in channels.SYNCHRONIZATION:
    setattr(Context, _name, (lambda name: lambda self, *options: getattr(threading, name)(*options))(_name))


class ForkContext(Context):
    Process = ForkProcess


class Pool(multiprocessing.pool.Pool):
    """A pool that runs each task on submission, all in one process next to the program."""

    def __init__(self, processes=None, initializer=None, initargs=(), maxtasksperchild=None, context=None):
        if processes is not None and processes < 1:
            raise ValueError("Number of processes must be at least 1")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self._state, self._cache, self._taskqueue = multiprocessing.pool.RUN, {}, self
        self._processes = processes or os.cpu_count() or 1
        self._pool = [None] * self._processes
        self._worker = self._hire()
        if initializer is not None:
            self._worker.call(lambda: initializer(*initargs))

    def _hire(self):
        worker = ForkProcess(daemon=True)
        worker.name = worker.name.replace("Process", "PoolWorker")
        return memory.Child(worker)

    def _call(self, function, args, kwargs):
        return self._worker.call_elsewhere(function, args, kwargs)

    def put(self, work):
        """The worker of a pool, which is also its task queue."""
        tasks, set_length = work
        count = 0
        for job, index, function, args, kwargs in tasks:
            count += 1
            try:
                result = (True, self._call(function, args, kwargs))
            except Exception as error:
                if waiting.is_stuck(error):
                    raise
                result = (False, error)
            if job in self._cache:
                self._cache[job]._set(index, result)
        if set_length is not None:
            set_length(count)

    def close(self):
        if self._state == multiprocessing.pool.RUN:
            self._state = multiprocessing.pool.CLOSE

    def terminate(self):
        self._state = multiprocessing.pool.TERMINATE

    def join(self):
        if self._state == multiprocessing.pool.RUN:
            raise ValueError("Pool is still running")

    def __del__(self):
        pass


class ThreadPool(Pool):
    """The same in a thread, which shares the program's variables."""

    def _hire(self):
        return executors.Worker(threading._newname("Thread-%d (worker)"))

    def _call(self, function, args, kwargs):
        return self._worker.call(lambda: function(*args, **kwargs))


class ProcessPoolExecutor(executors.Serial, concurrent.futures.process.ProcessPoolExecutor):
    _torl_broken = concurrent.futures.process.BrokenProcessPool

    def __init__(self, max_workers=None, mp_context=None, initializer=None, initargs=(), *, max_tasks_per_child=None):
        if max_workers is not None and max_workers <= 0:
            raise ValueError("max_workers must be greater than 0")
        if initializer is not None and not callable(initializer):
            raise TypeError("initializer must be a callable")
        self._max_workers = max_workers or os.cpu_count() or 1
        self._initializer, self._initargs = initializer, initargs
        self._broken = self._over = False
        self._worker = None

    def _torl_is_shut_down(self):
        return self._over

    def _torl_call(self, function, args, kwargs):
        if self._worker is None:
            self._worker = memory.Child(ForkProcess())
            self._torl_initialize(self._worker.call)
        return self._worker.call_elsewhere(function, args, kwargs)

    def map(self, function, *iterables, timeout=None, chunksize=1, **options):
        return concurrent.futures.Executor.map(self, function, *iterables, timeout=timeout)

    def shutdown(self, wait=True, *, cancel_futures=False):
        self._over = True

    terminate_workers = kill_workers = shutdown


def install():
    context = Context()
    multiprocessing.context._default_context = context
    multiprocessing.context._concrete_contexts = dict.fromkeys(context.get_all_start_methods(), ForkContext())
    for name in multiprocessing.__all__:
        setattr(multiprocessing, name, getattr(context, name))
    for name in ("ForkContext", "SpawnContext", "ForkServerContext"):
        setattr(multiprocessing.context, name, ForkContext)
    multiprocessing.pool.Pool, multiprocessing.pool.ThreadPool = Pool, ThreadPool
    concurrent.futures.ProcessPoolExecutor = concurrent.futures.process.ProcessPoolExecutor = ProcessPoolExecutor
