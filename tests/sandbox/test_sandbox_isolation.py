"""Laws of a run: nothing it does is seen by the next, and its limits hold for any program."""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sandboxes import FRESH, GUESTS
from torl_sandbox import OutcomeStatus, SandboxPool

OUTPUT_BYTES = 1 << 18
DETERMINISTIC = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])

# Things that stay, in an interpreter that is used again. Each leaves a trace that an observer below would see.
MUTATIONS = [
    "import builtins; builtins.leak = 1",
    "import builtins; builtins.len = lambda x: 42",
    "import sys; sys.leak = 1",
    "import sys; sys.setrecursionlimit(500)",
    "import sys; sys.path.append('leak')",
    "import sys; sys.modules['leak'] = sys",
    "import sys; sys.stdout.write('x')",
    "import os; os.environ['LEAK'] = '1'",
    "import os; fd = os.open('/usr/local/lib/python315.zip', os.O_RDONLY)",
    "open('leak.txt', 'w').write('leak')",
    "import os; os.makedirs('/tmp/leak/leak'); os.chdir('/tmp/leak'); os.utime('/', (1, 1))",
    "import os; os.rename('/work', '/elsewhere'); kept = [open('/leak', 'wb', 0).write(bytes(10**6))]",
    "import sys; sys.stdin.read(3)",
    "import random; random.seed(99)",
    "import random; random.random()",
    "import numpy; numpy.random.seed(99); numpy.set_printoptions(precision=2)",
    "import numpy; numpy.seterr(all='raise')",
    "import decimal; decimal.getcontext().prec = 5",
    "import math; math.pi = 3",
    "import sympy; sympy.Symbol.leak = 1; sympy.init_printing()",
    "import sympy; x = sympy.Symbol('x'); sympy.simplify(x + x)",
    "import warnings; warnings.simplefilter('error')",
    "import gc; gc.set_threshold(1); gc.disable()",
    "import json; json.dumps = None",
    "import time; time.sleep(1000)",
    "import pandas",
    "import collections; collections.leak = [0] * 10**6",
    "import linecache; linecache.clearcache()",
    "import atexit; atexit.register(print, 'leak')",
    "import functools; functools.reduce = None",
    "leak = [bytes(10**6) for _ in range(50)]",
    "def f(n): return f(n + 1)\ntry: f(0)\nexcept RecursionError: pass",
    "class A:\n    def __del__(self): print('leak')\na = A(); a.self = a",
    "while True: pass",
    "x = []\nwhile True: x.append('x' * 10**6)",
    "print('x' * 10**7)",
    "import os; os._exit(1)",
    "import os; os.abort()",
    "raise ValueError",
    "1 +",
]
OBSERVATIONS = [
    "print(sorted(vars()), sorted(vars(__builtins__))[-5:], len([1, 2]))",
    "import sys; print(sorted(sys.modules), sys.path, sys.getrecursionlimit(), len(vars(sys)))",
    "import os; print(dict(os.environ)); print(os.open('/usr/local/lib/python315.zip', os.O_RDONLY))",
    "import os; print(os.getcwd(), [*os.walk('/work'), *os.walk('/tmp')], os.listdir('/'), os.stat('/'))",
    "import sys; print(sys.stdin.read())",
    "import random, numpy; print(random.random(), numpy.random.rand(), numpy.array([1 / 3]), numpy.geterr())",
    "import decimal, math; print(decimal.Decimal(1) / 3, math.pi)",
    "import sympy; print(sorted(vars(sympy.Symbol)), sympy.Symbol('x') * 2)",
    "import warnings, gc; print(warnings.filters, gc.get_threshold(), gc.isenabled(), len(gc.get_objects()))",
    "import json, functools, collections; print(json.dumps([1]), functools.reduce, sorted(vars(collections)))",
    "import time, os; print(time.time(), time.monotonic(), os.urandom(4), id(object()))",
    "import linecache; print(sorted(linecache.cache))",
]


def programs(statements: list[str]) -> st.SearchStrategy[str]:
    return st.lists(st.sampled_from(statements), min_size=1, max_size=4).map("\n".join)


@pytest.fixture(scope="module", params=GUESTS)
def pool(request: pytest.FixtureRequest) -> Iterator[SandboxPool]:
    limits = {"cpu_seconds": 0.2, "memory_bytes": 256 << 20, "output_bytes": OUTPUT_BYTES}
    with SandboxPool(1, **limits, **request.param) as pool:
        yield pool


@pytest.fixture(scope="module")
def untouched() -> Iterator[SandboxPool]:
    """A pool whose guests have run nothing else."""
    with SandboxPool(1, cpu_seconds=5, memory_bytes=256 << 20, output_bytes=OUTPUT_BYTES, **FRESH) as pool:
        yield pool


@DETERMINISTIC
@given(first=programs(MUTATIONS), second=programs(OBSERVATIONS), seed=st.integers(0, 2**64 - 1))
def test_the_second_run_is_independent_of_the_first(
    pool: SandboxPool, untouched: SandboxPool, first: str, second: str, seed: int
) -> None:
    expected = untouched.run(second, seed=seed, stdin="input")
    assert expected.ok, expected
    pool.run(first, seed=seed, stdin="another", files={"input/x": "y"})
    seen = pool.run(second, seed=seed, stdin="input")
    if seen.status is not OutcomeStatus.TIMEOUT:  # the one outcome a busy machine may change
        assert (seen.status, seen.stdout, seen.stderr) == (expected.status, expected.stdout, expected.stderr)
        assert seen.peak_memory_bytes == expected.peak_memory_bytes


@DETERMINISTIC
@given(program=programs(MUTATIONS + OBSERVATIONS), seed=st.integers(0, 2**64 - 1))
def test_the_same_run_twice_is_the_same(pool: SandboxPool, program: str, seed: int) -> None:
    first, second = pool.run_batch([program, program], seed=seed)
    if OutcomeStatus.TIMEOUT not in (first.status, second.status):
        assert (first.status, first.stdout, first.stderr, first.traceback, first.peak_memory_bytes) == (
            second.status, second.stdout, second.stderr, second.traceback, second.peak_memory_bytes,
        )  # fmt: skip


@DETERMINISTIC
@given(sizes=st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.integers(0, 60_000)), max_size=8))
def test_output_is_a_prefix_of_written_text(pool: SandboxPool, sizes: list[tuple[str, int]]) -> None:
    lines = [f"sys.{stream}.write('{index}' * {size})" for index, (stream, size) in enumerate(sizes)]
    outcome = pool.run("\n".join(["import sys", *lines]))
    written = {
        name: "".join(str(index) * size for index, (stream, size) in enumerate(sizes) if stream == name)
        for name in ("stdout", "stderr")
    }
    total = sum(len(text) for text in written.values())
    assert outcome.status is (OutcomeStatus.OK if total <= OUTPUT_BYTES else OutcomeStatus.OUTPUT_LIMIT)
    assert written["stdout"].startswith(outcome.stdout)
    assert written["stderr"].startswith(outcome.stderr)
    assert len(outcome.stdout) + len(outcome.stderr) == min(total, OUTPUT_BYTES)


@DETERMINISTIC
@given(code=st.text(max_size=200), tail=st.sampled_from(["", "\n\0", "\n\ud800", "\r\n\f", "\x1a"]))
def test_any_text_is_an_outcome(pool: SandboxPool, code: str, tail: str) -> None:
    assert isinstance(pool.run(code + tail).status, OutcomeStatus)


@DETERMINISTIC
@given(data=st.binary(max_size=2000))
def test_any_bytes_come_back(pool: SandboxPool, data: bytes) -> None:
    outcome = pool.run(f"import os\nos.write(1, {data!r})")
    assert (outcome.status, outcome.stdout) == (OutcomeStatus.OK, data.decode(errors="replace"))
