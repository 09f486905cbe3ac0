"""`learner.max_row_tokens = "auto"`: rows as long as the update leaves room for, and no longer than helps."""

from dataclasses import replace
from typing import Any

import pytest

from placement_models import QWEN_1_5B, QWEN_7B
from torl.config import TrainConfig
from torl.config.loading import find_config, load_config
from torl.placement.fit import with_update_settings
from torl.placement.ledger import compute_ledger
from torl.placement.machine import Machine
from torl.placement.resolve import ResolvedConfig, resolve
from torl.placement.shape import ModelShape

SHAPES = {"torl_1.5b": ModelShape.from_config(QWEN_1_5B), "torl_7b": ModelShape.from_config(QWEN_7B)}
SAMPLE = 1024 + 3072  # of both presets, at most: prompts of evaluations are the longest


def settled(preset: str, gpus: int, gib: float, **changes: Any) -> ResolvedConfig[TrainConfig]:
    changes = {"learner.max_row_tokens": "auto", **{name.replace("__", "."): value for name, value in changes.items()}}
    config = load_config(TrainConfig, find_config(preset), changes)
    machine = Machine.with_gpus(gpus, int(gib * 2**30), cores=64, host_bytes=4 << 40)
    return with_update_settings(resolve(config, machine), SHAPES[preset])


def update_bytes(of: ResolvedConfig[TrainConfig], shape: ModelShape, rows: int) -> int:
    learner = of.config.learner.model_copy(update={"max_row_tokens": rows})
    book = compute_ledger(replace(of, config=of.config.model_copy(update={"learner": learner})), shape)
    (update,) = [stage for stage in book.stages if stage.name == "update"]
    return sum(update.on_gpu(0, of.placement).values())


@pytest.mark.parametrize(("preset", "gpus", "gib"), [("torl_7b", 8, 46), ("torl_7b", 4, 64), ("torl_1.5b", 2, 30)])
def test_one_step_longer_would_leave_less_than_a_tenth(preset: str, gpus: int, gib: float) -> None:
    of = settled(preset, gpus, gib)
    rows = of.config.learner.max_row_tokens
    assert isinstance(rows, int)
    assert SAMPLE < rows < 32_768
    assert rows % 1024 == 0
    limit = 0.9 * gib * 2**30
    assert update_bytes(of, SHAPES[preset], rows) <= limit < update_bytes(of, SHAPES[preset], rows + 1024)


def test_with_memory_to_spare_rows_are_as_long_as_helps() -> None:
    assert settled("torl_1.5b", 8, 79.6).config.learner.max_row_tokens == 32_768


def test_without_room_a_row_is_the_longest_sample_or_a_rank_s_part_of_it() -> None:
    assert settled("torl_7b", 1, 40).config.learner.max_row_tokens == SAMPLE
    assert settled("torl_7b", 4, 20, learner__sequence_parallel=4).config.learner.max_row_tokens == SAMPLE // 4


def test_configured_value_is_kept() -> None:
    assert settled("torl_7b", 8, 79.6, learner__max_row_tokens=5000).config.learner.max_row_tokens == 5000


def test_where_nothing_is_counted_rows_have_a_length_still() -> None:
    config = load_config(TrainConfig, find_config("torl_7b"), {"learner.max_row_tokens": "auto"})
    of = with_update_settings(resolve(config, Machine((), cores=8, host_bytes=1 << 40)), SHAPES["torl_7b"])
    assert of.config.learner.resolved_row_tokens == 4096
