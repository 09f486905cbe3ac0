"""Devices of the parts of a run, and errors if they do not fit."""

import re
from pathlib import Path
from typing import Any

import pytest

from torl.base.errors import ConfigError
from torl.run.config import PlacementConfig, TrainConfig
from torl.run.config.loading import find_config, load_config, presets
from torl.run.placement.assign import place
from torl.run.placement.gpus import require_driver, require_one_order, visible_gpus
from torl.run.placement.machine import Machine, combine_machines, this_machine
from torl.run.placement.resolve import resolve
from torl.run.placement.sides import PlacementRequest

GPU_BYTES = 85_520_809_984  # what CUDA says of an H100 with "80 GB"
LISTING = """\
0, GPU-aa, NVIDIA H100 80GB HBM3, 81559, 4, 580.95.05
1, GPU-bb, NVIDIA H100 80GB HBM3, 81559, 20480, 580.95.05
2, GPU-cc, NVIDIA RTX 4090, 24564, [N/A], 580.95.05
"""
CORES = Machine((), cores=8, host_bytes=10**11)
PRESETS = sorted(presets())


def gpus(count: int) -> Machine:
    return Machine.with_gpus(count, GPU_BYTES, cores=64)


def config(preset: str = "torl_1.5b", **overrides: Any) -> TrainConfig:
    return load_config(
        TrainConfig, find_config(preset), {name.replace("__", "."): value for name, value in overrides.items()}
    )


def asynchronous(**overrides: Any) -> TrainConfig:
    return config(rollout__max_staleness=1, algorithm__importance_correction="tis", **overrides)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_takes_all_gpus_for_both_sides_in_turns(preset: str, count: int) -> None:
    given = config(preset)
    size = given.engine.options.tensor_parallel  # type: ignore[attr-defined]
    if count < size:
        with pytest.raises(ConfigError, match=f"engine.tensor_parallel = {size}"):
            resolve(given, gpus(count))
        return
    settled = resolve(given, gpus(count))
    placement, learner, engine = settled.placement, settled.config.learner, settled.config.engine.options
    assert placement.colocated
    assert placement.learner_devices == tuple(range(count))
    assert placement.engine_devices == tuple(tuple(range(i, i + size)) for i in range(0, count, size))
    assert learner.ranks == count
    assert learner.offloads_while_sampling == (learner.zero_stage >= 2)
    assert engine.sleep_while_learning  # type: ignore[attr-defined]


def test_asynchronous_halves_are_apart_and_stay_where_they_are() -> None:
    settled = resolve(asynchronous(), gpus(8))
    assert settled.placement.learner_devices == (0, 1, 2, 3)
    assert settled.placement.engine_devices == ((4,), (5,), (6,), (7,))
    assert settled.config.learner.offload == "none"
    assert settled.config.engine.options.sleep_while_learning is False  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("overrides", "learner", "engine"),
    [
        ({"learner__ranks": 2}, (0, 1), ((2,), (3,), (4,), (5,), (6,), (7,))),
        ({"learner__ranks": 3, "engine__tensor_parallel": 4}, (0, 1, 2), ((4, 5, 6, 7),)),
        ({"engine__tensor_parallel": 4}, (0, 1, 2, 3), ((4, 5, 6, 7),)),
        ({"placement__learner": [7, 1]}, (7, 1), ((0,), (2,), (3,), (4,), (5,), (6,))),
        ({"placement__engine": [0]}, (1, 2, 3, 4, 5, 6, 7), ((0,),)),
        ({"placement__gpus": 2}, (0,), ((1,),)),
        ({"placement__gpus": [5, 3]}, (5,), ((3,),)),
    ],
)
def test_fixed_devices_of_one_side_leave_the_rest_to_the_other(
    overrides: dict[str, Any], learner: tuple[int, ...], engine: tuple[tuple[int, ...], ...]
) -> None:
    placement = resolve(asynchronous(**overrides), gpus(8)).placement
    assert (placement.learner_devices, placement.engine_devices) == (learner, engine)
    assert not placement.colocated


def test_ranks_and_workers_that_share_gpus_have_them_in_one_order() -> None:
    placement = resolve(config(placement__learner=[1, 0], placement__engine=[0, 1]), gpus(2)).placement
    assert placement.learner_devices == (0, 1)
    assert placement.engine_devices == ((0,), (1,))


@pytest.mark.parametrize(
    ("overrides", "count", "message"),
    [
        ({"learner__ranks": 4}, 2, "the learner has 2 GPUs (0-1): leave it out for one rank on each, or set it to 2"),
        ({"engine__tensor_parallel": 4}, 6, "overlap in part: colocated they are the same, so learner.ranks must be 4"),
        ({"engine__tensor_parallel": 4}, 2, "have 2 GPUs: engine.tensor_parallel can be 1 or 2"),
        ({"placement__gpus": 3}, 2, "[placement] names the GPUs 2, and there are 2 GPUs, counted from 0"),
        ({"placement__learner": [0, 9]}, 4, "names the GPUs 9, and there are 4 GPUs"),
        ({"placement__gpus": [0, 1], "placement__engine": [2]}, 4, "name 2, not in placement.gpus"),
    ],
)
def test_placement_that_does_not_fit_suggests_one_that_does(
    overrides: dict[str, Any], count: int, message: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        resolve(config(**overrides), gpus(count))


@pytest.mark.parametrize(
    ("overrides", "count", "message"),
    [
        ({}, 1, "rollout.max_staleness needs separate GPUs for the engine: learner (1) and engines (1) need more"),
        ({"learner__ranks": 4}, 4, "learner (4) and engines (1) need more than 4 GPUs"),
        ({"placement__learner": [0, 1]}, 2, "leaves no device for the other side"),
        ({"placement__learner": [0], "placement__engine": [0]}, 2, "placement.engine to differ"),
    ],
)
def test_asynchronous_runs_need_gpus_for_both(overrides: dict[str, Any], count: int, message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        resolve(asynchronous(**overrides), gpus(count))


@pytest.mark.parametrize(
    ("placement", "message"),
    [
        ({"learner": [0, 1], "engine": [1, 2]}, "learner and engine share only [1]"),
        ({"learner": [0, 0]}, "learner must name at least one device, and each only once"),
        ({"gpus": []}, "gpus must name at least one device"),
    ],
)
def test_impossible_placement_is_invalid(placement: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        config(**{f"placement__{name}": devices for name, devices in placement.items()})


def test_without_gpus_everything_computes_on_the_cores() -> None:
    colocated = resolve(config("demo"), CORES)
    assert colocated.placement.learner_devices == tuple(range(8))
    assert colocated.placement.engine_devices == (tuple(range(8)),)
    assert (colocated.config.learner.ranks, colocated.config.learner.cpu_threads) == (1, 8)
    assert colocated.placement.rank_visible_devices is None
    split = resolve(asynchronous(learner__ranks=2), CORES)
    assert split.placement.learner_devices == (0, 1, 2, 3)
    assert split.placement.engine_devices == ((4, 5, 6, 7),)
    assert (split.config.learner.ranks, split.config.learner.cpu_threads) == (2, 2)
    assert split.config.engine.options.cpu_threads == 4  # type: ignore[attr-defined]
    assert not split.config.learner.offloads_while_sampling


def test_gpus_are_not_requested_without_gpus() -> None:
    with pytest.raises(ConfigError, match=r"placement\.gpus = 8, but no GPU is visible"):
        resolve(config(placement__gpus=8), CORES)


def test_cpu_work_leaves_cores_to_gpu_processes() -> None:
    settled = resolve(config("torl_7b"), gpus(8))
    assert settled.config.rollout.tools["python"].options.workers == 64 - 16  # type: ignore[attr-defined]
    assert settled.config.rollout.max_concurrent_episodes == 8 * 512
    few = resolve(config("torl_7b", rollout__max_concurrent_episodes=9), gpus(1)).config
    assert few.rollout.max_concurrent_episodes == 9
    own = resolve(config("demo"), CORES).config
    assert own.rollout.tools["python"].options.workers is None  # type: ignore[attr-defined]


def test_an_engine_elsewhere_has_no_devices(tmp_path: Path) -> None:
    settled = resolve(config(engine__name="tests.torl.rollout.test_opening:NotedEngine"), gpus(4))
    assert settled.placement.engine_devices == ()
    assert settled.placement.learner_devices == (0, 1, 2, 3)
    assert not settled.placement.colocated


@pytest.mark.parametrize(
    ("visible", "names"),
    [(None, ["0", "1", "2"]), ("", []), ("2,0", ["2", "0"]), ("GPU-bb", ["GPU-bb"]), ("-1", [])],
)
def test_gpus_are_those_that_cuda_would_see(visible: str | None, names: list[str]) -> None:
    found, driver = visible_gpus(LISTING, visible)
    assert [gpu.name for gpu in found] == names
    assert driver == "580.95.05"
    assert [gpu.memory_bytes for gpu in found if gpu.name in ("2", "0")] in (
        [81559 << 20, 24564 << 20],
        [24564 << 20, 81559 << 20],
        [],
    )


def test_hidden_gpus_need_no_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'Failed to initialize NVML: Driver/library version mismatch'\nexit 18\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    for visible in ("", " ", "-1"):
        assert this_machine({"CUDA_VISIBLE_DEVICES": visible}).gpus == ()
    with pytest.raises(ConfigError, match="nvidia-smi: Failed to initialize NVML"):
        this_machine({})


def test_memory_used_by_others_is_read() -> None:
    found, _ = visible_gpus(LISTING, None)
    assert [gpu.used_bytes for gpu in found] == [4 << 20, 20480 << 20, 0]
    assert found[1].free_bytes == (81559 - 20480) << 20


def test_a_gpu_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match=r"CUDA_VISIBLE_DEVICES names 7, and this machine has the GPUs 0, 1, 2"):
        visible_gpus(LISTING, "1,7")


def test_a_driver_that_is_too_old_is_named_with_the_one_that_is_needed() -> None:
    require_driver("580.95.05", "13.0.96")
    require_driver("570.1", "12.8.1")
    with pytest.raises(ConfigError, match=r"driver of this machine's GPUs is 570\.1, .* needs 580 or later"):
        require_driver("570.1", "13.0.96")


def test_different_gpus_need_one_order() -> None:
    found, _ = visible_gpus(LISTING, None)
    require_one_order(found[:2], None)
    require_one_order(found, "PCI_BUS_ID")
    with pytest.raises(ConfigError, match="set CUDA_DEVICE_ORDER=PCI_BUS_ID"):
        require_one_order(found, None)


def test_the_devices_of_nodes_are_numbered_from_the_first_to_the_last() -> None:
    machine = combine_machines([Machine.with_gpus(count, 80, cores=16, host_bytes=1000) for count in (8, 4)])
    assert [machine.node_of(device) for device in (0, 7, 8, 11)] == [(0, 0), (0, 7), (1, 0), (1, 3)]
    assert (machine.cores, machine.host_bytes, machine.nodes) == (32, 2000, (8, 4))
    with pytest.raises(ConfigError, match="of 2 nodes 1 have no GPU"):
        combine_machines([Machine.with_gpus(8, 80), Machine((), 16, 1000)])


def test_ranks_and_engines_have_the_nodes_of_their_gpus() -> None:
    machine = combine_machines([Machine.with_gpus(4, 80)] * 2)
    placement = place(PlacementConfig(), PlacementRequest(tensor_parallel=2, asynchronous=True), machine)
    assert placement.rank_nodes == (0, 0, 0, 0)
    assert placement.engine_nodes == (1, 1)
    assert placement.engine_device_ids == ((0, 1), (2, 3))
    assert placement.rank_visible_devices == ("0", "1", "2", "3")
    with pytest.raises(ConfigError, match=r"the GPUs 3-5, which are on several nodes of 4 GPUs"):
        place(PlacementConfig(), PlacementRequest(tensor_parallel=3, replicas=2, ranks=6), machine)


def test_without_gpus_ranks_begin_at_the_first_node_and_engines_at_the_last() -> None:
    machine = combine_machines([Machine((), 2, 1000)] * 3)
    placement = place(PlacementConfig(), PlacementRequest(ranks=2, replicas=2), machine)
    assert placement.rank_nodes == (0, 1)
    assert placement.engine_nodes == (2, 1)
    assert placement.engine_device_ids == ()
    assert str(placement).endswith("; of 3 nodes 0-1 have ranks, 1-2 engines")
