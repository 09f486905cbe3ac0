"""Two ranks that share each row, through the learner's processes, against plain torch one sample at a time."""

from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForCausalLM

from learner_fixtures import (
    GRADIENT_CLIP,
    LEARNING_RATE,
    TEMPERATURE,
    plain_logprobs,
    plain_steps,
    random_samples,
    read_weights,
    relative_distance,
    start_learner,
    write_tiny_model,
)
from torl.base.errors import DataError
from torl.base.types import UpdateNumbers
from torl.run.config import AlgorithmConfig

# The second batch is one short sample: a rank whose slice of the row has no sampled token at all.
STEPS = [random_samples(7, seed=1), random_samples(1, seed=2, shortest=5, longest=5), random_samples(6, seed=3)]

pytestmark = pytest.mark.usefixtures("forked_ranks")


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("long-model"))


@pytest.mark.parametrize(("zero_stage", "ranks", "max_row_tokens"), [(3, 2, 17), (2, 4, 4096)])
async def test_ranks_that_share_rows_learn_as_one_rank(
    zero_stage: int, ranks: int, max_row_tokens: int, model_directory: Path, tmp_path: Path
) -> None:
    expected, losses, norms = plain_steps(
        model_directory, STEPS, temperature=TEMPERATURE, learning_rate=LEARNING_RATE, gradient_clip=GRADIENT_CLIP
    )
    learner = await start_learner(
        model_directory,
        tmp_path / "logs",
        zero_stage=zero_stage,
        ranks=ranks,
        max_row_tokens=max_row_tokens,
        sequence_parallel=2,
        algorithm=AlgorithmConfig.model_validate({"kl": {"coefficient": 1e-9}}),
    )
    async with learner:
        assert not learner._group.shares_prompts  # each rank has a slice of a row
        prepared = await learner.annotate(STEPS[0])
        recorded: dict[int, UpdateNumbers | None] = dict.fromkeys(range(len(prepared)))
        metrics = [await learner.update(prepared, step=0, recorded=recorded)]
        for step in (1, 2):
            metrics.append(await learner.update(await learner.annotate(STEPS[step]), step=step))
        await learner.export(tmp_path / "model")
    assert [row["loss"] for row in metrics] == pytest.approx(losses, rel=1e-6, abs=1e-7)
    assert [row["gradient_norm"] for row in metrics] == pytest.approx(norms, rel=1e-6)
    assert [row["sampled_tokens"] for row in metrics] == [sum(int(s.loss_mask.sum()) for s in part) for part in STEPS]
    assert relative_distance(read_weights(tmp_path / "model"), expected) < 1e-6

    base = AutoModelForCausalLM.from_pretrained(model_directory, attn_implementation="eager").eval()
    for index, sample in enumerate(prepared):
        plain = plain_logprobs(base, sample, TEMPERATURE).detach().numpy() * sample.loss_mask[1:]
        assert sample.ref_logprobs is not None
        np.testing.assert_allclose(sample.ref_logprobs[1:], plain, atol=2e-5)
        numbers = recorded[index]
        assert numbers is not None
        found = numbers.arrays["learner_logprobs"]
        np.testing.assert_allclose(found, plain[sample.loss_mask[1:]], atol=2e-5)


async def test_ranks_that_cannot_be_divided_are_refused(model_directory: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"learner\.sequence_parallel = 2 does not divide 1 ranks"):
        await start_learner(model_directory, tmp_path / "logs", sequence_parallel=2)
