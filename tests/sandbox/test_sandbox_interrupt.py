"""Parts of a session whose time is over: interrupted like the cell of a notebook, and ended if they continue."""

from collections.abc import Iterator
from random import Random

import pytest

from sandboxes import OVERSHOOT_SECONDS
from torl_sandbox import OutcomeStatus, SandboxPool


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(2, memory_bytes=512 << 20) as pool:
        yield pool


INTERRUPTED = [
    ("while True: items.append(len(items))", ""),
    ("def f(n):\n    return f(n - 1) if n else items.append(len(items))\nwhile True: f(300)", ""),
    ("def g():\n    while True: yield items.append(len(items))\nfor _ in g(): pass", ""),
    ("import numpy\nwhile True: items.append(int(numpy.full(100, len(items)).max()))", ""),
    (
        "import asyncio\nasync def f():\n    while True: items.append(len(items)); await asyncio.sleep(0)\nasyncio.run(f())",
        "",
    ),
    ("try:\n    while True: items.append(len(items))\nfinally: print(1)", "1\n"),
    ("try:\n    while True: items.append(len(items))\nexcept KeyboardInterrupt: print(2)", "2\n"),
]


@pytest.mark.parametrize(("code", "printed"), INTERRUPTED)
def test_interrupted_loop_keeps_its_effects_as_in_a_notebook(pool: SandboxPool, code: str, printed: str) -> None:
    session = pool.session()
    session.run("items = []")
    outcome = session.run(f"import sys\nprint('told', file=sys.stderr)\n{code}", cpu_seconds=0.1)
    assert (outcome.status, outcome.stdout, outcome.stderr) == (OutcomeStatus.TIMEOUT, printed, "told\n")
    assert (outcome.exception_line, outcome.traceback) == (None, None)
    after = session.run("print(len(items) > 100, items == list(range(len(items))))")
    assert after.stdout == "True True\n"


@pytest.mark.parametrize(
    "code",
    [
        "while True:\n    try:\n        while True: items[0] += 1\n    except BaseException: pass",
        "import signal\nsignal.signal(signal.SIGINT, lambda *_: None)\nwhile True: items[0] += 1",
        "class A:\n    def __del__(self):\n        while True: items[0] += 1\nwhile True: A()",
    ],
)
def test_who_holds_an_interrupt_back_is_ended_and_gets_no_more_time(pool: SandboxPool, code: str) -> None:
    """Its whole statements are done again."""
    session = pool.session()
    session.run("items = [0]")
    limit = 0.3
    outcome = session.run(f"items.append(1)\n{code}", cpu_seconds=limit)
    assert outcome.status is OutcomeStatus.TIMEOUT
    assert outcome.cpu_seconds < limit + OVERSHOOT_SECONDS
    assert session.run("print(items[1:], items[0] == 0)").stdout == "[1] True\n"


def test_no_run_but_a_sessions_can_catch_the_end_of_its_time(pool: SandboxPool) -> None:
    code = "try:\n    while True: pass\nexcept BaseException: print('caught')\nfinally: print('ended')"
    outcome = pool.run(code, cpu_seconds=0.2)
    assert (outcome.status, outcome.stdout, outcome.stderr) == (OutcomeStatus.TIMEOUT, "", "")


WORK = """
import collections, decimal, gc, json, re
state = globals().setdefault("state", {"rounds": 0, "kept": []})
class Node:
    def __init__(self, other): self.other, self.me = other, self
while True:
    chain = None
    for _ in range(50): chain = Node(chain)
    text = json.dumps({str(i): [i, str(i) * 3] for i in range(40)})
    assert sorted(json.loads(text), key=int) == [str(i) for i in range(40)]
    counted = collections.Counter(re.findall("[0-9]+", text))
    assert sum(counted.values()) == 120
    assert sum(decimal.Decimal(i) / 7 for i in range(40)).quantize(decimal.Decimal("0.01")) == decimal.Decimal("111.43")
    state["kept"].append((state["rounds"], text))
    state["rounds"] += 1
    del state["kept"][:-5]
"""
CHECK = """
import gc
gc.collect()
rounds = [number for number, _ in state["kept"]]
assert rounds == list(range(rounds[0], rounds[0] + len(rounds))) if rounds else True
print(state["rounds"], len(rounds) <= 6)
"""


@pytest.mark.slow
def test_a_thousand_interrupts_at_any_instant_break_no_session(pool: SandboxPool) -> None:
    draws = Random(0)
    sessions = [pool.session(seed=i) for i in range(50)]
    rounds = [0] * len(sessions)
    for session in sessions:
        assert session.run("state = {'rounds': 0, 'kept': []}").ok
    for attempt in range(1000):
        which = attempt % len(sessions)
        assert sessions[which].run(WORK, cpu_seconds=draws.uniform(0.005, 0.05)).status is OutcomeStatus.TIMEOUT
        seen = sessions[which].run(CHECK)
        assert seen.ok, seen.stderr
        done, whole = seen.stdout.split()
        assert whole == "True"
        assert int(done) >= rounds[which]
        rounds[which] = int(done)
    assert min(rounds) > 20


def test_interrupt_in_an_import_leaves_a_usable_module(pool: SandboxPool) -> None:
    for limit in (0.1, 0.2):
        session = pool.session()
        session.run("import matplotlib.pyplot", cpu_seconds=limit)
        after = session.run("import matplotlib.pyplot as plt\nprint(len(plt.plot([1, 2])))")
        assert (after.stdout, after.stderr) == ("1\n", ""), limit


def test_interrupt_before_the_first_statement_leaves_the_seed(pool: SandboxPool) -> None:
    draw = "import random, numpy; print(random.random(), numpy.random.rand())"
    expected = pool.session(seed=9).run(draw).stdout
    for microseconds in range(10, 160, 2):
        session = pool.session(seed=9)
        session.run("x = 1", cpu_seconds=microseconds * 1e-6)
        assert session.run(draw).stdout == expected


@pytest.mark.slow
def test_interrupt_arrives_once(pool: SandboxPool) -> None:
    code = "try:\n    print(0)\n    while True: pass\nfinally: print(1)"
    draws = Random(0)
    printed = set()
    for _ in range(1500):
        outcome = pool.session().run(code, cpu_seconds=draws.uniform(0.0002, 0.02))
        assert outcome.status is OutcomeStatus.TIMEOUT
        printed.add(outcome.stdout)
    assert "0\n1\n" in printed
    # Interrupted before the statement, before or while it prints, or in the loop.
    assert printed <= {"", "1\n", "01\n", "0\n1\n"}
