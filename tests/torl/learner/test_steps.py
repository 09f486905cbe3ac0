"""The learner against plain torch: every ZeRO stage, one and two ranks, any row length; and bit-equal resume."""

import json
from pathlib import Path

import pytest
import torch

from learner_fixtures import (
    GRADIENT_CLIP,
    LEARNING_RATE,
    TEMPERATURE,
    distance_after_adamw,
    plain_steps,
    random_samples,
    read_weights,
    start_learner,
    write_tiny_model,
)
from torl.base.errors import CheckpointError
from torl.learner.checkpoint.directory import MANIFEST, checkpoint_path, latest_checkpoint

STEPS = [random_samples(9, seed=1), random_samples(1, seed=2), random_samples(6, seed=3)]
SECONDS = {"seconds": 0.0, "update_seconds": 0.0}  # what may differ between equal steps

pytestmark = pytest.mark.usefixtures("forked_ranks")


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model with tied embeddings."""
    return write_tiny_model(tmp_path_factory.mktemp("learner-model"))


@pytest.fixture(scope="module")
def plain(model_directory: Path) -> tuple[dict[str, torch.Tensor], list[float], list[float]]:
    """The same steps in plain torch."""
    return plain_steps(
        model_directory, STEPS, temperature=TEMPERATURE, learning_rate=LEARNING_RATE, gradient_clip=GRADIENT_CLIP
    )


# Rows of 41 tokens hold one or two samples; a batch of one sample leaves the second rank without any.
@pytest.mark.parametrize(
    ("zero_stage", "ranks", "max_row_tokens", "max_stored_logits", "checkpointing"),
    [
        (0, 1, 41, 1 << 20, False),
        (1, 1, 4096, 200, False),
        (2, 1, 90, 1 << 20, True),
        (3, 1, 41, 1 << 20, False),
        (0, 2, 4096, 1 << 20, True),
        (1, 2, 41, 1 << 20, False),
        (2, 2, 41, 1, False),
        # One token at a time: a rank with more of them must not wait for one that has fewer.
        (3, 2, 90, 1, True),
    ],
)
async def test_steps_equal_plain_torch_and_resume_is_bit_equal(
    zero_stage: int,
    ranks: int,
    max_row_tokens: int,
    max_stored_logits: int,
    checkpointing: bool,
    model_directory: Path,
    plain: tuple[dict[str, torch.Tensor], list[float], list[float]],
    tmp_path: Path,
) -> None:
    expected, losses, norms = plain
    learner = await start_learner(
        model_directory,
        tmp_path / "logs",
        zero_stage=zero_stage,
        ranks=ranks,
        max_row_tokens=max_row_tokens,
        max_stored_logits=max_stored_logits,
        gradient_checkpointing=checkpointing,
    )
    checkpoint = checkpoint_path(tmp_path, 2)
    async with learner:
        assert learner._group.shares_prompts
        metrics = [await learner.update(samples, step=step) for step, samples in enumerate(STEPS[:2])]
        await learner.save_checkpoint(checkpoint, {"position": [3, 4]})
        metrics.append(await learner.update(STEPS[2], step=2))
        await learner.export(tmp_path / "straight")
        assert latest_checkpoint(tmp_path) == checkpoint
        assert await learner.load_checkpoint(checkpoint) == {"position": [3, 4]}
        assert await learner.update(STEPS[2], step=2) | SECONDS == metrics[2] | SECONDS
        await learner.export(tmp_path / "resumed")

    for found, loss, norm in zip(metrics, losses, norms, strict=True):
        assert found["loss"] == pytest.approx(loss, rel=1e-6, abs=1e-7)
        assert found["gradient_norm"] == pytest.approx(norm, rel=1e-6)
    straight = read_weights(tmp_path / "straight")
    assert distance_after_adamw(straight, expected, max_update=2 * len(STEPS) * LEARNING_RATE) < 2e-7
    resumed = read_weights(tmp_path / "resumed")
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)


@pytest.mark.parametrize("zero_stage", [0, 1])
async def test_first_update_in_bfloat16_is_adamw_s_first(
    zero_stage: int, model_directory: Path, tmp_path: Path
) -> None:
    """It changes each weight by the learning rate. A step before it would count in the bias correction: 0.74 of it."""
    settings = {"zero_stage": zero_stage, "dtype": "bfloat16", "ranks": 1, "learning_rate": 0.02}
    async with await start_learner(model_directory, tmp_path / "logs", **settings) as learner:
        await learner.export(tmp_path / "before")
        await learner.update(STEPS[0], step=0)
        await learner.export(tmp_path / "after")
    before, after = read_weights(tmp_path / "before"), read_weights(tmp_path / "after")
    name = "model.layers.0.mlp.down_proj.weight"
    assert (after[name].float() - before[name].float()).abs().median() == pytest.approx(0.02, rel=0.02)


@pytest.mark.parametrize(("zero_stage", "dtype"), [(1, "bfloat16"), (3, "float32")])
async def test_new_processes_go_on_bit_equal_from_a_checkpoint(
    zero_stage: int, dtype: str, model_directory: Path, tmp_path: Path
) -> None:
    settings = {"zero_stage": zero_stage, "dtype": dtype, "ranks": 2, "lr_schedule": "cosine", "warmup_steps": 1}
    checkpoint = checkpoint_path(tmp_path, 1)
    async with await start_learner(model_directory, tmp_path / "logs", **settings) as learner:
        await learner.update(STEPS[0], step=0)
        await learner.save_checkpoint(checkpoint, {})
        straight_metrics = await learner.update(STEPS[2], step=2)
        await learner.export(tmp_path / "straight")

    async with await start_learner(model_directory, tmp_path / "logs", **settings) as learner:
        manifest = json.loads((checkpoint / MANIFEST).read_text())
        changed = manifest | {"facts": manifest["facts"] | {"critic": True}}
        (checkpoint / MANIFEST).write_text(json.dumps(changed))
        with pytest.raises(CheckpointError, match="'critic': True"):
            await learner.load_checkpoint(checkpoint)
        (checkpoint / MANIFEST).write_text(json.dumps(manifest))

        await learner.load_checkpoint(checkpoint)
        metrics = await learner.update(STEPS[2], step=2)
        await learner.export(tmp_path / "resumed")
    assert metrics | SECONDS == straight_metrics | SECONDS
    straight, resumed = read_weights(tmp_path / "straight"), read_weights(tmp_path / "resumed")
    assert straight.keys() == resumed.keys()
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)
