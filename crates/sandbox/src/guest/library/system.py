"""Parts of a Linux system that programs ask for and that have a harmless answer here, and errors that say what is
missing.
"""

import collections
import errno
import http.client
import os
import shutil
import signal
import subprocess
import sys
import time
import types
import urllib.request

import _torl_imports

NO_PROCESSES = "there are no other programs and no shell here; do it in Python"
DISK_BYTES = 64 << 20  # the usual limit of a run's files
MEMORY_KIB = 192 << 10  # the least that a run has

_DiskUsage = collections.namedtuple("usage", "total used free", module="shutil")
_exit, _getpid = os._exit, os.getpid
_process_time = time.process_time
_CLOCK_START = 1000.0  # of the process's clock, which is the monotonic one


def system(command):
    raise OSError(errno.ENOTSUP, f"cannot run {command!r}: {NO_PROCESSES}")


def _popen(self, args, *options, **named):
    self.returncode = None
    raise OSError(errno.ENOTSUP, f"cannot run {args!r}: {NO_PROCESSES}")


def kill(pid, sig, /):
    """Send a signal to this process, the only one."""
    if pid not in (_getpid(), 0):
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    if sig == 0:
        return
    if signal.getsignal(sig) is signal.SIG_DFL:
        _exit(128 + sig)
    signal.raise_signal(sig)


_mask = 0o022


def umask(mask, /):
    """Set the current numeric umask and return the previous umask. It has no effect: files have no permissions."""
    global _mask
    before, _mask = _mask, mask & 0o777
    return before


def sched_getaffinity(pid, /):
    """Return the CPUs of the process."""
    return {0}


def sched_setaffinity(pid, mask, /):
    """Set the CPUs of the process. There is one."""
    if 0 not in mask:
        raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))


def getloadavg():
    """Return average recent system load information."""
    return (0.0, 0.0, 0.0)


def disk_usage(path):
    """Return disk usage statistics about the given path."""
    os.stat(path)
    return _DiskUsage(DISK_BYTES, 0, DISK_BYTES)


def _resource():
    """Return the module `resource`, whose limits are stored and have no effect."""
    module = types.ModuleType("resource", "Resource usage and limits of the only process. The limits have no effect.")
    names = "CPU FSIZE DATA STACK CORE RSS NPROC NOFILE MEMLOCK AS".split()
    limits = dict.fromkeys(range(len(names)), (-1, -1))
    fields = (
        "ru_utime ru_stime ru_maxrss ru_ixrss ru_idrss ru_isrss ru_minflt ru_majflt ru_nswap ru_inblock ru_oublock "
        "ru_msgsnd ru_msgrcv ru_nsignals ru_nvcsw ru_nivcsw"
    )
    usage = collections.namedtuple("struct_rusage", fields, module="resource")

    def getrusage(who, /):
        """Return the resource usage of the process."""
        return usage(_process_time() - _CLOCK_START, 0.0, MEMORY_KIB, *[0] * 13)

    def getrlimit(resource, /):
        """Return the current soft and hard limit."""
        if resource not in limits:
            raise ValueError("invalid resource specified")
        return limits[resource]

    def setrlimit(resource, new_limits, /):
        """Store a limit."""
        getrlimit(resource)
        soft, hard = new_limits
        if hard != -1 and (soft == -1 or soft > hard):
            raise ValueError("current limit exceeds maximum limit")
        limits[resource] = (soft, hard)

    def getpagesize():
        """Return the number of bytes in a system page."""
        return 4096

    for number, name in enumerate(names):
        setattr(module, f"RLIMIT_{name}", number)
    for function in (getrusage, getrlimit, setrlimit, getpagesize):
        function.__module__, function.__qualname__ = "resource", function.__name__
        setattr(module, function.__name__, function)
    constants = dict(RUSAGE_SELF=0, RUSAGE_CHILDREN=-1, RUSAGE_THREAD=1, RLIM_INFINITY=-1, error=OSError, struct_rusage=usage)
    vars(module).update(constants)
    return module


class HTTPSConnection(http.client.HTTPConnection):
    """A connection that fails as one by http does: when it looks up the host."""

    default_port = http.client.HTTPS_PORT

    def __init__(self, host, port=None, *, context=None, **options):
        super().__init__(host, port, **options)


class HTTPSHandler(urllib.request.AbstractHTTPHandler):
    def __init__(self, debuglevel=None, context=None, check_hostname=None):
        super().__init__(debuglevel)

    def https_open(self, request):
        return self.do_open(http.client.HTTPSConnection, request)

    https_request = urllib.request.AbstractHTTPHandler.do_request_


def pipe():
    raise OSError(errno.ENOTSUP, "there are no pipes here, because there is no other process; use queue.Queue or io")


def _execute_tqdm(module, execute):
    execute()
    # It would start a thread that never ends.
    module.tqdm.monitor_interval = 0


def _execute_tqdm_notebook(module, execute):
    """Import the bars of notebooks as bars of text: their widgets are not installed."""
    execute()
    bars = sys.modules["tqdm.std"]
    module.tqdm = module.tqdm_notebook = bars.tqdm
    module.trange = module.tnrange = bars.trange


def install():
    os.system, os.kill, os.umask, os.getloadavg, os.pipe = system, kill, umask, getloadavg, pipe
    os.sched_getaffinity, os.sched_setaffinity = sched_getaffinity, sched_setaffinity
    for name in ("getuid", "geteuid", "getgid", "getegid"):
        setattr(os, name, lambda: 1000)  # an ordinary user: root would be expected to change owners
    os.getppid = lambda: 1
    for name in ("getuid", "geteuid", "getgid", "getegid", "getppid"):
        getattr(os, name).__name__ = getattr(os, name).__qualname__ = name
    for function in (system, kill, umask, getloadavg, pipe, sched_getaffinity, sched_setaffinity):
        function.__module__ = "posix"
    shutil.disk_usage = disk_usage
    disk_usage.__module__ = "shutil"
    subprocess.Popen.__init__ = _popen
    for module, kind in ((http.client, HTTPSConnection), (urllib.request, HTTPSHandler)):
        kind.__module__ = module.__name__
        setattr(module, kind.__name__, kind)
    _torl_imports.Finder.modules |= {"tqdm.std": _execute_tqdm, "tqdm.notebook": _execute_tqdm_notebook}
    _torl_imports.Finder.made["resource"] = _resource
