"""Training samples, the learner's view of trajectories; its numbers of their tokens; types of arrays."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Int32Array: TypeAlias = npt.NDArray[np.int32]
Float32Array: TypeAlias = npt.NDArray[np.float32]
BoolArray: TypeAlias = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class TrainingSample:
    """The learner's view of a trajectory: tokens, mask and annotations, without any knowledge of tools.

    All arrays have one entry for each token of prompt and response. On prompts and observations, the mask is False and
    the other arrays are 0. An array is None before it is computed, or if the algorithm does not need it.

    Attributes:
        token_ids: Tokens of prompt and response.
        loss_mask: True for sampled tokens that enter the loss.
        rollout_logprobs: Log-probabilities according to the engine.
        advantages: Advantages.
        old_logprobs: Log-probabilities according to the learner, before the first update of the step.
        token_rewards: Rewards of single tokens, in addition to the reward at the end.
        ref_logprobs: Log-probabilities according to the reference model.
        entropies: Entropies of the learner's policy, before the first update of the step.
        collision_probs: Sums of the squared probabilities of all tokens, according to the learner's policy, before the
            first update of the step: the probability that two samples are equal.
        batch_values: Values of a policy loss that depend on the whole batch (`requires(batch_values=...)`).
        values: Values according to the critic, before the first update of the step.
        returns: Value targets of the critic.
        episode: Number of the episode, equal for all of its samples. None for an episode with a single sample.
        policy_versions: Versions of the policy that sampled the tokens; -1 for tokens that were not sampled.
        imitation_weights: Weights of the cross-entropy of each token, at least 0. Unlike the other arrays, they may be
            above 0 on prompts and observations, and None stands for zeros.
        reference_sample: The same response after another prompt, for the reference model. None for the same prompt.
    """

    token_ids: Int32Array
    loss_mask: BoolArray
    rollout_logprobs: Float32Array
    advantages: Float32Array | None = None
    old_logprobs: Float32Array | None = None
    token_rewards: Float32Array | None = None
    ref_logprobs: Float32Array | None = None
    values: Float32Array | None = None
    returns: Float32Array | None = None
    episode: int | None = None
    policy_versions: Int32Array | None = None
    imitation_weights: Float32Array | None = None
    entropies: Float32Array | None = None
    collision_probs: Float32Array | None = None
    batch_values: Float32Array | None = None
    reference_sample: "TrainingSample | None" = None

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class UpdateNumbers:
    """The learner's numbers of a trajectory's tokens in an optimizer step.

    Attributes:
        update: Number of the mini-batch in its training step, from 0.
        arrays: Arrays (K,) over the tokens with a loss, by name: "learner_logprobs" and "entropies" before the
            optimizer step, "advantages", and if they exist "old_logprobs" (before the first optimizer step of the
            training step), "call_logprobs" (of the token that opens a call at each position, before the
            first optimizer step), "importance_weights" (of the importance correction) and "clipped" (1 if clipping
            removes the token's gradient, or clips its weight).
    """

    update: int
    arrays: Mapping[str, Float32Array]
