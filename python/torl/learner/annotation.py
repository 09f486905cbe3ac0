"""What the models say of samples before the first update on them: whatever the algorithm asks for. No torch."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from torl.config import AlgorithmConfig, LearnerConfig
from torl.learner.batch import has_loss, pack_batch, scatter_to_samples
from torl.learner.messages import Annotation
from torl.learner.ranks import RankGroup
from torl.types import Float32Array, TrainingSample


def wanted_annotations(algorithm: AlgorithmConfig) -> list[Annotation]:
    """The trainer's own logprobs, the reference policy's, the critic's values: those that the algorithm asks for."""
    wanted: list[Annotation] = []
    if algorithm.needs_old_logprobs:
        wanted.append("old_logprobs")
    if algorithm.needs_reference:
        wanted.append("ref_logprobs")
    if algorithm.needs_critic:
        wanted.append("values")
    return wanted


async def annotate(
    group: RankGroup, samples: Sequence[TrainingSample], wanted: Sequence[Annotation], learner: LearnerConfig
) -> list[TrainingSample]:
    """The samples with these numbers on their sampled tokens; without a sampled token anywhere, nothing is computed."""
    if not wanted or not has_loss(samples):
        return [_annotated(sample, {name: np.zeros(len(sample), np.float32) for name in wanted}) for sample in samples]
    sharing = learner.sequence_parallel
    batch = pack_batch(
        samples, max_row_tokens=learner.resolved_row_tokens, ranks=len(group.ranks), ranks_per_row=sharing
    )
    answers = await group.call("annotate", [{"rows": rows, "wanted": tuple(wanted)} for rows in batch.rows])
    answers = answers[::sharing]  # neighbors that share rows say the same
    rows = [row for rank_rows in batch.rows[::sharing] for row in rank_rows]
    annotations = {
        name: scatter_to_samples(samples, rows, [values for answer in answers for values in answer[name]])
        for name in wanted
    }
    return [
        _annotated(sample, {name: arrays[index] for name, arrays in annotations.items()})
        for index, sample in enumerate(samples)
    ]


def _annotated(sample: TrainingSample, arrays: Mapping[Annotation, Float32Array]) -> TrainingSample:
    return replace(sample, **dict[str, Any](arrays))  # type: ignore[arg-type]
