"""asyncio, threads and processes in an interpreter that has one thread: what natively prints one thing prints it here too.

Programs that cannot, because a thread waits for what its starter would do later, fail at once with an explanation.
"""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sandboxes import KEPT
from torl_sandbox import OutcomeStatus, SandboxPool

PROGRAMS = {
    f"{file.stem}: {name}": code
    for file in sorted((Path(__file__).parent / "programs").glob("*.py"))
    for name, _, code in (part.partition("\n") for part in re.split(r"(?m)^# %% ", file.read_text())[1:])
}


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(1, cpu_seconds=5, wall_seconds=60, **KEPT) as pool:
        yield pool


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_prints_native_output(pool: SandboxPool, name: str) -> None:
    natively = subprocess.run([sys.executable, "-c", PROGRAMS[name]], capture_output=True, text=True, timeout=60)
    assert natively.returncode == 0, natively.stderr
    outcome = pool.run(PROGRAMS[name])
    assert (outcome.status, outcome.stdout) == (OutcomeStatus.OK, natively.stdout), outcome.stderr


STUCK = {
    "a consumer before its producer": (
        "import queue, threading\nq = queue.Queue()\nthreading.Thread(target=q.get).start()\nprint('never')\nq.put(1)"
    ),
    "an event that is set later": (
        "import threading\ne = threading.Event()\nthreading.Thread(target=e.wait).start()\nprint('never')\ne.set()"
    ),
    "an event that is looked at again and again": (
        "import threading\ne = threading.Event()\ndef work():\n    while not e.wait(1): pass\n"
        "threading.Thread(target=work).start()\nprint('never')\ne.set()"
    ),
    "a barrier for two": (
        "import threading\nb = threading.Barrier(2)\nfor _ in range(2): threading.Thread(target=b.wait).start()\n"
        "print('never')"
    ),
    "a lock that the starter holds": (
        "import threading\nl = threading.Lock()\ndef work():\n    with l: pass\n"
        "with l: threading.Thread(target=work).start()\nprint('never')"
    ),
    "a pool's thread that waits for the next piece of work": (
        "import queue\nfrom concurrent.futures import ThreadPoolExecutor\nq = queue.Queue()\n"
        "with ThreadPoolExecutor(2) as pool: pool.submit(q.get), pool.submit(q.put, 1)\nprint('never')"
    ),
    "a process that waits for its parent": (
        "from multiprocessing import Process, Queue\nq = Queue()\nProcess(target=q.get).start()\nprint('never')\nq.put(1)"
    ),
    "an item for a thread that gave up waiting": (
        "import queue, threading\nq = queue.Queue()\ndef work():\n    try: q.get(timeout=1)\n    except queue.Empty: pass\n"
        "threading.Thread(target=work).start()\nq.put(1)\nprint('never')"
    ),
    "the main thread, for nothing": "import threading\nthreading.Event().wait()\nprint('never')",
    "a queue that stays empty": "import queue\nqueue.SimpleQueue().get()\nprint('never')",
    "a lock taken twice": "import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()\nprint('never')",
    "a future that nobody fulfils": "import concurrent.futures\nconcurrent.futures.Future().result()\nprint('never')",
    "a coroutine that nobody wakes": (
        "import asyncio\nasync def main(): await asyncio.Event().wait()\nasyncio.run(main())\nprint('never')"
    ),
    "an event loop that runs forever in a thread": (
        "import asyncio, threading\nloop = asyncio.new_event_loop()\n"
        "threading.Thread(target=loop.run_forever, daemon=True).start()\nprint('never')"
    ),
}


@pytest.mark.parametrize("name", STUCK)
def test_a_wait_that_nothing_can_end_raises_at_once(pool: SandboxPool, name: str) -> None:
    outcome = pool.run(STUCK[name])
    assert (outcome.status, outcome.exception_type, outcome.stdout) == (OutcomeStatus.ERROR, "RuntimeError", "")
    assert re.search("one thread at a time|nothing is scheduled", outcome.exception_line or "")


@pytest.mark.parametrize(
    ("code", "exception"),
    [
        ("import subprocess\nsubprocess.run(['ls'])", "OSError"),
        ("import asyncio\nasync def main():\n    await asyncio.create_subprocess_exec('ls')\nasyncio.run(main())", "*"),
        (
            "import asyncio\nasync def main():\n    await asyncio.create_subprocess_shell('ls')\nasyncio.run(main())",
            "*",
        ),
        ("import socket\nsocket.create_connection(('example.org', 80))", "gaierror"),
        ("import asyncio\nasyncio.run(asyncio.open_connection('example.org', 80))", "gaierror"),
        ("import asyncio\nasyncio.run(asyncio.start_server(print, '127.0.0.1', 80))", "OSError"),
        ("import urllib.request\nurllib.request.urlopen('http://example.org')", "URLError"),
    ],
)
def test_processes_and_sockets_raise_at_once(pool: SandboxPool, code: str, exception: str) -> None:
    outcome = pool.run(code)
    assert outcome.status is OutcomeStatus.ERROR
    assert exception in ("*", outcome.exception_type)


def test_joblib_runs_jobs_one_after_the_other(pool: SandboxPool) -> None:
    code = "from joblib import Parallel, delayed\nprint(Parallel(n_jobs={})(delayed(pow)(i, 2) for i in range(5)))"
    for jobs in ("2", "-1", "2, backend='threading'", "2, backend='multiprocessing'"):
        assert pool.run(code.format(jobs)).stdout == "[0, 1, 4, 9, 16]\n"


def test_a_timer_of_a_session_goes_off_when_a_later_part_waits(pool: SandboxPool) -> None:
    session = pool.session()
    assert (
        session.run("import threading, time\nthreading.Timer(5, print, ['off']).start()\nprint('set')").stdout
        == "set\n"
    )
    assert session.run("print(1)").stdout == "1\n"
    assert session.run("time.sleep(10)\nprint(2)").stdout == "off\n2\n"


def test_a_stuck_part_of_a_session_leaves_the_next_one_free(pool: SandboxPool) -> None:
    session = pool.session()
    assert not session.run("import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()").ok
    assert (
        session.run("import asyncio\nasync def f(): return 1\nprint(asyncio.run(f()), l.locked())").stdout == "1 True\n"
    )
