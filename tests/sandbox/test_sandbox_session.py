"""Sessions: what one part leaves, the next one finds; forks, limits, and parts that are stopped."""

import asyncio
import code as interactive
import contextlib
import io
import os
import signal
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest

from sandboxes import GUESTS, OVERSHOOT_SECONDS
from torl_sandbox import OutcomeStatus, SandboxPool, _core
from torl_sandbox.options import core_arguments

PARTS = [
    "x = 41",
    "def f(n):\n    return n + x\nprint(f(1))",
    "import collections\ncounter = collections.Counter('abracadabra')\nprint(counter.most_common(2))",
    "x += 1\nprint(f(1), counter['a'])",
    "class Point:\n    def __init__(self, x):\n        self.x = x\np = Point(3)",
    "print(p.x, [f(i) for i in range(3)])",
    "1 / 0",
    "print(x, 'after an error')",
    "y = (",
    "values = list(range(10**5))\nprint(sum(values))",
    "print(len(values), values[-1])\ndel values",
    "from sympy import symbols, solve\nt = symbols('t')\ne = t**2 - 2",
    "print(solve(e, t), e.diff(t))",
    "import numpy as np\na = np.arange(6).reshape(2, 3)",
    "print(a @ a.T)",
    "def g():\n    yield from (1, 2, 3)\nh = g()\nprint(next(h))",
    "print(next(h), next(h))",
]


@pytest.fixture(scope="module", params=GUESTS)
def pool(request: pytest.FixtureRequest) -> Iterator[SandboxPool]:
    with SandboxPool(2, cpu_seconds=3, memory_bytes=512 << 20, **request.param) as pool:
        yield pool


def natively(parts: list[str]) -> list[str]:
    """CPython's output when the parts run one after the other in one namespace; nothing for a part that raises."""
    console = interactive.InteractiveInterpreter({"__name__": "__main__"})
    printed = []
    for part in parts:
        output = io.StringIO()
        silent = contextlib.redirect_stderr(io.StringIO())
        with contextlib.redirect_stdout(output), silent, contextlib.suppress(SyntaxError):
            console.runcode(compile(part, "part", "exec"))
        printed.append(output.getvalue())
    return printed


def test_parts_go_on_from_each_other(pool: SandboxPool) -> None:
    pytest.importorskip("sympy", reason="natively the parts need sympy as well")
    session = pool.session()
    assert [session.run(part).stdout for part in PARTS] == natively(PARTS)
    assert 0 < session.state_bytes < 32 << 20


def test_a_session_sees_nothing_of_others(pool: SandboxPool) -> None:
    one, other = pool.session(), pool.session()
    one.run("secret = 1")
    assert other.run("print('secret' in globals())").stdout == "False\n"
    assert pool.run("print('secret' in globals())").stdout == "False\n"
    assert one.run("print(secret)").stdout == "1\n"


def test_many_sessions_take_turns_on_few_workers(pool: SandboxPool) -> None:
    sessions = [pool.session(seed=i) for i in range(20)]
    order = [i for i in range(20) for _ in range(5)]
    Random(0).shuffle(order)
    seen: dict[int, list[str]] = {i: [] for i in range(20)}
    for i in order:
        seen[i].append(sessions[i].run(f"n = globals().get('n', {i}) + 1\nprint(n)").stdout)
    assert seen == {i: [f"{i + k}\n" for k in range(1, 6)] for i in range(20)}


def test_a_fork_goes_its_own_way(pool: SandboxPool) -> None:
    parent = pool.session()
    parent.run("items = [1]")
    children = [parent.fork() for _ in range(3)]
    for index, child in enumerate(children):
        child.run(f"items.append({index})")
    assert [child.run("print(items)").stdout for child in children] == [f"[1, {i}]\n" for i in range(3)]
    assert parent.run("print(items)").stdout == "[1]\n"
    assert children[0].fork().run("print(items)").stdout == "[1, 0]\n"


@pytest.mark.parametrize(
    ("code", "status", "y"),
    [
        ("while True: y = 3", OutcomeStatus.TIMEOUT, 3),
        ("if True:\n    y = 3\n    sum(range(10**18))", OutcomeStatus.TIMEOUT, 1),
        ("y = 3; sum(range(10**18))", OutcomeStatus.TIMEOUT, 3),
        ("y = 3; print('x' * 10**7)", OutcomeStatus.OUTPUT_LIMIT, 3),
        ("if True:\n    import os\n    y = 3\n    os._exit(0)", OutcomeStatus.OK, 1),
        ("y = 3; __import__('os').abort()", OutcomeStatus.CRASH, 3),
    ],
)
def test_stopped_cell_keeps_complete_statements_and_interruptible_loops(
    pool: SandboxPool, code: str, status: OutcomeStatus, y: int
) -> None:
    session = pool.session()
    session.run("x = [1]\ny = 1")
    outcome = session.run(
        f"import random, textwrap\nx.append(random.random())  # ü\nopen('a', 'w').close()\n{code}\ny = 4",
        cpu_seconds=0.3,
    )
    assert (outcome.status, outcome.stderr, outcome.exception_line) == (status, "", None)
    after = session.run("import os\nprint(x, y, os.listdir(), textwrap.dedent(' a'), random.random())")
    draws = Random(0)
    assert after.stdout == f"[1, {draws.random()}] {y} ['a'] a {draws.random()}\n"


def test_uninterruptible_first_statement_leaves_the_session_unchanged(
    pool: SandboxPool,
) -> None:
    session = pool.session()
    session.run("x = 1")
    assert session.run("x = sum(range(10**18))", cpu_seconds=0.2).status is OutcomeStatus.TIMEOUT
    assert session.run("print(x)").stdout == "1\n"


def test_a_stopped_part_takes_its_input_once(pool: SandboxPool) -> None:
    session = pool.session()
    outcome = session.run(
        "a = input()\nprint(a)\nsum(range(10**18))", stdin="text\nmore", files={"f": "1"}, cpu_seconds=0.2
    )
    assert (outcome.status, outcome.stdout) == (OutcomeStatus.TIMEOUT, "text\n")
    assert session.run("print(a, open('f').read())").stdout == "text 1\n"


def test_a_part_that_ends_its_worker_keeps_its_complete_statements(pool: SandboxPool) -> None:
    session = pool.session()
    before = pool.stats()["workers_replaced"]
    stuck = "from scipy.special import eval_legendre\nprint(input())\neval_legendre(2**31 - 1, 0.5)\nb = 2"
    outcome = session.run("a = input()\n" + stuck, stdin="text\nmore", files={"f": "1"}, cpu_seconds=2)
    assert (outcome.status, outcome.stdout) == (OutcomeStatus.TIMEOUT, "more\n")
    assert pool.stats()["workers_replaced"] == before + 1, "the part was stopped without its worker"
    assert 2 < session.cpu_seconds == outcome.cpu_seconds < 2 + OVERSHOOT_SECONDS
    assert session.run("print(a, open('f').read(), 'b' in globals())").stdout == "text 1 False\n"
    # Without a complete statement, the session stays as it was.
    outcome = asyncio.run(session.run_async("eval_legendre(2**31 - 1, 0.5)", cpu_seconds=0.2))
    assert outcome.status is OutcomeStatus.TIMEOUT
    assert session.run("print(a)").stdout == "text\n"


STATEMENTS = [
    "'''A docstring.'''\nx = 1\n'no docstring'\nprint(__doc__, x)",
    "from __future__ import annotations\ndef f(a: unknown) -> unknown: pass\nprint(f.__annotations__)",
    "x: int = 1\nif x:\n    y: str = ''\nprint(sorted(__annotations__))",
    "a = 1; b = 2; print(a + b)\r\nprint('crlf')\r\n",
    "print(1)\nreturn 2",
    "print(1)\nx = 1\nglobal x",
    "print(1)\nnonlocal z",
    "class A:\n    def f(self): return super().__init__, __name__\nprint(A().f()[1], A)",
    "# -*- coding: utf-8 -*-\nx = 1\nprint(x)",
    "\ufeffx = 'ü'\nprint(x)",
    "x = 1\nif x is 1:\n    print(x is 1)\nassert (x, 'never')\nx is 2",
    "import warnings\nfor i in range(3):\n    warnings.warn('again')\nx = '\\d'\nx is 1\nwarnings.filters\nwarnings.warn('more')",
    "import warnings\ndel warnings.filters\nx = 1\nx is 1",
]


@pytest.mark.parametrize("code", STATEMENTS)
def test_program_in_session_behaves_as_alone(pool: SandboxPool, code: str) -> None:
    alone, part = pool.run(code), pool.session().run(code)
    assert (part.status, part.stdout, part.exception_line) == (alone.status, alone.stdout, alone.exception_line)
    assert part.stderr == alone.stderr
    last = pool.session().run(code + "\n6 * 7", value=True)
    assert last.value == ("42" if alone.ok else None)


@pytest.mark.parametrize("code", ["x = 2\n1 / 0", "x = 2\nraise SystemExit(3)", "x = 2\nraise MemoryError"])
def test_exception_keeps_earlier_effects(pool: SandboxPool, code: str) -> None:
    session = pool.session()
    session.run("x = 1")
    assert not session.run(code).ok
    assert session.run("print(x)").stdout == "2\n"


def test_memory_that_grew_comes_along(pool: SandboxPool) -> None:
    session = pool.session()
    assert session.run("big = bytes(range(256)) * 400_000\nempty = bytearray(50_000_000)").ok
    outcome = session.run("empty[-1] = 7\nprint(len(big), big[-1], sum(empty))")
    assert outcome.stdout == "102400000 255 7\n"
    assert session.run("print(empty[-1], big[256 * 1000 + 3])").stdout == "7 3\n"
    assert session.state_bytes < 150 << 20
    assert pool.run("print(1)").ok


def test_clock_and_randomness_go_on(pool: SandboxPool) -> None:
    whole = (
        "import random, time, os\nprint(random.random())\nprint(random.random())\nprint(os.urandom(2) != os.urandom(2))"
    )
    session = pool.session(seed=5)
    parts = "".join(session.run(part).stdout for part in whole.splitlines())
    assert parts == pool.run(whole, seed=5).stdout
    first = float(session.run("print(time.time())").stdout)
    session.run("time.sleep(100)")
    assert 100 < float(session.run("print(time.time())").stdout) - first < 101


def test_tracebacks_show_the_part_they_come_from(pool: SandboxPool) -> None:
    session = pool.session()
    session.run("def f():\n    return 1 / 0")
    assert (session.run("x = 1\nf()").traceback or "").splitlines() == [
        "Traceback (most recent call last):",
        '  File "main_2.py", line 2, in <module>',
        "    f()",
        "    ~^^",
        '  File "main.py", line 2, in f',
        "    return 1 / 0",
        "           ~~^~~",
        "ZeroDivisionError: division by zero",
    ]


def test_the_limit_of_a_session_counts_all_its_parts(pool: SandboxPool) -> None:
    session = pool.session(cpu_seconds=0.3)
    child = session.fork()
    assert session.run("x = 1").ok
    assert session.run("while True: pass").status is OutcomeStatus.TIMEOUT
    assert 0.3 <= session.cpu_seconds < 0.3 + OVERSHOOT_SECONDS
    assert session.run("print(1)").status is OutcomeStatus.TIMEOUT
    assert session.fork().run("print(1)").status is OutcomeStatus.TIMEOUT
    assert child.run("print(1)").ok
    with pytest.raises(ValueError, match="cpu_seconds"):
        pool.session(cpu_seconds=0)


def test_a_session_outlives_its_workers(pool: SandboxPool) -> None:
    session = pool.session()
    session.run("x = 1")
    for pid in pool.processes():
        os.kill(pid, signal.SIGKILL)
    assert session.run("print(x)").stdout == "1\n"


def test_equal_sessions_are_equal(pool: SandboxPool) -> None:
    def play() -> list[tuple[str, str, int]]:
        session = pool.session(seed=3)
        outcomes = [(session.run(part), session.state_bytes) for part in [*PARTS, "print(id(object()), hash('a'))"]]
        return [(outcome.stdout, outcome.stderr, size) for outcome, size in outcomes]

    assert play() == play()


def test_sessions_for_coroutines(pool: SandboxPool) -> None:
    async def episode(i: int) -> list[str]:
        session = pool.session(seed=i)
        await session.run_async(f"total = {i}")
        return [(await session.run_async("total *= 2\nprint(total)")).stdout for _ in range(3)]

    async def main() -> list[list[str]]:
        return await asyncio.gather(*(episode(i) for i in range(10)))

    assert asyncio.run(main()) == [[f"{i * 2**k}\n" for k in (1, 2, 3)] for i in range(10)]


def test_one_part_at_a_time(pool: SandboxPool) -> None:
    async def main() -> None:
        session = pool.session()
        running = asyncio.create_task(session.run_async("while True: pass"))
        await asyncio.sleep(0.1)
        with pytest.raises(RuntimeError, match="one part at a time"):
            session.run("print(1)")
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        assert (await session.run_async("print(1)")).ok

    asyncio.run(main())


def test_files_stay_from_part_to_part_and_input_does_not(pool: SandboxPool) -> None:
    session = pool.session()
    session.run("import os\nf = open('log', 'w')\nprint('one', file=f)", files={"data/a.csv": "1,2"}, stdin="x")
    outcome = session.run(
        "print('two', file=f)\nf.flush()\nprint(open('log').read().split(), os.listdir('data'), open('b').read())",
        files={"b": b"three"},
        return_files=True,
    )
    assert outcome.stdout == "['one', 'two'] ['a.csv'] three\n"
    assert dict(outcome.files) == {"log": b"one\ntwo\n"}
    assert session.run("input()").exception_type == "EOFError"
    assert session.run("len(os.listdir())", value=True).value == "3"
    assert session.fork().run("os.remove('b')\nprint(sorted(os.listdir()))").stdout == "['data', 'log']\n"
    assert session.run("print(sorted(os.listdir()))").stdout == "['b', 'data', 'log']\n"


def test_unread_input_of_a_cell_does_not_reach_the_next(pool: SandboxPool) -> None:
    session = pool.session()
    session.run("import sys\na = input()", stdin="secret1\nsecret2\n")
    assert session.run("print(input(), sys.stdin.read())", stdin="new\nrest").stdout == "new rest\n"
    assert session.run("input()").exception_type == "EOFError"
    session.run("sys.stdin.buffer.read(1)", stdin=b"\xff\xfe" * 5000)
    assert session.run("print(sys.stdin.read())", stdin="π").stdout == "π\n"
    session.run("sys.stdin.close()")
    assert session.run("print(input())", stdin="open").stdout == "open\n"


def test_replaced_input_function_persists(pool: SandboxPool) -> None:
    session = pool.session()
    session.run("import io, sys\nsys.stdin = io.StringIO('a\\nb\\n')\nprint(input())", stdin="x")
    assert session.run("print(input())", stdin="y").stdout == "b\n"


def test_session_without_its_directory_rejects_files_and_continues(pool: SandboxPool) -> None:
    session = pool.session()
    session.run("x = 1\nimport os\nos.chdir('/')\nos.rmdir('/work')\nopen('/work', 'w').close()")
    outcome = session.run("x = 2", files={"a": b"1"})
    assert (outcome.status, outcome.exception_type) == (OutcomeStatus.ERROR, "OSError")
    assert session.run("print(x, os.listdir('/'))").stdout.startswith("1 [")
    assert pool.run("print(open('a').read())", files={"a": "fine"}).stdout == "fine\n"


def test_session_continues_after_sleeping_to_the_end_of_time(pool: SandboxPool) -> None:
    session = pool.session()
    for _ in range(3):
        assert session.run("import time\ntime.sleep(4e9)\ntime.time()").ok
    assert session.run("print(time.monotonic() > 4.6e9)").stdout == "True\n"


def test_a_state_that_is_too_large_is_an_outcome_and_undone(capfd: pytest.CaptureFixture[str]) -> None:
    with SandboxPool(1, memory_bytes=2 << 30, cpu_seconds=60, wall_seconds=300) as pool:
        session = pool.session()
        session.run("kept = 'small'")
        outcome = session.run("print('done')\nkept = b'x' * (1100 << 20)")
        assert (outcome.status, outcome.stdout, outcome.exception_type) == (
            OutcomeStatus.MEMORY,
            "done\n",
            "MemoryError",
        )
        assert outcome.exception_line is not None
        assert outcome.exception_line.startswith("MemoryError: the session would keep more than 10")
        assert session.run("print(kept)").stdout == "small\n"
        assert pool.stats()["workers_replaced"] == 0
    assert capfd.readouterr() == ("", "")


def test_cell_with_a_killed_worker_counts_its_cpu_time() -> None:
    with SandboxPool(1, cpu_seconds=60) as pool:
        session = pool.session(cpu_seconds=100)
        with ThreadPoolExecutor() as executor:
            part = executor.submit(session.run, "while True: pass")
            while not part.done():
                time.sleep(0.3)
                for pid in pool.processes():
                    os.kill(pid, signal.SIGKILL)
        assert part.result().status is OutcomeStatus.CRASH
        assert 0 < part.result().cpu_seconds == session.cpu_seconds


def test_file_position_of_any_size_persists(pool: SandboxPool) -> None:
    session = pool.session()
    session.run("f = open('log', 'w+')\nf.seek(1 << 62)\ng = open('log')\ng.seek((1 << 63) - 1)")
    assert session.run("print(f.tell() - (1 << 62), g.tell() - (1 << 63), g.read())").stdout == "0 -1 \n"


@pytest.mark.parametrize("guest", GUESTS)
def test_state_that_does_not_load_is_that_sessions_crash(guest: Mapping[str, Any]) -> None:
    """Its files exceed the limit of the next part, which no pool allows: the state is damaged for that part."""
    with SandboxPool(1, **guest) as pool:
        session = pool.session()
        session.run("x = 1\nopen('a', 'w').write('x' * 1000)")
        inputs = core_arguments({})
        small = _core.SandboxLimits(files_bytes=10)
        outcome = pool._core.run(_core.SandboxRequest(b"print(x)", inputs, small, session._state))
        assert (outcome.status, outcome.stdout, outcome.state) == ("crash", "", None)
        assert outcome.stderr.startswith("the state of a sandbox session is damaged: ")
        assert pool.run("print(2)").stdout == "2\n"
        assert session.run("print(x)").stdout == "1\n"
        assert pool.stats()["workers_replaced"] == 0


# Overwrites the allocator's free list and bitmap when the driver flushes the output at the end: the next allocation,
# which the host makes before the next part, takes an address outside of the memory.
DAMAGED_ALLOCATOR = """
import numpy as np, sys
a = np.zeros(8, np.uint32)
address = a.__array_interface__['data'][0]
memory = np.lib.stride_tricks.as_strided(a, shape=(address // 4,), strides=(-4,))[::-1]
offset = address - 4 * (address // 4 - 1)
bitmap, first = (0x1ac33d8 - offset) // 4, (0x1ac3418 - offset) // 4
damaged = int(memory[bitmap]) | 4
class Output:
    def write(self, text): pass
    def flush(self):
        memory[first] = 0xFFFFFFF0
        memory[bitmap] = damaged
sys.stdout = Output()
"""


def test_session_with_a_damaged_allocator_harms_only_itself(pool: SandboxPool) -> None:
    session = pool.session()
    assert session.run(DAMAGED_ALLOCATOR).ok
    for _ in range(2):
        outcome = session.run("print(1)")
        assert (outcome.status, session.parts) == (OutcomeStatus.CRASH, 1)
    assert pool.run("print(2)").stdout == "2\n"


def test_session_without_standard_streams_continues(pool: SandboxPool) -> None:
    session = pool.session()
    assert session.run("import os, sys\nos.close(0)").ok
    assert session.run("print(1)").stdout == "1\n"
    assert session.run("input()", stdin="x").exception_type == "OSError"
    session.run("del sys.stdin")
    assert session.run("print(2)").stdout == "2\n"
    for change in ("sys.stdout = None", "sys.stdout.close()"):
        session = pool.session()
        outcomes = [session.run(part) for part in (f"import sys\n{change}", "x = 1", "sys.stdout = sys.__stdout__")]
        assert [(outcome.status, outcome.stderr) for outcome in outcomes] == [(OutcomeStatus.OK, "")] * 3, change
    assert pool.run("import sys\nsys.stdout = None\nprint(1)").stderr == ""


ALARM = (
    "import signal, time\ndef late(*_): rung.append(time.monotonic() - start)\nrung = []\nstart = time.monotonic()\n"
)


@pytest.mark.parametrize(
    ("timer", "part", "rung"),
    [
        ("signal.setitimer(signal.ITIMER_REAL, 0.05)", "for _ in range(3 * 10**6): object()", [0]),
        ("signal.alarm(1)", "while time.monotonic() - start < 3: pass", [1]),
        ("signal.alarm(1)", "time.sleep(5)", [1]),
        ("signal.alarm(1); signal.alarm(0)", "time.sleep(5)", []),
    ],
)
def test_alarm_of_a_part_arrives_in_a_later_one(pool: SandboxPool, timer: str, part: str, rung: list[int]) -> None:
    session = pool.session()
    session.run(f"{ALARM}signal.signal(signal.SIGALRM, late)\n{timer}")
    assert session.run("x = 1").ok
    seen = session.run(f"{part}\nprint([round(at) for at in rung])", cpu_seconds=3)
    assert seen.stdout == f"{rung}\n", seen
    session = pool.session()
    session.run("import signal, time\nsignal.alarm(1)")
    ended = session.run("time.sleep(5)\nprint('never')")
    assert (ended.status, ended.stdout) == (OutcomeStatus.ERROR, "")
