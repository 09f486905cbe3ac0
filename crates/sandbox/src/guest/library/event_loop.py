"""asyncio's event loop without sockets: it wakes only when a task is ready or due."""

import asyncio.events
import asyncio.selector_events
import errno
import selectors
import socket
import threading

import _torl_waiting as waiting

NOTHING_LEFT = (
    "every task of the event loop waits for something that never happens: nothing is scheduled, and there is no other "
    "thread or socket that could wake the loop. Look for a future, event, lock or queue that is never set, released or filled."
)


class Selector(selectors.BaseSelector):
    """A selector that waits for time to pass, the only event here."""

    def register(self, fileobj, events, data=None):
        raise OSError("files and sockets cannot be watched here: there is no network and no other process")

    def unregister(self, fileobj):
        raise KeyError(f"{fileobj!r} is not registered")

    def select(self, timeout=None):
        if timeout is None:
            waiting.wait_for_timer(NOTHING_LEFT)
        else:
            # Also for no time: the readings of the loop itself do not make the clock go faster.
            waiting.sleep(max(timeout, 0))
        return []

    def get_map(self):
        return {}


def _get_event_loop(self):
    """Return the main thread's loop, created on demand, as before Python 3.14."""
    if self._local._loop is None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError(f"There is no current event loop in thread {threading.current_thread().name!r}.")
        self.set_event_loop(self.new_event_loop())
    return self._local._loop


NO_NETWORK = "there is no network here"


def _no_lookup(host, *rest, **named):
    raise socket.gaierror(socket.EAI_NONAME, f"{NO_NETWORK}: cannot look up {host!r}")


def _no_socket(self, *arguments, **named):
    raise OSError(errno.ENOTSUP, NO_NETWORK)


async def _no_server(self, *arguments, **named):
    raise OSError(errno.ENOTSUP, NO_NETWORK)


def install():
    loop = asyncio.selector_events.BaseSelectorEventLoop
    start = loop.__init__
    loop.__init__ = lambda self, selector=None: start(self, Selector() if selector is None else selector)
    # The loop has a pair of sockets through which other threads wake it. No other thread runs while it waits.
    loop._make_self_pipe = lambda self: self.__dict__.update(_ssock=None, _csock=None)
    asyncio.events._BaseDefaultEventLoopPolicy.get_event_loop = _get_event_loop
    asyncio.events._BaseDefaultEventLoopPolicy._Local = type("_Local", (threading.local,), {"_loop": None})
    loop.create_server = _no_server
    socket.socket.__init__ = _no_socket
    socket.EAI_NONAME = -2  # as on Linux
    socket.getaddrinfo = _no_lookup
    loop._close_self_pipe = loop._write_to_self = lambda self: None
