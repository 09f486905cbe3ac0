"""`learner.max_row_tokens` and `learner.gradient_checkpointing` at "auto": as the memory of the update allows."""

from dataclasses import replace
from typing import Any

import pytest

from placement_models import QWEN_1_5B, QWEN_7B
from torl.components.hub.shape import ModelShape
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.placement.fit import with_update_settings
from torl.run.placement.ledger import compute_ledger
from torl.run.placement.machine import Machine, combine_machines
from torl.run.placement.resolve import ResolvedConfig, resolve

SHAPES = {"torl_1.5b": ModelShape.from_config(QWEN_1_5B), "torl_7b": ModelShape.from_config(QWEN_7B)}
SAMPLE = 1024 + 3072  # of both presets, at most: prompts of evaluations are the longest


def settled(preset: str, gpus: int, gib: float, nodes: int = 1, **changes: Any) -> ResolvedConfig[TrainConfig]:
    changes = {name.replace("__", "."): value for name, value in changes.items()}
    config = load_config(TrainConfig, find_config(preset), changes)
    machine = Machine.with_gpus(gpus, int(gib * 2**30), cores=64, host_bytes=4 << 40)
    if nodes > 1:
        machine = combine_machines([machine] * nodes)
    return with_update_settings(resolve(config, machine), SHAPES[preset])


def update_bytes(of: ResolvedConfig[TrainConfig], shape: ModelShape, rows: int) -> int:
    learner = of.config.learner.model_copy(update={"max_row_tokens": rows})
    book = compute_ledger(replace(of, config=of.config.model_copy(update={"learner": learner})), shape)
    (update,) = [stage for stage in book.stages if stage.name == "update"]
    return sum(update.on_gpu(0, of.placement).values())


@pytest.mark.parametrize(
    ("preset", "gpus", "gib", "recomputes"),
    [
        *[("torl_7b", 8, 46, True), ("torl_7b", 4, 64, True), ("torl_1.5b", 2, 30, True)],
        *[("torl_7b", 8, 79.6, False), ("torl_1.5b", 1, 79.6, False), ("torl_1.5b", 8, 79.6, False)],
    ],
)
def test_one_step_longer_would_leave_less_than_a_tenth(preset: str, gpus: int, gib: float, recomputes: bool) -> None:
    of = settled(preset, gpus, gib)
    assert of.config.learner.gradient_checkpointing is recomputes
    rows = of.config.learner.max_row_tokens
    assert isinstance(rows, int)
    assert SAMPLE < rows < 32_768
    assert rows % 1024 == 0
    limit = 0.9 * gib * 2**30
    assert update_bytes(of, SHAPES[preset], rows) <= limit < update_bytes(of, SHAPES[preset], rows + 1024)


def test_with_memory_to_spare_rows_are_as_long_as_helps() -> None:
    assert settled("torl_1.5b", 8, 79.6, learner__gradient_checkpointing=True).config.learner.max_row_tokens == 32_768


def test_activations_are_recomputed_if_rows_would_be_short() -> None:
    """Rows of fewer than 4,096 tokens leave a GPU idle, and cost ZeRO-3 more gathers."""
    short = {"rollout__max_response_tokens": 1000, "data__max_prompt_tokens": 200, "evaluation__max_prompt_tokens": 200}
    for gib, recomputes in ((24, True), (48, True), (79.6, False)):
        assert settled("torl_7b", 8, gib, **short).config.learner.gradient_checkpointing is recomputes


def test_zero_3_recomputes_across_nodes() -> None:
    assert settled("torl_7b", 8, 79.6).config.learner.gradient_checkpointing is False
    assert settled("torl_7b", 4, 79.6, nodes=2).config.learner.gradient_checkpointing is True
    assert settled("torl_1.5b", 4, 79.6, nodes=2).config.learner.gradient_checkpointing is False


@pytest.mark.parametrize("configured", [True, False])
def test_configured_recomputation_is_kept(configured: bool) -> None:
    for gib in (24, 79.6):
        learner = settled("torl_1.5b", 8, gib, learner__gradient_checkpointing=configured).config.learner
        assert learner.gradient_checkpointing is configured


def test_configured_rows_are_kept_with_or_without_their_activations() -> None:
    for rows, recomputes in ((8192, False), (30_000, True)):
        learner = settled("torl_1.5b", 8, 79.6, learner__max_row_tokens=rows).config.learner
        assert (learner.max_row_tokens, learner.gradient_checkpointing) == (rows, recomputes)


def test_without_room_a_row_is_the_longest_sample_or_a_rank_s_part_of_it() -> None:
    assert settled("torl_7b", 1, 40).config.learner.max_row_tokens == SAMPLE
    assert settled("torl_7b", 4, 20, learner__sequence_parallel=4).config.learner.max_row_tokens == SAMPLE // 4


def test_configured_value_is_kept() -> None:
    assert settled("torl_7b", 8, 79.6, learner__max_row_tokens=5000).config.learner.max_row_tokens == 5000


def test_where_nothing_is_counted_rows_have_a_length_still() -> None:
    config = load_config(TrainConfig, find_config("torl_7b"), {"learner.max_row_tokens": "auto"})
    of = with_update_settings(resolve(config, Machine((), cores=8, host_bytes=1 << 40)), SHAPES["torl_7b"])
    assert of.config.learner.resolved_row_tokens == 4096
    assert of.config.learner.gradient_checkpointing == "auto"  # which the ranks take for true
