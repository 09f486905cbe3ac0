"""Communication between processes that run one after the other: queues, pipes, and a manager's objects."""

import collections
import pickle
import queue
import threading
import types
import weakref
from multiprocessing.reduction import ForkingPickler

import _torl_cells as cells
import _torl_locks as locks
import _torl_waiting as waiting

SYNCHRONIZATION = ("Lock", "RLock", "Condition", "Semaphore", "BoundedSemaphore", "Event", "Barrier")
_shared = weakref.WeakValueDictionary()


class Shared:
    """An object that stays the same on the other side. Everything else that is sent to a process is copied."""

    def __reduce_ex__(self, protocol):
        _shared[id(self)] = self
        return find, (id(self),)


def find(key):
    """Return the shared object that was sent."""
    return _shared[key]


class Queue(Shared, queue.Queue):
    """A copy, as for every object that is sent between processes."""

    def _put(self, item):
        super()._put(bytes(ForkingPickler.dumps(item)))

    def _get(self):
        return pickle.loads(super()._get())

    def close(self):
        pass

    join_thread = cancel_join_thread = close


class Connection(Shared):
    """One end of a pipe."""

    def __init__(self, incoming, outgoing):
        self._incoming, self._outgoing, self.closed = incoming, outgoing, False
        self.readable, self.writable = incoming is not None, outgoing is not None

    def _check(self, may, what):
        if self.closed:
            raise OSError("handle is closed")
        if not may:
            raise OSError(f"connection is {what}-only")

    def send(self, item):
        self.send_bytes(ForkingPickler.dumps(item))

    def send_bytes(self, data):
        self._check(self.writable, "read")
        self._outgoing.append(bytes(data))

    def recv(self):
        return pickle.loads(self.recv_bytes())

    def recv_bytes(self, maxlength=None):
        self._check(self.readable, "write")
        waiting.wait(lambda: self._incoming, None, "something to arrive through a pipe")
        return self._incoming.popleft()

    def poll(self, timeout=0.0):
        self._check(self.readable, "write")
        return bool(self._incoming) or waiting.wait(lambda: self._incoming, timeout, "something to arrive through a pipe")

    def close(self):
        self.closed = True

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()


def pipe(duplex=True):
    there, back = collections.deque(), collections.deque()
    if duplex:
        return Connection(there, back), Connection(back, there)
    return Connection(there, None), Connection(None, there)


class SharedDict(Shared, dict):
    __hash__ = object.__hash__

    def copy(self):
        return dict(self)


class SharedList(Shared, list):
    __hash__ = object.__hash__


class Namespace(Shared, types.SimpleNamespace):
    __hash__ = object.__hash__


class Manager:
    """`multiprocessing.Manager()`, whose objects need no server here."""

    dict, list, Namespace, Queue, JoinableQueue = SharedDict, SharedList, Namespace, Queue, Queue
    Value = type("Value", (Shared, cells.Value), {})

    @staticmethod
    def Array(typecode, sequence, lock=True):
        return SharedList(sequence)

    def start(self, *options):
        pass

    def shutdown(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass


for _name in SYNCHRONIZATION:
    _class = {"Lock": locks.Lock, "RLock": threading._RLock}.get(_name) or getattr(threading, _name)
    setattr(Manager, _name, type(_name, (Shared, _class), {}))
