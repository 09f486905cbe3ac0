"""Checkpoints continue at another ZeRO stage and on other ranks; a learner leaves its memory and comes back."""

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
    start_learner,
    write_tiny_model,
)
from rank_chain import run_chain
from rank_forks import call_forked
from torl.learner.checkpoint.shards import read_policy_weights


@pytest.mark.parametrize("precision", ["float32", pytest.param("bfloat16", marks=pytest.mark.slow)])
def test_checkpoint_of_one_learner_is_loaded_by_another(precision: str, tmp_path: Path) -> None:
    model, directory = write_tiny_model(tmp_path / "model"), tmp_path / "checkpoints"
    directory.mkdir()
    links = call_forked(run_chain, model, directory, precision)
    assert len(links) >= 3
    for link in links:
        assert link["as_written"], link  # the restored state is the written one, to the bit
        assert link["came_back"], link
        assert link["parameters_follow_masters"], link
        assert set(link["left"]) == {""}, link  # nothing that moved to the host stayed on the device
    if precision == "float32":
        steps = [random_samples(9, seed=1), random_samples(5, seed=2), random_samples(6, seed=3)]
        expected, _, _ = plain_steps(
            model, steps, temperature=TEMPERATURE, learning_rate=LEARNING_RATE, gradient_clip=GRADIENT_CLIP
        )
        found = read_policy_weights(Path(links[-1]["directory"]))
        detached = {name: tensor.detach() for name, tensor in expected.items()}
        assert distance_after_adamw(found, detached, max_update=2 * len(steps) * LEARNING_RATE) < 2e-7


@pytest.mark.usefixtures("forked_ranks")
async def test_digest_of_the_weights_is_equal_on_other_ranks(tmp_path: Path) -> None:
    model = write_tiny_model(tmp_path / "model")
    digests = []
    for stage, ranks in ((0, 1), (1, 2), (3, 2)):
        learner = await start_learner(model, tmp_path / f"logs_{stage}", zero_stage=stage, ranks=ranks)
        try:
            digests.append(await learner.weight_digest())
            if ranks == 1:
                await learner.update(random_samples(4), step=0)
                changed = await learner.weight_digest()
        finally:
            await learner.close()
    assert len(set(digests)) == 1
    assert changed != digests[0]


def test_a_checkpoint_that_lacks_a_rank_s_part_is_refused(tmp_path: Path) -> None:
    from torl.base.errors import CheckpointError
    from torl.learner.checkpoint.snapshot import write_shard

    pieces = {"master/a": torch.arange(4.0)}
    facts = {"facts": {"steps": 0, "counters": {}}, "fragments": {"a": (0, 4, (8,))}}
    described = write_shard(tmp_path / "policy_rank_00000.safetensors", pieces, {"torl": json.dumps(facts)})
    assert described["bytes"] == (tmp_path / "policy_rank_00000.safetensors").stat().st_size
    with pytest.raises(CheckpointError, match="element 4 of a is in no file"):
        read_policy_weights(tmp_path)
