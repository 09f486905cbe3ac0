"""Trajectories whose tokens carry no loss. They stay in the statistics of their group.

Whatever is silenced is counted under the name of its reason.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

import torl._core as _core
from torl.config import AlgorithmConfig, SelectionConfig
from torl.text.answers import find_answer
from torl.types import FinishReason, Float32Array, ScoredTrajectory, TrainingSample, Trajectory

MAX_REPETITION = 0.2
MAX_REPEATED_TRIGRAMS = 0.6
"""Above either, ZeroTIR's `void_filter` takes a response without a valid format for one that goes round in circles."""

_CODE = re.compile(r"```python\n.*?```", re.DOTALL)
_OUTPUT = re.compile(r"```output\n.*?```", re.DOTALL)
# A Chinese character is a word of its own.
_WORD = re.compile(r"[\u4e00-\u9fff]|[^\s\u4e00-\u9fff]+")


def masked_trajectories(members: Sequence[ScoredTrajectory], config: SelectionConfig) -> dict[str, set[int]]:
    """The trajectories that no loss is taken of, as indices, by each reason that is configured.

    A trajectory may have several reasons.

    - "void_turn": a turn holds neither a complete code block nor a boxed answer (SimpleTIR)
    - "wrong_truncated": cut at the token limit, and not rewarded
    - "mismatched_code": code blocks, output blocks and calls differ in number, and it is rewarded, or valid with a call
      that ended well (`code_filter` of ZeroTIR's `math_tir_filter_fn_utils.py`)
    - "repetitive": more of its text repeats than the threshold allows
    - "invalid_repetitive": not in the format that the reward asks for, and goes round in circles (`void_filter` there)
    - "undecided": the grader could not decide
    """
    reasons: dict[str, Callable[[ScoredTrajectory], bool]] = {}
    if config.mask_void_turns:
        reasons["void_turn"] = lambda member: has_void_turn(member.trajectory)
    if config.mask_wrong_truncated:
        reasons["wrong_truncated"] = _is_wrong_truncated
    if config.mask_mismatched_code:
        reasons["mismatched_code"] = _matters_and_mismatches
    if (most := config.mask_repetition_above) is not None:
        reasons["repetitive"] = lambda member: _core.repetition(member.trajectory.text) > most
    if config.mask_invalid_repetition:
        reasons["invalid_repetitive"] = _is_invalid_and_repetitive
    if config.mask_undecided:
        reasons["undecided"] = lambda member: member.grade.failure is not None
    return {
        reason: {index for index, member in enumerate(members) if applies(member)}
        for reason, applies in reasons.items()
    }


def improbable_trajectories(samples: Sequence[TrainingSample], config: AlgorithmConfig) -> dict[str, set[int]]:
    """The trajectories that are too improbable under the reference policy, under that reason, where that is configured.

    ZeroTIR's `large_ppl`: exp of minus the mean of `ref_logprobs` over the sampled tokens. One that has been silenced
    has none.
    """
    most = config.max_reference_perplexity
    if most is None:
        return {}
    return {"improbable": {index for index, sample in enumerate(samples) if _reference_perplexity(sample) > most}}


def mask_samples(samples: Sequence[TrainingSample], silent: Mapping[str, set[int]]) -> list[TrainingSample]:
    """The samples, those that are named for any reason with no token in the loss."""
    indices = set().union(*silent.values())
    return [_without_loss(sample) if index in indices else sample for index, sample in enumerate(samples)]


def has_void_turn(trajectory: Trajectory) -> bool:
    """Whether a turn holds neither a complete code block nor a boxed answer."""
    return any(not turn.blocks and find_answer(turn.text) is None for turn in trajectory.turns)


def mismatches_code(trajectory: Trajectory) -> bool:
    """Whether the text has other numbers of opened blocks, closed blocks, output blocks and calls that ran.

    A block past the last call, and an output block that the model wrote itself, make the difference.
    """
    text = trajectory.text
    runs = sum(call.ran for call in trajectory.tool_calls)
    return len({text.count("```python\n"), len(_CODE.findall(text)), len(_OUTPUT.findall(text)), runs}) > 1


def repeated_trigrams(text: str) -> float:
    """The share of the triples of neighboring words that have occurred before; 0 where there are none."""
    words = _WORD.findall(text)
    triples = list(zip(words, words[1:], words[2:], strict=False))
    return 1 - len(set(triples)) / len(triples) if triples else 0.0


def _reference_perplexity(sample: TrainingSample) -> float:
    if sample.ref_logprobs is None:
        raise ValueError("samples lack the reference policy's logprobs: prepare them first")
    if not sample.loss_mask.any():
        return 1.0
    return float(np.exp(-sample.ref_logprobs[sample.loss_mask].mean(dtype=np.float64)))


def _is_wrong_truncated(member: ScoredTrajectory) -> bool:
    return member.trajectory.finish_reason is FinishReason.LENGTH and not member.grade.credited


def _matters_and_mismatches(member: ScoredTrajectory) -> bool:
    grade, calls = member.grade, member.trajectory.tool_calls
    some_ended_well = any(call.ran and call.outcome.ok for call in calls)
    return (grade.credited or (grade.valid_format and some_ended_well)) and mismatches_code(member.trajectory)


def _is_invalid_and_repetitive(member: ScoredTrajectory) -> bool:
    text = member.trajectory.text
    if member.grade.valid_format:
        return False
    return repeated_trigrams(text) > MAX_REPEATED_TRIGRAMS or _core.repetition(text) > MAX_REPETITION


def _without_loss(sample: TrainingSample) -> TrainingSample:
    def nothing(array: Float32Array | None) -> Float32Array | None:
        return None if array is None else np.zeros_like(array)

    return replace(
        sample,
        loss_mask=np.zeros_like(sample.loss_mask),
        advantages=nothing(sample.advantages),
        returns=nothing(sample.returns),
    )
