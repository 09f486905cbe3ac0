"""The system around a program: time, alarms, errors and functions of a Linux machine, as natively or with an explanation."""

import subprocess
import sys
from collections.abc import Iterator

import pytest

from sandboxes import GUESTS, KEPT
from torl_sandbox import OutcomeStatus, SandboxPool
from torl_sandbox.notebook import Notebook


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(1, cpu_seconds=8, wall_seconds=90, **KEPT) as pool:
        yield pool


ALARM = """
import signal
class Late(Exception): pass
def ring(number, frame): raise Late(number)
signal.signal(signal.SIGALRM, ring)
"""
NATIVELY = {
    "random seeds that are floats": (
        "import random\nfor seed in (3.7, -0.5, 1e10, float('inf')):\n"
        "    random.seed(seed)\n    print(random.random(), random.Random(seed).random())"
    ),
    "error numbers": (
        "import errno, os\nfor path in ('nope', '/tmp', '/tmp/no/x'):\n"
        "    try: open(path)\n    except OSError as error: print(type(error), error, errno.errorcode[error.errno])\n"
        "try: os.listdir('nope')\nexcept OSError as error: print(error)\n"
        "try: os.mkdir('/tmp')\nexcept FileExistsError as error: print(error)\n"
        "try: 10.0 ** 400\nexcept OverflowError as error: print(error)\n"
        "print(OSError(2, 'x').__class__, OSError(errno.ENOTEMPTY, 'x').errno, os.strerror(36), os.strerror(2))"
    ),
    "square roots by a power": "import math\nprint(all((n * 1.1) ** 0.5 == math.sqrt(n * 1.1) for n in (4, 16, 25, 64)))",
    "an alarm in a computation": (
        f"{ALARM}signal.setitimer(signal.ITIMER_REAL, 0.2)\ntry:\n    n = 0\n    while True: n = (n * 3 + 1000) % 10007\n"
        "except Late as late: print(late)\nprint(signal.alarm(0))"
    ),
    "an alarm while waiting": (
        f"{ALARM}import time\nsignal.setitimer(signal.ITIMER_REAL, 0.2)\nstart = time.time()\n"
        "try: time.sleep(5)\nexcept Late: print(0.19 < time.time() - start < 4)\nprint(signal.getitimer(signal.ITIMER_REAL))"
    ),
    "an alarm that is cancelled or never reached": (
        f"{ALARM}import time\nprint(signal.alarm(3), signal.alarm(2), signal.alarm(0))\nsignal.alarm(60)\n"
        "time.sleep(0.01)\nprint(signal.alarm(0), sum(range(10**5)))"
    ),
    "a loop for a time": (
        "import time\nstart, rounds = time.time(), 0\nwhile time.time() - start < 0.5:\n"
        "    rounds += 1\n    sum(n * n for n in range(1000))\nprint(rounds > 20, time.time() - start < 10)"
    ),
    "a loop for a time in compiled code": (
        "import time, zlib\ndata, start = bytes(10**5), time.monotonic()\n"
        "while time.monotonic() - start < 1: zlib.crc32(data)\nprint('done')"
    ),
    "a timeout that an event loop does not reach": (
        "import asyncio\nasync def work():\n    for _ in range(3000): await asyncio.sleep(0)\n    return 'done'\n"
        "print(asyncio.run(asyncio.wait_for(work(), 5)))"
    ),
    "many digits": (
        "from decimal import *\ngetcontext().prec = 5000\nprint(Decimal(2).sqrt())\nprint(len(str(Decimal('1' * 5000) * 3)))\n"
        "try: str(10**5000)\nexcept ValueError: print('limited')"
    ),
    "digests of passwords": (
        "import hashlib\nprint(hashlib.pbkdf2_hmac('sha256', b'password', b'salt', 1000).hex())\n"
        "print(hashlib.scrypt(b'password', salt=b'salt', n=16, r=8, p=1).hex())"
    ),
    "questions to the system": (
        "import os, resource, shutil, signal\n"
        "print(os.getloadavg()[0] >= 0, 0 in os.sched_getaffinity(0) or True, os.getppid() >= 0, os.getuid() >= 0)\n"
        "print(os.umask(0o077) >= 0, oct(os.umask(0o022)), shutil.disk_usage('.').free > 0)\n"
        "os.kill(os.getpid(), 0)\nsignal.signal(signal.SIGUSR1, lambda *_: print('told'))\n"
        "os.kill(os.getpid(), signal.SIGUSR1)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_utime >= 0, resource.RLIMIT_AS)\n"
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); print(resource.getrlimit(resource.RLIMIT_CORE))"
    ),
}


@pytest.mark.parametrize("name", NATIVELY)
def test_program_prints_native_output(pool: SandboxPool, name: str) -> None:
    natively = subprocess.run([sys.executable, "-c", NATIVELY[name]], capture_output=True, text=True, timeout=60)
    assert natively.returncode == 0, natively.stderr
    outcome = pool.run(NATIVELY[name])
    assert (outcome.status, outcome.stdout, outcome.stderr) == (OutcomeStatus.OK, natively.stdout, "")


EXPLAINED = {
    "import urllib.request\nurllib.request.urlopen('https://example.com')": "there is no network here",
    "import http.client\nhttp.client.HTTPSConnection('example.com').request('GET', '/')": "there is no network here",
    "import subprocess\nsubprocess.run(['ls'])": "no other programs",
    "import os\nos.system('ls')": "no other programs",
    "import os\nos.popen('ls')": "no other programs",
    "import os\nos.pipe()": "no pipes here",
    "import socket\nsocket.socket()": "there is no network here",
    "import http.server\nhttp.server.HTTPServer(('', 8000), None)": "there is no network here",
    "import asyncio\nasyncio.run(asyncio.start_server(print, '127.0.0.1', 80))": "there is no network here",
    "import asyncio\nasyncio.run(asyncio.open_connection('127.0.0.1', 80))": "there is no network here",
    "from decimal import Decimal\nDecimal('abc')": "decimal.InvalidOperation: [<class 'decimal.ConversionSyntax'>]",
    "from decimal import Decimal\nDecimal(1) / 0": "decimal.DivisionByZero: [<class 'decimal.DivisionByZero'>]",
    "import hashlib\nhashlib.scrypt(b'', salt=b'', n=2**14, r=8, p=1)": "would take minutes",
    "eval('(' * 180 + ')' * 180)": "Parser stack overflowed",
    "import threading, time\nover = False\ndef work():\n    while not over: time.sleep(0.01)\n"
    "threading.Thread(target=work, daemon=True).start()": "without threads",
}


@pytest.mark.parametrize("code", EXPLAINED)
def test_impossible_request_is_an_error_with_its_reason(pool: SandboxPool, code: str) -> None:
    outcome = pool.run(code)
    assert outcome.status is OutcomeStatus.ERROR
    assert EXPLAINED[code] in str(outcome.exception_line)


def test_matplotlib_is_unpacked_although_functions_of_files_are_mocked(pool: SandboxPool) -> None:
    """Tests of programs mock them, and import matplotlib late."""
    code = (
        "from unittest import mock\n"
        "with mock.patch('os.makedirs') as makedirs:\n    import matplotlib.pyplot as plt\n"
        "plt.plot([1, 2])\nplt.title('$x$')\nplt.savefig('a.png')\nprint(open('a.png', 'rb').read(4), makedirs.mock_calls)"
    )
    assert pool.run(code).stdout.endswith("PNG' []\n")


def test_progress_bar_writes_only_its_bar(pool: SandboxPool) -> None:
    outcome = pool.run("from tqdm import tqdm\nprint([n for n in tqdm(range(3))])")
    assert (outcome.status, outcome.stdout) == (OutcomeStatus.OK, "[0, 1, 2]\n")
    assert "Warning" not in outcome.stderr
    assert "thread" not in outcome.stderr


@pytest.mark.parametrize("work", ["time.sleep(5)", "while time.time() < start + 3: object()", "signal.pause()"])
def test_ended_alarm_ends_the_program_without_a_handler(pool: SandboxPool, work: str) -> None:
    code = f"import signal, time\nstart = time.time()\nsignal.alarm(1)\n{{}}\n{work}\nprint('never')"
    handled = "signal.signal(signal.SIGALRM, signal.signal(signal.SIGALRM, lambda *_: print('rung')))"
    for before in ("", handled):
        outcome = pool.run(code.format(before))
        assert (outcome.status, outcome.stdout) == (OutcomeStatus.ERROR, "")


TIMED = """
import asyncio, signal, threading, time
start, rung = time.monotonic(), []
def passed(): return round(time.monotonic() - start, 1)
def late(*_): raise TimeoutError
def compute(until):
    while time.monotonic() < start + until: object()
signal.signal(signal.SIGALRM, lambda *_: rung.append(passed()))
"""
EVERY_SECOND = "signal.setitimer(signal.ITIMER_REAL, 1, 1)\n"
# Programs, and the times at which Linux sends them its signal.
RUNG = {
    f"{EVERY_SECOND}for _ in range(5): time.sleep(1)\ntime.sleep(0.5)": [1.0, 2.0, 3.0, 4.0, 5.0],
    f"{EVERY_SECOND}time.sleep(3.5)": [1.0, 2.0, 3.0],
    f"{EVERY_SECOND}compute(1.2)\ntime.sleep(0.1)\ntime.sleep(2)": [1.0, 2.0, 3.0],
    f"{EVERY_SECOND}compute(1.2)\nsignal.pause()\nprint(passed())\nsignal.alarm(0)": [1.0, 2.0],
    f"{EVERY_SECOND}asyncio.run(asyncio.sleep(2.5))": [1.0, 2.0],
    f"{EVERY_SECOND}threading.Event().wait(2.5)": [1.0, 2.0],
    "signal.alarm(1)\ncompute(1.5)\nsignal.alarm(2)\nsignal.pause()\ntime.sleep(5)": [1.0, 3.5],
    "signal.alarm(1)\nthreading.Timer(2, lambda: rung.append('timer')).start()\ntime.sleep(3)": [1.0, "timer"],
}


@pytest.mark.parametrize("program", RUNG)
def test_alarms_arrive_once_at_their_time(pool: SandboxPool, program: str) -> None:
    outcome = pool.run(f"{TIMED}{program}\nprint(rung)")
    assert outcome.stdout.splitlines()[-1:] == [str(RUNG[program])], outcome
    session = pool.session()
    session.run(TIMED)
    assert session.run(f"{program}\nprint(rung)").stdout == outcome.stdout


def test_alarm_arrives_again_after_its_handler_raised(pool: SandboxPool) -> None:
    caught = "    try: time.sleep(5)\n    except TimeoutError: rung.append(passed())\n"
    raising = f"{TIMED}signal.signal(signal.SIGALRM, late)\n{EVERY_SECOND}"
    outcome = pool.run(f"{raising}for _ in range(4):\n{caught}signal.alarm(0)\nprint(rung)")
    assert outcome.stdout == "[1.0, 2.0, 3.0, 4.0]\n", outcome


def test_alarm_that_arrived_in_a_computation_ends_no_later_wait(pool: SandboxPool) -> None:
    """As in programs that bound the time of a call: the handler of before, which would end the program, is set again."""
    code = (
        f"{TIMED}before = signal.SIG_DFL\nsignal.signal(signal.SIGALRM, late)\nsignal.alarm(1)\n"
        "try: compute(3)\nexcept TimeoutError: print(passed())\n"
        "signal.signal(signal.SIGALRM, before)\ntime.sleep(2)\nprint('done')"
    )
    assert pool.run(code).stdout == "1.0\ndone\n"


def test_alarm_does_not_reach_a_later_run(pool: SandboxPool) -> None:
    assert pool.run("import signal\nsignal.alarm(1)").ok
    later = "import signal\nsignal.signal(signal.SIGALRM, lambda *_: print('rung'))\n"
    work = "n = 0\nfor _ in range(2 * 10**6): n = (n * 3 + 1000) % 10007\nprint(n)"
    assert pool.run(later + work).stdout == pool.run(work).stdout


def test_forged_report_of_success_has_no_exception(pool: SandboxPool) -> None:
    report = r"b'\2' + 2 * b'\x0b\0\0\0MemoryError' + bytes(4)"
    outcome = pool.run(f"import os\nos.write(1001, {report})\nos._exit(0)")
    assert (outcome.status, outcome.exception_line) == (OutcomeStatus.OK, None)


CLOCKS = """
import asyncio, time
import numpy as np
def times(): return time.time_ns(), time.monotonic_ns(), time.perf_counter_ns(), time.process_time_ns()
print(times())
for _ in range(400): times()
text = {str(n): [n] * 3 for n in range(2000)}
print(times(), time.process_time() > 0)
asyncio.run(asyncio.sleep(0.1))
np.linalg.svd(np.ones((30, 30)))
print(times())
"""


@pytest.mark.parametrize("guest", GUESTS)
def test_clocks_are_equal_in_equal_runs(guest: dict[str, bool]) -> None:
    with SandboxPool(1, **guest) as pool:
        seen = set()
        for number in range(100 if guest == KEPT else 10):
            outcome = pool.run(CLOCKS, seed=1)
            assert outcome.ok, outcome.stderr
            seen.add(outcome.stdout)
            pool.run(f"x = [object() for _ in range({number * 1000})]\nimport signal; signal.alarm(3)")
        assert len(seen) == 1


def test_clocks_never_go_back_and_show_the_work_done(pool: SandboxPool) -> None:
    code = (
        "import time\ntimes = [time.perf_counter() for _ in range(3000)]\nassert times == sorted(times)\n"
        "start = time.perf_counter()\nsorted(str(n) for n in range(10**5))\nprint(time.perf_counter() - start)"
    )
    assert 0.002 < float(pool.run(code).stdout) < 0.5


CELLS = [
    ("import asyncio\nasync def f(x):\n    await asyncio.sleep(1)\n    return x\nawait f(6) * 7", "", "42"),
    ("task = asyncio.create_task(f(7))\nprint(await f(8))", "8\n", None),
    ("await task", "", "7"),
    ("from IPython.display import display, Math\ndisplay(Math('x'))", "<IPython.core.display.Math object>\n", None),
    ("from IPython import get_ipython\nget_ipython() is None", "", "True"),
    ("from tqdm.notebook import tqdm\nsum(tqdm([1, 2]))", "", "3"),
]


def test_cells_with_await_and_modules_of_notebooks(pool: SandboxPool) -> None:
    notebook = Notebook(pool.session())
    for cell, stdout, value in CELLS:
        outcome = notebook.run(cell)
        assert outcome.ok, outcome.stderr
        assert (outcome.stdout, outcome.value) == (stdout, value)


def test_await_belongs_to_cells_only(pool: SandboxPool) -> None:
    assert pool.run("import asyncio\nawait asyncio.sleep(0)").exception_line == "SyntaxError: 'await' outside function"
