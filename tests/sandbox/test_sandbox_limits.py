"""The limits of a run are stated in several places, and they say the same."""

import asyncio
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sandboxes import OVERSHOOT_SECONDS
from torl_sandbox import OutcomeStatus, SandboxPool, _core, prepare_guest
from torl_sandbox.options import MAXIMUM_CODE, MINIMUM_MEMORY

REPOSITORY = Path(__file__).parents[2]
STATED = re.compile(r"interpreter's\s+(?:own\s+)?\(?(\d+\s+\w+)")


def test_documented_interpreter_memory_is_correct() -> None:
    with SandboxPool(1) as pool:
        own = pool.run("").peak_memory_bytes
    assert own == next(file for file in _core.sandbox_files(prepare_guest()) if file.suffix == ".image").stat().st_size
    texts = [
        *REPOSITORY.glob("python/**/*.py"),
        *REPOSITORY.glob("crates/sandbox/src/**/*.rs"),
        *REPOSITORY.glob("docs/*.md"),
    ]
    stated = {(text.name, size) for text in texts for size in STATED.findall(text.read_text(encoding="utf-8"))}
    assert {size for _, size in stated} == {f"{own / 2**20:.0f} MiB"}
    assert {"limits.rs", "pool.py", "sandbox.md"} <= {name for name, _ in stated}


def test_pool_and_core_have_one_set_of_defaults() -> None:
    core = _core.SandboxLimits()
    pool = inspect.signature(SandboxPool).parameters
    for name in ("cpu_seconds", "wall_seconds", "memory_bytes", "output_bytes", "files_bytes"):
        assert pool[name].default == getattr(core, name)


def test_limits_keep_unset_values() -> None:
    default, short = _core.SandboxLimits(), _core.SandboxLimits(cpu_seconds=2, files_bytes=7)
    assert (short.cpu_seconds, short.files_bytes, short.wall_seconds) == (2.0, 7, default.wall_seconds)
    assert [short.lowered(cpu_seconds=seconds).cpu_seconds for seconds in (1.5, 3.0, float("inf"))] == [1.5, 2.0, 2.0]
    assert short.lowered(cpu_seconds=1.5).files_bytes == 7
    for seconds in (-1.0, float("nan"), 1e300):
        with pytest.raises(ValueError, match=r"seconds|float"):
            _core.SandboxLimits(wall_seconds=seconds)


def test_a_run_may_have_less_than_the_pool_allows_and_no_more() -> None:
    large, endless = "x = bytearray(100 << 20)", "while True: pass"
    for own, allowed in ((0.1, 100), (100, 0.1)):
        with SandboxPool(1, cpu_seconds=allowed) as pool:
            for runner in (pool, pool.session()):
                assert 0.1 <= runner.run(endless, cpu_seconds=own).cpu_seconds < 0.1 + OVERSHOOT_SECONDS
    with SandboxPool(1, memory_bytes=400 << 20) as pool:
        small = 200 << 20
        assert pool.run(large).ok
        for run in (lambda: pool.run(large, memory_bytes=small), lambda: pool.session(memory_bytes=small).run(large)):
            assert run().status is OutcomeStatus.MEMORY
        assert pool.run("x = bytearray(500 << 20)", memory_bytes=1 << 30).status is OutcomeStatus.MEMORY


def test_the_least_memory_is_enough_for_the_interpreter_and_less_is_refused() -> None:
    with SandboxPool(1, memory_bytes=MINIMUM_MEMORY) as pool:
        outcome = pool.run("import sympy\nprint(sympy.factorint(12))")
        assert (outcome.ok, outcome.peak_memory_bytes <= MINIMUM_MEMORY) == (True, True)
        assert pool.run("x = bytearray(64 << 20)").status is OutcomeStatus.MEMORY
    with pytest.raises(ValueError, match="between 192 MiB"):
        SandboxPool(1, memory_bytes=MINIMUM_MEMORY - 1)


def test_session_larger_than_the_next_memory_limit_fails() -> None:
    with SandboxPool(1, memory_bytes=400 << 20) as large, SandboxPool(1, memory_bytes=256 << 20) as small:
        session = large.session()
        session.run("x = bytearray(b'x') * (150 << 20)")
        moved = small.session()
        moved._state = session._state  # no session changes its pool, but a state may come from anywhere
        outcome = moved.run("print(len(x))")
        assert outcome.status is OutcomeStatus.MEMORY
        assert re.fullmatch(
            r"MemoryError: the session uses \d+ bytes of memory, but this run is limited to 268435456",
            outcome.exception_line or "",
        )
        assert small.run("print(1)").ok
        assert session.run("print(len(x))").stdout == "157286400\n"


@pytest.mark.parametrize("limit", ["cpu_seconds", "wall_seconds"])
@pytest.mark.parametrize("seconds", [1e-9, 1e-6])
def test_time_may_end_before_the_first_statement(limit: str, seconds: float) -> None:
    with SandboxPool(1, result_cache_bytes=0, **{limit: seconds}) as pool:  # type: ignore[arg-type]
        statuses = {pool.run(f"x = {number}").status for number in range(40)}
        assert statuses <= {OutcomeStatus.OK, OutcomeStatus.TIMEOUT}
        assert pool.stats()["retried"] == 0


@pytest.mark.parametrize(("options", "name"), [({"cpu_seconds": 0}, "cpu_seconds"), ({"memory_bytes": -1}, "memory_b")])
def test_invalid_limit_is_refused(options: dict[str, Any], name: str) -> None:
    with SandboxPool(1) as pool, pytest.raises(ValueError, match=name):
        pool.run("1", **options)


@pytest.fixture(scope="module")
def pool() -> Iterator[SandboxPool]:
    with SandboxPool(1, wall_seconds=600, cpu_seconds=600, memory_bytes=1 << 30, files_bytes=256 << 20) as pool:
        yield pool


def test_code_that_is_too_long_is_refused_at_once(pool: SandboxPool) -> None:
    longest = MAXIMUM_CODE
    calls: list[Callable[[str], object]] = [
        pool.run,
        pool.submit,
        pool.session().run,
        lambda code: pool.run_batch(["print(1)", code]),
        lambda code: asyncio.run(pool.run_async(code)),
    ]
    for call in calls:
        for code in ("#" * (longest + 1), "é" * (longest // 2 + 1), "#" * (20 * longest)):
            with pytest.raises(ValueError, match=r"code .*16777216"):
                call(code)
    assert sum(pool.stats().values()) == 0
    assert pool.run("print(1)" + "#" * (longest - 8)).stdout == "1\n"


@pytest.mark.slow
def test_a_request_that_is_too_large_in_all_is_refused_at_once(pool: SandboxPool) -> None:
    session = pool.session()
    assert session.run("kept = b'x' * (600 << 20)").ok
    state = session.state_bytes
    replaced = pool.stats()["workers_replaced"]
    with pytest.raises(ValueError, match=r"standard input \d+, files \d+, session state \d+") as refused:
        session.run("pass", stdin=bytes(256 << 20), files={name: bytes(128 << 20) for name in "ab"})
    assert str(state) in str(refused.value)
    assert pool.stats()["workers_replaced"] == replaced
    assert session.run("print(len(kept))").stdout == f"{600 << 20}\n"
