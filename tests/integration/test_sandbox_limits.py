"""The limits of a run are stated in several places, and they say the same."""

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from torl import _core
from torl.sandbox import OutcomeStatus, SandboxPool, prepare_guest
from torl.tools import PythonOptions

REPOSITORY = Path(__file__).parents[2]
STATED = re.compile(r"interpreter's\s+own\s+\(?(\d+\s+\w+)")


def test_the_interpreters_own_memory_is_what_every_text_says() -> None:
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


def test_pool_configuration_and_core_have_one_set_of_defaults() -> None:
    core, config = _core.SandboxLimits(), PythonOptions()
    pool = inspect.signature(SandboxPool).parameters
    for name in ("cpu_seconds", "wall_seconds", "memory_bytes", "output_bytes", "files_bytes"):
        assert pool[name].default == getattr(core, name)
    assert (config.cpu_seconds, config.wall_seconds) == (core.cpu_seconds, core.wall_seconds)
    assert (config.memory_mib << 20, config.output_kib << 10) == (core.memory_bytes, core.output_bytes)
    assert config.shared_mib << 20 == pool["shared_bytes"].default


def test_limits_are_values_that_keep_what_is_not_given() -> None:
    default, short = _core.SandboxLimits(), _core.SandboxLimits(cpu_seconds=2, files_bytes=7)
    assert (short.cpu_seconds, short.files_bytes, short.wall_seconds) == (2.0, 7, default.wall_seconds)
    assert [short.with_cpu_seconds(seconds).cpu_seconds for seconds in (1.5, 3.0, float("inf"))] == [1.5, 2.0, 2.0]
    assert short.with_cpu_seconds(1.5).files_bytes == 7
    for seconds in (-1.0, float("nan"), 1e300):
        with pytest.raises(ValueError, match=r"seconds|float"):
            _core.SandboxLimits(wall_seconds=seconds)


def test_a_run_may_have_less_than_the_pool_allows_and_no_more() -> None:
    large, endless = "x = bytearray(100 << 20)", "while True: pass"
    with SandboxPool(1, cpu_seconds=1, memory_bytes=400 << 20) as pool:
        for runner in (pool, pool.session()):
            assert runner.run(endless, cpu_seconds=0.1).cpu_seconds < 0.6
            assert 0.9 < runner.run(endless, cpu_seconds=100).cpu_seconds < 1.5
        small = 200 << 20
        assert pool.run(large).ok
        for run in (lambda: pool.run(large, memory_bytes=small), lambda: pool.session(memory_bytes=small).run(large)):
            assert run().status is OutcomeStatus.MEMORY
        assert pool.run("x = bytearray(500 << 20)", memory_bytes=1 << 30).status is OutcomeStatus.MEMORY


@pytest.mark.parametrize(("options", "name"), [({"cpu_seconds": 0}, "cpu_seconds"), ({"memory_bytes": -1}, "memory_b")])
def test_a_limit_that_is_none_is_refused(options: dict[str, Any], name: str) -> None:
    with SandboxPool(1) as pool, pytest.raises(ValueError, match=name):
        pool.run("1", **options)
