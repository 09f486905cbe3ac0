"""Bugs between a played trajectory and the sample that the learner sees."""

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.doctors.exhibits.catalog import END_TOKEN, exhibit
from torl.base.types import FinishReason, ScoredTrajectory, TrainingSample

_SAMPLE = "torl.training.samples:_training_sample"
_PADDING = 8


@exhibit(
    _SAMPLE,
    thread="huggingface/trl!4975",
    says="One path of the loss ignored the mask of tool tokens, so that observations were trained on, silently.",
    truth=("loss-mask", "wrong-engine", "verify:updates", "verify:metrics", "verify:logprobs"),
)
def observation_loss(original: Any) -> Any:
    """Give all tokens of a response a loss, those of observations included."""

    def sample(scored: ScoredTrajectory, rewards_turns: bool) -> TrainingSample:
        made: TrainingSample = original(scored, rewards_turns)
        in_response = np.arange(len(made)) >= len(scored.trajectory.prompt.token_ids)
        return replace(made, loss_mask=in_response)

    return sample


@exhibit(
    _SAMPLE,
    thread="mll-lab-nu/RAGEN#59",
    says="The end token was masked out together with the padding, so that stopping was never learned.",
    truth=("loss-mask", "verify:updates", "verify:metrics"),
)
def unlearned_end(original: Any) -> Any:
    """Leave the end token without a loss."""

    def sample(scored: ScoredTrajectory, rewards_turns: bool) -> TrainingSample:
        made: TrainingSample = original(scored, rewards_turns)
        mask = made.loss_mask.copy()
        if scored.trajectory.finish_reason is FinishReason.STOP:
            mask[-1] = False
        return replace(made, loss_mask=mask)

    return sample


@exhibit(
    _SAMPLE,
    thread="OpenRLHF/OpenRLHF#238",
    says="The last token of an unfinished response was replaced by an end token that the model had not sampled.",
    truth=("wrong-engine", "numeric-gap", "verify:updates", "verify:metrics", "verify:logprobs"),
    settings={"rollout.max_response_tokens": 60},
)
def forced_end(original: Any) -> Any:
    """Replace the last token of a cut response by the end token."""

    def sample(scored: ScoredTrajectory, rewards_turns: bool) -> TrainingSample:
        made: TrainingSample = original(scored, rewards_turns)
        ids = made.token_ids.copy()
        if scored.trajectory.finish_reason is FinishReason.LENGTH and made.loss_mask[-1]:
            ids[-1] = END_TOKEN
        return replace(made, token_ids=ids)

    return sample


@exhibit(
    _SAMPLE,
    thread="modelscope/ms-swift!8427",
    says="The mask of the completion was not aligned with the log-probabilities of its tokens.",
    truth=("wrong-engine", "numeric-gap", "verify:updates", "verify:metrics", "verify:logprobs"),
)
def shifted_mask(original: Any) -> Any:
    """Move the loss mask one token to the left."""

    def sample(scored: ScoredTrajectory, rewards_turns: bool) -> TrainingSample:
        made: TrainingSample = original(scored, rewards_turns)
        return replace(made, loss_mask=np.append(made.loss_mask[1:], False))

    return sample


@exhibit(
    _SAMPLE,
    thread="huggingface/trl#4974",
    says="A mask with zeros in the middle, meant for the loss, was used for attention: tool results were not attended.",
    truth=("wrong-engine", "numeric-gap", "verify:updates", "verify:metrics", "verify:logprobs"),
)
def unattended_observations(original: Any) -> Any:
    """Hide observations from the learner's attention."""

    def sample(scored: ScoredTrajectory, rewards_turns: bool) -> TrainingSample:
        made: TrainingSample = original(scored, rewards_turns)
        seen = made.loss_mask.copy()
        seen[: len(scored.trajectory.prompt.token_ids)] = True
        arrays = ("token_ids", "loss_mask", "rollout_logprobs", "policy_versions", "token_rewards")
        kept = {name: array[seen] for name in arrays if (array := getattr(made, name)) is not None}
        return replace(made, **kept)

    return sample


@exhibit(
    "torl.learner.optimizer_steps:pack_batch",
    thread="unslothai/unsloth-zoo!840",
    says="Log-probabilities of left-padded rows were wrong, and the more so the longer the row.",
    truth=("wrong-engine", "numeric-gap", "verify:updates", "verify:metrics", "verify:logprobs"),
)
def attended_padding(original: Any) -> Any:
    """Pad samples on the left with tokens that the learner attends."""

    def padded(sample: TrainingSample) -> TrainingSample:
        names = ("loss_mask", "rollout_logprobs", "policy_versions", "advantages", "old_logprobs", "ref_logprobs")
        wide = {
            name: np.concatenate([np.zeros(_PADDING, array.dtype), array])
            for name in names
            if (array := getattr(sample, name)) is not None
        }
        ids = np.concatenate([np.full(_PADDING, END_TOKEN, np.int32), sample.token_ids])
        return replace(sample, token_ids=ids, **wide)

    def pack(samples: list[TrainingSample], **options: Any) -> Any:
        batch = original([padded(each) for each in samples], **options)
        rows = tuple(
            tuple(replace(row, offset_K=row.offset_K - _PADDING) if row.samples else row for row in rank)
            for rank in batch.rows
        )
        return replace(batch, rows=rows)

    return pack


@exhibit(
    "torl.rollout.transcript:Transcript.trajectory",
    thread="OpenRLHF/OpenRLHF!1327",
    says="The executor of several turns dropped the finish reason, so that cut responses counted as complete.",
    truth=("cut-as-complete", "verify:tokens"),
    settings={"rollout.max_response_tokens": 60},
)
def lost_truncation(original: Any) -> Any:
    """Report that every response ended by itself."""

    def trajectory(self: Any, episode: Any, sampler: Any, finish: FinishReason, seconds: float, **rest: Any) -> Any:
        return original(self, episode, sampler, FinishReason.STOP, seconds, **rest)

    return trajectory
