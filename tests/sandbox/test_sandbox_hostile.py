"""Programs composed of hostile statements, in a kept guest and in a new one.

Both end alike, within the limits, and the next run is right.
"""

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from hostile_programs import programs
from sandboxes import FRESH, KEPT, OVERSHOOT_SECONDS
from torl_sandbox import Execution, OutcomeStatus, SandboxPool

CPU_SECONDS = 0.3
MEMORY_BYTES = 256 << 20
OUTPUT_BYTES = 1 << 18

PROBE = """
import sys, gc, os, random, numpy, sympy, decimal, json
print(sorted(vars()), sorted(sys.modules), sys.path, sys.getrecursionlimit(), gc.get_threshold())
print(dict(os.environ), os.getcwd(), os.listdir("/"), os.listdir("."), random.random(), numpy.random.rand())
print(sympy.solve(sympy.Symbol("x") ** 2 - 2), decimal.Decimal(1) / 3, json.dumps([None, "\\ud800"]), len([1]))
print(len(gc.get_objects()), id(object()), hash("x"))
raise ValueError("the end")
"""

QUICK = settings(
    max_examples=40, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
LONG = settings(
    max_examples=5000, deadline=None, database=None, suppress_health_check=list(HealthCheck),
    phases=[Phase.generate, Phase.shrink],
)  # fmt: skip


@pytest.fixture(scope="module")
def pools() -> Iterator[list[SandboxPool]]:
    limits = {
        "cpu_seconds": CPU_SECONDS, "wall_seconds": 20, "memory_bytes": MEMORY_BYTES, "output_bytes": OUTPUT_BYTES,
    }  # fmt: skip
    with SandboxPool(1, **limits, **KEPT) as kept, SandboxPool(1, **limits, **FRESH) as fresh:
        yield [kept, fresh]


@pytest.fixture(scope="module")
def expected() -> Execution:
    """The output of the probe in a guest that ran nothing before."""
    with SandboxPool(1, **FRESH) as pool:
        return pool.run(PROBE, stdin="x")


def seen(outcome: Execution) -> tuple[object, ...]:
    """All of an outcome that is the same on every machine."""
    return (
        outcome.status, outcome.stdout, outcome.stderr, outcome.exception_type, outcome.exception_line,
        outcome.traceback, outcome.peak_memory_bytes, outcome.value, outcome.files,
    )  # fmt: skip


def check(pools: list[SandboxPool], expected: Execution, program: str) -> None:
    outcomes = [
        pool.run(program, stdin="line\n" * 3, files={"x/y": b"z"}, return_files=True, value=True) for pool in pools
    ]
    for outcome in outcomes:
        assert isinstance(outcome.status, OutcomeStatus)
        assert outcome.cpu_seconds < CPU_SECONDS + OVERSHOOT_SECONDS
        assert len(outcome.stdout.encode("utf-8", "surrogatepass")) <= 3 * OUTPUT_BYTES
        assert outcome.peak_memory_bytes <= MEMORY_BYTES
        if outcome.status is OutcomeStatus.TIMEOUT:
            assert outcome.cpu_seconds >= CPU_SECONDS
    one, other = outcomes
    if OutcomeStatus.TIMEOUT not in (one.status, other.status):
        assert seen(one) == seen(other)
    for pool in pools:
        assert seen(pool.run(PROBE, stdin="x")) == seen(expected)


@QUICK
@given(program=programs)
def test_hostile_programs_end_alike_and_leave_nothing(
    pools: list[SandboxPool], expected: Execution, program: str
) -> None:
    check(pools, expected, program)


@pytest.mark.slow
@LONG
@given(program=programs)
def test_many_hostile_programs_end_alike_and_leave_nothing(
    pools: list[SandboxPool], expected: Execution, program: str
) -> None:
    check(pools, expected, program)
