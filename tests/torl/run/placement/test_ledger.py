"""Memory of every preset on every number of GPUs: it fits in every stage, or the error names a remedy that works."""

import re
from dataclasses import replace
from typing import Any

import pytest

from placement_models import QWEN_1_5B, QWEN_7B, QWEN_32B
from torl.base.errors import ConfigError
from torl.components.hub.shape import ModelShape
from torl.learner.exporting import MAX_FILE_BYTES
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config, presets
from torl.run.placement.changes import changes, cheapest, fits, try_ledger, with_changes
from torl.run.placement.fit import require_division, require_room, with_update_settings
from torl.run.placement.ledger import Ledger, compute_ledger
from torl.run.placement.machine import Machine, combine_machines
from torl.run.placement.resolve import resolve

GPU_BYTES = 85_520_809_984  # 81,559 MiB: what the driver says of an H100 with "80 GB"
HOST_BYTES = 2 << 40
BESIDE = ("sample", "checkpoint", "export")
PRESETS = sorted(presets().keys() - {"demo"})


def config(preset: str, **overrides: Any) -> TrainConfig:
    return load_config(
        TrainConfig, find_config(preset), {name.replace("__", "."): value for name, value in overrides.items()}
    )


def shape_of(config: TrainConfig) -> ModelShape:
    sizes = {"1.5B": QWEN_1_5B, "7B": QWEN_7B, "32B": QWEN_32B}
    return ModelShape.from_config(next(sizes[size] for size in sizes if f"-{size}" in config.model.path))


def machine(gpus: int, *, gpu_bytes: int = GPU_BYTES, host_bytes: int = HOST_BYTES) -> Machine:
    return Machine.with_gpus(gpus, gpu_bytes, cores=64, host_bytes=host_bytes)


def book(preset: str, gpus: int, **overrides: Any) -> Ledger:
    given = config(preset, **overrides)
    return compute_ledger(resolve(given, machine(gpus)), shape_of(given))


def total(of: Ledger, stage: str, gpu: int = 0) -> int:
    (found,) = [each for each in of.stages if each.name == stage]
    return sum(found.on_gpu(gpu, of.placement).values())


@pytest.mark.parametrize("count", [1, 2, 4, 8])
@pytest.mark.parametrize("preset", PRESETS)
def test_preset_fits_in_every_stage_or_gets_a_remedy(preset: str, count: int) -> None:
    given = config(preset)
    shape, there = shape_of(given), machine(count)
    if try_ledger(given, there, shape) is None:
        with pytest.raises(ConfigError, match=r"engine\.tensor_parallel can be"):
            resolve(given, there)
        return
    settled = resolve(given, there)
    of = compute_ledger(settled, shape)
    if not of.excess():
        require_room(given, settled, shape)
        for stage in of.stages:
            for gpu in range(count):
                assert sum(stage.on_gpu(gpu, of.placement).values()) <= GPU_BYTES
            assert sum(stage.host.values()) <= HOST_BYTES
        assert of.engine.cache_tokens >= given.longest_prompt + given.rollout.max_response_tokens
        return
    with pytest.raises(ConfigError, match=r"GPU \d would need .* and has 79\.6 GiB") as raised:
        require_room(given, settled, shape)
    advised = re.search(r"it would fit with (--.*?) \(", str(raised.value))
    if advised is None:
        assert "no change of its settings makes it fit here" in str(raised.value)
        assert cheapest(given, there, shape) is None
        return
    words = advised[1].split()
    names = [word.removeprefix("--").replace(".", "__") for word in words[::2]]
    assert fits(config(preset, **dict(zip(names, words[1::2], strict=True))), there, shape)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_runs_unchanged_from_as_many_gpus_on_as_it_says(preset: str) -> None:
    text = (find_config(preset)).read_text(encoding="utf-8")
    required = re.search(r"as many GPUs as there are: (\d+) of 80 GB or more", text)
    assert required is not None
    for count in (1, 2, 4, 8, 16):
        assert fits(config(preset), machine(count), shape_of(config(preset))) == (count >= int(required[1])), count


def test_seven_billion_on_eight_gpus_match_the_arithmetic() -> None:
    """Per rank under ZeRO-3: 2 + 4 + 8 + 4 bytes of each parameter over the ranks; 57,344 bytes a cached token."""
    of = book("torl_7b", 8)
    parameters = 7_615_616_512
    assert of.learner.shape.parameters == parameters
    (states,) = of.learner.models
    assert sum((states.weights, states.master, states.adam, states.gradients)) == parameters * 18 // 8
    assert of.engine.token_bytes == 57_344
    assert pytest.approx(sum(of.engine.awake().values())) == 0.85 * GPU_BYTES
    assert total(of, "sample") == pytest.approx(0.85 * GPU_BYTES + 2.9e9, rel=1e-6)
    assert total(of, "update") > total(of, "step") > total(of, "export")
    resident = sum(
        sum(part.values()) for part in (of.learner.always(), of.learner.parameters(), of.learner.optimizer())
    )
    copied_gradients = parameters * 4 // 8
    assert total(of, "step") == resident + copied_gradients + sum(of.engine.asleep().values())


def test_cache_token_is_on_every_worker_with_one_of_its_heads() -> None:
    """Two heads of keys and values: a worker of two has one, and so has each worker of four."""
    sizes = [(1, "bfloat16"), (2, "bfloat16"), (4, "bfloat16"), (1, "float32")]
    books = [book("torl_1.5b", 8, engine__tensor_parallel=size, engine__dtype=dtype) for size, dtype in sizes]
    assert [of.engine.token_bytes for of in books] == [28_672, 14_336, 14_336, 57_344]
    for of in books:
        assert of.engine.cache_tokens == of.engine.cache // of.engine.token_bytes


def test_a_checkpoint_is_copied_in_the_host_while_the_engine_samples() -> None:
    of = book("torl_7b", 8)
    sample, checkpoint, export = (next(each for each in of.stages if each.name == name) for name in BESIDE)
    assert total(of, "checkpoint") == total(of, "sample")
    assert sum(checkpoint.host.values()) - sum(sample.host.values()) == pytest.approx(7_615_616_512 * 12, rel=1e-6)
    assert export.host["model"] == MAX_FILE_BYTES


def test_sides_that_do_not_fit_together_take_turns() -> None:
    """Both sides together are more than a GPU has; each stage by itself is not."""
    of = book("torl_7b", 8)
    resident = sum(of.learner.parameters().values()) + sum(of.learner.optimizer().values())
    assert resident + total(of, "sample") > GPU_BYTES
    assert not of.excess()
    together = book("torl_7b", 8, engine__sleep_while_learning=False, learner__offload="none")
    assert {stage.name for stage, *_ in together.excess()} >= {"sample", "update"}


def test_split_sides_have_gpus_of_their_own() -> None:
    of = book("torl_1.5b", 8, rollout__max_staleness=1, algorithm__importance_correction="tis")
    for stage in of.stages:
        learner, engine = (stage.on_gpu(gpu, of.placement) for gpu in (0, 7))
        assert "cache" not in learner
        assert "Adam" not in engine
        assert sum(engine.values()) == pytest.approx(0.85 * GPU_BYTES)
    assert not of.stages[1].host


def test_sharding_over_nodes_counts_all_ranks() -> None:
    given = config("ztrl_reinforce_32b")
    shape, there = shape_of(given), machine(8)
    settled = resolve(given, there)
    with pytest.raises(ConfigError, match=r"update: GPU 0 would need 99\.8 GiB"):
        require_room(given, settled, shape)
    one, eight = compute_ledger(settled, shape), compute_ledger(resolve(given, combine_machines([there] * 8)), shape)
    assert total(eight, "step") < total(one, "step") / 4


def test_page_locked_memory_is_a_power_of_two_for_each_buffer() -> None:
    """Each of eight ranks has 1.9 GB of weights, and 3.8 GB of the master copy and of each moment."""
    host = book("torl_7b", 8).stages[1].host
    assert host["parameters"] == 8 * 2**31
    assert host["master"] == 8 * 2**32
    assert host["Adam"] == 8 * 2 * 2**32
    # Alone, a rank has 30.5 GB of the master copy: ZeRO-3 divides it into 7 parts of 4 GB and one of 2.5 GB.
    assert book("torl_7b", 1).stages[1].host["master"] == 7 * 2**32 + 2**32
    # Stage 2 does not: 6.2 GB of the 1.5B model are one buffer, as are its 3.1 GB of weights on every rank.
    small = [book("torl_1.5b", count).stages[1].host for count in (1, 8)]
    assert [host["master"] for host in small] == [2**33, 8 * 2**30]
    assert [host["parameters"] for host in small] == [2**32, 8 * 2**32]


@pytest.mark.parametrize("stage", [2, 3])
def test_page_locked_reference_and_frozen_weights_are_counted_by_tensor(stage: int) -> None:
    of = book("torl_1.5b", 2, learner__zero_stage=stage, algorithm__kl__coefficient=0.1)
    hidden, intermediate, key, vocabulary = 1536, 8960, 256, 151_936
    largest = {vocabulary * hidden: 1, hidden * hidden: 56, hidden * key: 56, hidden * intermediate: 84}
    rounded = {size: 1 << (2 * size - 1).bit_length() for size in largest}
    expected = sum(rounded[size] * count for size, count in largest.items()) if stage == 2 else 0
    assert of.stages[1].host["reference"] == pytest.approx(2 * expected, rel=1e-3)  # of norms and biases, little
    assert sum(of.learner.shape.tensors) == of.learner.shape.parameters
    frozen = book("torl_1.5b", 2, learner__zero_stage=stage, model__lora={"rank": 8}).stages[1].host["parameters"]
    shards = sum((1 << (size - 1).bit_length()) * count for size, count in largest.items())  # 2 bytes on 2 ranks
    assert frozen == pytest.approx(2 * shards if stage == 3 else 0, rel=0.05, abs=2**27)  # and the adapters


def test_memory_of_other_programs_is_not_counted_on() -> None:
    given = config("torl_7b")
    there = machine(8)
    used = 10 << 30
    shared = replace(there, gpus=(*there.gpus[:3], replace(there.gpus[3], used_bytes=used), *there.gpus[4:]))
    message = r"sample: GPU 3 would need 70\.4 GiB and has 69\.6 GiB free: 10\.0 GiB are used by other programs, which"
    with pytest.raises(ConfigError, match=message):
        require_room(given, resolve(given, shared), shape_of(given))
    smaller = config("torl_7b", engine__gpu_memory_utilization=0.75)
    require_room(smaller, resolve(smaller, shared), shape_of(smaller))
    learners = [
        with_update_settings(resolve(smaller, each), shape_of(given)).config.learner for each in (there, shared)
    ]
    assert [learner.gradient_checkpointing for learner in learners] == [False, False]
    assert [learner.max_row_tokens for learner in learners] == [9216, 7168]


def test_arriving_weights_take_the_largest_table_once_more() -> None:
    of = book("ztrl_reinforce_32b", 8)
    assert of.engine.with_weights()["transfer"] == 2 * (256 << 20) + 152_064 * 5120 * 2
    assert of.engine.asleep()["engine"] > book("torl_7b", 8).engine.asleep()["engine"]  # two workers communicate


def test_optimizer_step_copies_the_gradients_of_one_part() -> None:
    one_part = 1_000_000_000 * 4
    assert book("torl_7b", 2).learner.step() == {"gradients": one_part}
    assert book("torl_7b", 8).learner.step() == {"gradients": 7_615_616_512 // 8 * 4}
    gradients = 4 * 1_543_714_304
    for dtype, copies in (("bfloat16", 1), ("float32", 2)):
        assert book("torl_1.5b", 1, learner__dtype=dtype).learner.step() == {"gradients": copies * gradients}


def test_host_without_memory_for_offload_is_refused() -> None:
    given = config("torl_7b")
    there = machine(8, host_bytes=90 << 30)
    with pytest.raises(ConfigError, match=r"checkpoint: host would need 197\.1 GiB and has 90\.0 GiB \(copy"):
        require_room(given, resolve(given, there), shape_of(given))


def test_an_engine_that_cannot_hold_one_sample_is_refused() -> None:
    given = config("torl_7b", engine__gpu_memory_utilization=0.23)
    with pytest.raises(ConfigError, match="cache for one sample"):
        require_room(given, resolve(given, machine(8)), shape_of(given))


def test_indivisible_model_is_refused_with_valid_sizes() -> None:
    given = config("torl_1.5b", engine__tensor_parallel=8)
    with pytest.raises(ConfigError, match=r"12 attention heads \(2 of keys and values\): it can be 1, 2, 4, 6, 12"):
        require_division(given, shape_of(given))
    require_division(config("torl_7b", engine__tensor_parallel=4), ModelShape.from_config(QWEN_7B))


def test_offloading_without_return_is_refused() -> None:
    """ZeRO-Offload keeps the optimizer in CPU memory: the GPU holds parameters, and the engine the rest."""
    given = config("ztrl_reinforce_32b", learner__offload="optimizer")
    of = compute_ledger(resolve(given, machine(8)), shape_of(given))
    assert resolve(given, machine(8)).config.learner.offload == "optimizer"
    assert "Adam" not in of.stages[2].learner
    # Four states of 4.1 billion parameters on each rank: four parts of 4 GB and one of 0.4 GB.
    assert of.stages[2].host["optimizer"] == 8 * 4 * (4 * 2**32 + 2**29)


def test_a_small_gpu_that_the_run_does_not_use_changes_nothing() -> None:
    given = config("torl_7b", placement__gpus=[*range(1, 9)])
    there = machine(9)
    there = replace(there, gpus=(replace(there.gpus[0], memory_bytes=4 << 30), *there.gpus[1:]))
    found = compute_ledger(resolve(given, there), shape_of(given))
    assert not found.excess()
    assert found.engine == book("torl_7b", 8).engine


def test_adapters_train_the_smallest_model_on_a_card_of_24_gb() -> None:
    there = machine(1, gpu_bytes=24_564 << 20)
    given = config("torl_1.5b", model__lora={"rank": 32}, engine__gpu_memory_utilization=0.75)
    assert fits(given, there, shape_of(given))
    assert not fits(config("torl_1.5b", engine__gpu_memory_utilization=0.3), there, shape_of(given))


@pytest.mark.parametrize(("stage", "offered"), [(0, False), (2, True)])
def test_offloading_is_proposed_where_deepspeed_can(stage: int, offered: bool) -> None:
    proposed = {change.name for change in changes(config("torl_7b", learner__zero_stage=stage), machine(2))}
    assert ("learner.offload" in proposed) is offered


def test_changes_are_those_of_the_configuration() -> None:
    given = config("torl_7b", learner__max_row_tokens=8192)
    chosen = cheapest(given, machine(2), shape_of(given))
    assert chosen is not None
    assert [change.name for change in chosen] == ["learner.max_row_tokens"]
    changed = with_changes(given, chosen)
    assert changed.learner.max_row_tokens == 1024 + 3072
    assert changed.engine == given.engine
