"""The responses of a batch after the prompts of the reference model, if these differ from the policy's."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from torl.base.types import Int32Array, Problem, Prompt, ScoredGroup, TrainingSample
from torl.run.config import KlConfig


def with_teacher_prompts(
    samples: Sequence[TrainingSample],
    groups: Sequence[ScoredGroup],
    kl: KlConfig,
    encode: Callable[[Problem], Prompt],
    max_tokens: int,
) -> tuple[list[TrainingSample], int]:
    """Add to each sample the same response after the prompt that `kl.prompt` returns (`reference_sample`).

    A sample that would be longer than `max_tokens` keeps the prompt of the policy: the model may have no positions
    beyond, and none of them is planned in its memory.

    Args:
        samples: Sample of each trajectory, without annotations.
        groups: Groups of the trajectories, in the same order. Each episode has a single trajectory.
        kl: Section with the function of the prompts.
        encode: Function that puts a problem into the run's template and encodes it.
        max_tokens: Maximum number of tokens of a prompt and its response (`config.longest_sample`).

    Returns:
        The samples, and the number of those whose other prompt is too long.

    Raises:
        ComponentError: The function raised an exception, or returned an invalid value.
    """
    if kl.prompt is None:
        return list(samples), 0
    teacher_prompt = kl.prompt.bind()
    members = [(member, group) for group in groups for member in group.members]
    found, too_long = [], 0
    for sample, (member, group) in zip(samples, members, strict=True):
        problem = teacher_prompt(member, group)
        if problem is not None:
            own = member.trajectory.prompt
            prompt = encode(problem)
            variants = {each.variant: each for each in (*prompt.variants, prompt)}
            token_ids = np.asarray(variants.get(own.variant, prompt).token_ids, np.int32)
            seen = _behind(token_ids, sample, len(own.token_ids))
            fits = len(seen) <= max_tokens
            sample = replace(sample, reference_sample=seen) if fits else sample
            too_long += not fits
        found.append(sample)
    return found, too_long


def _behind(prompt: Int32Array, sample: TrainingSample, prompt_tokens: int) -> TrainingSample:
    """Return the response of a sample, whose first `prompt_tokens` are its prompt, after another prompt."""
    nothing = np.zeros(len(prompt))
    return TrainingSample(
        token_ids=np.concatenate([prompt, sample.token_ids[prompt_tokens:]]),
        loss_mask=np.concatenate([nothing.astype(np.bool_), sample.loss_mask[prompt_tokens:]]),
        rollout_logprobs=np.concatenate([nothing.astype(np.float32), sample.rollout_logprobs[prompt_tokens:]]),
    )
