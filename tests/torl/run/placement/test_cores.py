"""A run on cores: the settings that they emulate, and the memory that it needs."""

import re
from typing import Any

import psutil
import pytest
import torch

from placement_models import QWEN_1_5B
from torl.base.errors import ConfigError
from torl.components.hub.shape import ModelShape
from torl.learner.exporting import MAX_FILE_BYTES
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.placement.fit import crowded_memory, require_room
from torl.run.placement.ledger import compute_ledger
from torl.run.placement.machine import Machine, combine_machines, emulates_bfloat16, this_machine
from torl.run.placement.resolve import resolve, slow_precision

WITHOUT = "processor\t: 0\nflags\t\t: fpu sse4_2 fma avx avx2 f16c\n"
CORES = Machine((), 2, 16 << 30, emulates_bfloat16=True)


@pytest.mark.parametrize(
    ("cpu_info", "emulates"),
    [
        pytest.param(WITHOUT, True, id="AVX2"),
        pytest.param("flags : avx2 avx512f\n", True, id="Knights Landing"),
        pytest.param("flags : avx2 avx512f avx512dq avx512bw avx512vl\n", False, id="Skylake"),
        pytest.param("flags : avx2 avx_vnni avx_ne_convert\n", False, id="Arrow Lake"),
        pytest.param("Features : fp asimd bf16 i8mm\n", False, id="Graviton 3"),
        pytest.param("Features : fp asimd\n", True, id="Graviton 2"),
        pytest.param("isa : rv64imafdc\n", False, id="unknown"),
    ],
)
def test_flags_of_the_cores(cpu_info: str, emulates: bool) -> None:
    assert emulates_bfloat16(cpu_info) == emulates


def test_torch_says_the_same_of_this_machine() -> None:
    has_instructions = torch.ops.mkldnn._is_mkldnn_bf16_supported()
    assert this_machine().emulates_bfloat16 != has_instructions


def test_settings_that_are_emulated_are_named() -> None:
    def warning(machine: Machine, **changes: str) -> str | None:
        overrides = {name.replace("__", "."): value for name, value in changes.items()}
        return slow_precision(resolve(load_config(TrainConfig, find_config("demo"), overrides), machine))

    assert warning(CORES) is None  # all in float32
    assert 'engine.dtype = "float32"' in (warning(CORES, engine__dtype="bfloat16") or "")
    both = warning(CORES, engine__dtype="bfloat16", learner__dtype="bfloat16")
    assert "engine.dtype and learner.dtype" in (both or "")
    assert warning(Machine.with_gpus(1, 80 << 30), engine__dtype="bfloat16") is None


def test_one_node_that_emulates_slows_the_cluster() -> None:
    others = Machine((), 2, 16 << 30)
    assert combine_machines([others, CORES]).emulates_bfloat16
    assert not combine_machines([others, others]).emulates_bfloat16


def on_cores(model: dict[str, object], host_gib: int, *, used_gib: int = 0, **changes: object) -> tuple[Any, ...]:
    """The configuration of a run on cores, resolved, and the model's shape."""
    overrides = {name.replace("__", "."): value for name, value in changes.items()}
    config = load_config(TrainConfig, find_config("demo"), overrides)
    machine = Machine((), 2, host_gib << 30, host_used_bytes=used_gib << 30)
    return config, resolve(config, machine), ModelShape.from_config(model)


def test_bytes_of_each_stage_are_those_of_all_processes() -> None:
    changes: dict[str, object] = {"model__lora": {"rank": 16}, "engine__replicas": 2, "engine__cpu_kv_cache_gib": 3}
    _, resolved, shape = on_cores(QWEN_1_5B | {"dtype": "bfloat16"}, 64, **changes)
    ledger = compute_ledger(resolved, shape)
    stages = {stage.name: stage.host for stage in ledger.stages}
    table, adapters = 151_936 * 1536, 18_464_768
    linear = 1_543_714_304 - table - 28 * (2 * 1536 + 2048) - 1536  # without norms and biases
    sample = stages["sample"]
    # Under adapters, float32 weights that were bfloat16 in the files are stored as they were.
    assert sample["frozen weights"] == 2 * linear + 4 * (1_543_714_304 - linear)
    assert (sample["parameters"], sample["Adam"]) == (4 * adapters, 8 * adapters)
    assert sample["engine weights"] == 2 * 4 * 1_543_714_304
    assert sample["packed head"] == 2 * 4 * table
    assert sample["cache"] == 2 * 3 << 30
    assert stages["sync"]["transfer"] == 2 * ((512 << 20) + 4 * table)
    assert stages["export"]["model"] == MAX_FILE_BYTES
    assert sum(stages["update"].values()) > sum(sample.values())
    assert ledger.engine is not None
    assert ledger.engine.cache_tokens == (3 << 30) // (28 * 2 * 2 * 128 * 4)


@pytest.mark.parametrize(
    ("dtype", "changes", "compact"),
    [
        ("bfloat16", {"learner__dtype": "bfloat16"}, 0),
        ("bfloat16", {"learner__zero_stage": 3}, 0),
        ("float32", {}, 0),
        ("bfloat16", {"model__lora": {"rank": 16, "target_modules": ["q_proj"]}}, 28 * 1536 * 1536),
    ],
)
def test_frozen_weights_that_are_stored_in_bfloat16(dtype: str, changes: dict[str, object], compact: int) -> None:
    _, resolved, shape = on_cores(QWEN_1_5B | {"dtype": dtype}, 64, **{"model__lora": {"rank": 16}} | changes)
    models = compute_ledger(resolved, shape).learner.models
    assert [model.compact_parameters for model in models] == [compact]


def test_run_that_does_not_fit_the_machine_is_refused_with_a_remedy() -> None:
    full = on_cores(QWEN_1_5B, 48, learner__max_row_tokens=16384, engine__max_sequences=1024)
    with pytest.raises(ConfigError, match=r"update: host would need \d+\.\d GiB and has 48\.0 GiB") as raised:
        require_room(*full)
    advised = re.search(r"it would fit with (--.*) \((.*)\); adapters \(model\.lora\)", str(raised.value))
    assert advised is not None
    words = advised.group(1).split()
    changes = {
        name.removeprefix("--").replace(".", "__"): value for name, value in zip(words[::2], words[1::2], strict=True)
    }
    require_room(
        *on_cores(QWEN_1_5B, 48, **{"learner__max_row_tokens": 16384, "engine__max_sequences": 1024} | changes)
    )
    with pytest.raises(ConfigError, match="no change of its settings makes it fit here; adapters"):
        require_room(*on_cores(QWEN_1_5B, 8))


def test_cache_too_small_for_one_sample_is_refused_with_a_larger_one() -> None:
    adapters: dict[str, object] = {"model__lora": {"rank": 16}, "rollout__max_response_tokens": 30_000}
    with pytest.raises(
        ConfigError, match=r"cache for one sample .*\n.*--engine\.cpu_kv_cache_gib 4 \(a larger cache\)"
    ):
        require_room(*on_cores(QWEN_1_5B, 256, **adapters))
    require_room(*on_cores(QWEN_1_5B, 256, **adapters, engine__cpu_kv_cache_gib=4))


def test_memory_of_other_programs_is_a_warning() -> None:
    _, resolved, shape = on_cores(QWEN_1_5B, 64, used_gib=60, model__lora={"rank": 16})
    warning = crowded_memory(resolved, shape) or ""
    assert "of CPU memory and has 4.0 GiB free (frozen weights 5.8 GiB, " in warning
    assert warning.endswith("60.0 GiB are used by other programs")
    assert crowded_memory(*on_cores(QWEN_1_5B, 64, used_gib=20, model__lora={"rank": 16})[1:]) is None


def test_available_memory_is_that_of_the_system() -> None:
    machine, psutil_free = this_machine(), psutil.virtual_memory().available
    assert machine.host_bytes - machine.host_used_bytes == pytest.approx(psutil_free, rel=0.05)
