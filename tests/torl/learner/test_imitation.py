"""Imitated tokens through the learner's processes, against plain torch one sample at a time."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

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
from torl.base.types import TrainingSample

pytestmark = pytest.mark.usefixtures("forked_ranks")


def imitating(samples: list[TrainingSample], seed: int) -> list[TrainingSample]:
    """Weights on about half of all tokens but the first, except in every third sample."""
    generator = np.random.default_rng(seed)
    found = []
    for index, sample in enumerate(samples):
        weights = generator.uniform(0.05, 0.5, len(sample)) * (generator.random(len(sample)) < 0.5)
        weights[0] = 0
        found.append(sample if index % 3 == 0 else replace(sample, imitation_weights=weights.astype(np.float32)))
    return found


def demonstrations(samples: list[TrainingSample]) -> list[TrainingSample]:
    """Samples for fine-tuning: no token was sampled, and the tokens after the prompt are imitated."""
    nothing = [np.zeros(len(sample), np.float32) for sample in samples]
    return [
        replace(
            sample,
            loss_mask=np.zeros_like(sample.loss_mask),
            rollout_logprobs=zeros,
            advantages=zeros,
            imitation_weights=sample.loss_mask.astype(np.float32),
        )
        for sample, zeros in zip(samples, nothing, strict=True)
    ]


@pytest.mark.parametrize(
    ("zero_stage", "ranks", "max_row_tokens", "sequence_parallel"), [(0, 1, 4096, 1), (2, 2, 41, 1), (3, 2, 41, 2)]
)
async def test_imitation_equals_plain_torch(
    zero_stage: int, ranks: int, max_row_tokens: int, sequence_parallel: int, tmp_path: Path
) -> None:
    """With a policy loss, alone, and then without imitation: the second rank has no imitated token at first."""
    steps = [
        imitating(random_samples(7, seed=1), 1),
        demonstrations(random_samples(5, seed=2)),
        random_samples(4, seed=3),
    ]
    model_directory = write_tiny_model(tmp_path / "model")
    expected, losses, norms = plain_steps(
        model_directory, steps, temperature=TEMPERATURE, learning_rate=LEARNING_RATE, gradient_clip=GRADIENT_CLIP
    )
    learner = await start_learner(
        model_directory,
        tmp_path / "logs",
        zero_stage=zero_stage,
        ranks=ranks,
        max_row_tokens=max_row_tokens,
        sequence_parallel=sequence_parallel,
    )
    async with learner:
        metrics = [await learner.update(samples, step=step) for step, samples in enumerate(steps)]
        await learner.export(tmp_path / "trained")
    assert [row["loss"] for row in metrics] == pytest.approx(losses, rel=1e-6, abs=1e-7)
    assert [row["gradient_norm"] for row in metrics] == pytest.approx(norms, rel=1e-6)
    found = read_weights(tmp_path / "trained")
    assert distance_after_adamw(found, expected, max_update=2 * len(steps) * LEARNING_RATE) < 1e-6
    assert metrics[1]["imitation_loss"] == pytest.approx(metrics[1]["loss"], rel=1e-6)  # nothing else is learned
    counts = [sum(np.count_nonzero(each.imitation_weights) for each in samples) for samples in steps[:2]]
    assert [row["imitated_tokens"] for row in metrics[:2]] == counts
    assert not {"imitated_tokens", "imitation_loss"} & metrics[2].keys()
