"""All optimizer steps of one training step: how samples are cut, packed and sent to the ranks. No torch."""

import time
from collections.abc import Sequence

from torl.learner.batch import Batch, carries_advantage, has_loss, pack_batch
from torl.learner.messages import LearnerSetup
from torl.learner.mini_batches import mini_batches
from torl.learner.ranks import RankGroup
from torl.learner.reports import combine_reports, explained_variance
from torl.types import TrainingSample


async def take_steps(
    group: RankGroup, setup: LearnerSetup, samples: Sequence[TrainingSample], step: int
) -> dict[str, float]:
    """The critic's optimizer steps, then the policy's; see `Learner.update`."""
    start = time.perf_counter()
    metrics: dict[str, float] = {"updates": 0}
    if setup.algorithm.needs_critic:
        metrics |= await _train_critic(group, setup, samples, step)
    if not setup.algorithm.needs_critic or step >= setup.critic.pretrain_steps:
        metrics |= await _train_policy(group, setup, samples, step)
    return metrics | {"seconds": time.perf_counter() - start}


async def _train_policy(
    group: RankGroup, setup: LearnerSetup, samples: Sequence[TrainingSample], step: int
) -> dict[str, float]:
    algorithm = setup.algorithm
    names = ["advantages"]
    if algorithm.optimizer_steps > 1:
        names.append("old_logprobs")
    if algorithm.needs_reference:
        names.append("ref_logprobs")
    _require(samples, names)
    reports = []
    for part in mini_batches(samples, algorithm.epochs, algorithm.mini_batches, (setup.seed, step, "policy")):
        chosen = [samples[index] for index in part]
        if not (has_loss(chosen) if algorithm.learns_without_advantage else any(map(carries_advantage, chosen))):
            continue
        batch = pack_batch(
            chosen,
            max_row_tokens=setup.learner.resolved_row_tokens,
            ranks=len(group.ranks),
            ranks_per_row=setup.learner.sequence_parallel,
            aggregation=algorithm.aggregation.bind(),
            skip_zero_advantage=not algorithm.learns_without_advantage,
        )
        reports.append(await _take_step(group, "update_policy", batch, setup.learner.sequence_parallel))
    return combine_reports(reports) | {"updates": len(reports)}


async def _train_critic(
    group: RankGroup, setup: LearnerSetup, samples: Sequence[TrainingSample], step: int
) -> dict[str, float]:
    critic = setup.critic
    _require(samples, ["values", "returns"])
    reports = []
    for part in mini_batches(samples, critic.epochs, critic.mini_batches, (setup.seed, step, "critic")):
        chosen = [samples[index] for index in part]
        if has_loss(chosen):
            learner = setup.learner
            sharing = learner.sequence_parallel
            rows = learner.resolved_row_tokens
            batch = pack_batch(chosen, max_row_tokens=rows, ranks=len(group.ranks), ranks_per_row=sharing)
            reports.append(await _take_step(group, "update_critic", batch, setup.learner.sequence_parallel))
    if not reports:
        return {}
    metrics = {f"critic_{name}": value for name, value in combine_reports(reports).items()}
    return metrics | {"critic_explained_variance": explained_variance(samples)}


async def _take_step(group: RankGroup, command: str, batch: Batch, sharing: int) -> dict[str, float]:
    arguments = [{"rows": rows, "sampled_tokens": batch.sampled_tokens} for rows in batch.rows]
    metrics: dict[str, float] = (await group.call(command, arguments))[0]
    return {
        **metrics,
        "tokens": batch.tokens,
        "sampled_tokens": batch.sampled_tokens,
        "samples": batch.samples,
        "rows": sum(len(row.samples) > 0 for rows in batch.rows[::sharing] for row in rows),
    }


def _require(samples: Sequence[TrainingSample], names: Sequence[str]) -> None:
    """Raise ValueError where a sample lacks what an update would otherwise take for zero."""
    for index, sample in enumerate(samples):
        for name in names:
            if getattr(sample, name) is None:
                raise ValueError(
                    f"sample {index} has no {name}: see Learner.prepare and torl.training.samples.with_advantages"
                )
