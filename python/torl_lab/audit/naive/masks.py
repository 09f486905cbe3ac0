"""Naive masks: which trajectories of a batch carry no loss."""

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean
from types import MappingProxyType
from typing import Any

from torl.base.types import FinishReason, OutcomeStatus, ScoredTrajectory, TrainingSample
from torl.components.algorithms.requirements import requirements_of
from torl.components.text.answers import find_answer
from torl.run.config import SelectionConfig
from torl.run.records.rows import TrajectoryRecord
from torl_lab.audit.naive import formula_or_component
from torl_lab.audit.naive.responses import is_credited, is_run

_REPEATED_TRIGRAMS, _REPEATED = 0.6, 0.2  # of ZeroTIR's `void_filter`


def naive_masks(batch: Sequence[TrajectoryRecord], config: SelectionConfig) -> dict[str, list[bool]]:
    """Return for each mask of a run whether it masks each trajectory, with the grades that the step learns from."""
    found = {}
    for name, choice in config.mask.items():
        mask, compares = formula_or_component(choice, NAIVE_MASKS), requirements_of(choice.target).reference
        members = [ScoredTrajectory(each.trajectory, each.grade, each.grade.reward) for each in batch]
        if compares:
            pairs = zip(members, map(_sample, batch), strict=True)
            found[name] = [bool(mask(member, sample)) for member, sample in pairs]
        else:
            found[name] = [bool(mask(member)) for member in members]
    return found


def _sample(record: TrajectoryRecord) -> TrainingSample:
    """Return the sample of a record's response. The reference logprobs of a trajectory that was masked are zeros."""
    trajectory = record.trajectory
    return TrainingSample(
        token_ids=trajectory.token_ids_T,
        loss_mask=trajectory.loss_mask_T,
        rollout_logprobs=trajectory.rollout_logprobs_T,
        ref_logprobs=record.token_arrays["ref_logprobs"],
    )


def _wrong_truncated(member: ScoredTrajectory) -> bool:
    return member.trajectory.finish_reason is FinishReason.LENGTH and not is_credited(member.grade)


def _undecided(member: ScoredTrajectory) -> bool:
    return member.grade.failure is not None


def _repetitive(member: ScoredTrajectory, above: float) -> bool:
    return naive_repetition(member.trajectory.text) > above


def _improbable(member: ScoredTrajectory, sample: TrainingSample, above: float) -> bool:
    """Compare the perplexity of the sampled tokens under the reference model."""
    assert sample.ref_logprobs is not None
    pairs = zip(sample.ref_logprobs.tolist(), sample.loss_mask.tolist(), strict=True)
    logprobs = [logprob for logprob, is_sampled in pairs if is_sampled]
    return bool(logprobs) and math.exp(-fmean(logprobs)) > above


def _void_turn(member: ScoredTrajectory) -> bool:
    return any(not turn.blocks and find_answer(turn.text) is None for turn in member.trajectory.turns)


def _mismatched_code(member: ScoredTrajectory) -> bool:
    """Count opened blocks, closed ones, results and runs, if the response is credited or a run of it succeeded."""
    grade, trajectory = member.grade, member.trajectory
    runs = [call for call in trajectory.tool_calls if is_run(call)]
    succeeded = any(call.outcome.status is OutcomeStatus.OK for call in runs)
    is_counted = grade.valid_format and (grade.correct or succeeded)
    opened = len(trajectory.text.split("```python\n")) - 1
    closed, results = count_closed(trajectory.text, "```python\n"), count_closed(trajectory.text, "```output\n")
    return is_counted and not opened == closed == results == len(runs)


def count_closed(text: str, opening: str) -> int:
    """Return the number of fenced blocks with this opening that are closed, one after the other."""
    count = 0
    while True:
        _, is_opened, text = text.partition(opening)
        _, is_closed, text = text.partition("```")
        if not (is_opened and is_closed):
            return count
        count += 1


def _invalid_repetitive(member: ScoredTrajectory) -> bool:
    if member.grade.valid_format:
        return False
    text = member.trajectory.text
    spaced = "".join(f" {each} " if "\u4e00" <= each <= "\u9fff" else each for each in text)
    words = spaced.split()
    triples = [tuple(words[place : place + 3]) for place in range(len(words) - 2)]
    repeated = 1 - len(set(triples)) / len(triples) if triples else 0.0
    return repeated > _REPEATED_TRIGRAMS or naive_repetition(text) > _REPEATED


def naive_repetition(text: str) -> float:
    """Return the fraction of all substrings that occur earlier: those without the distinct ones.

    A suffix automaton counts the distinct ones: each symbol adds the suffixes that have not occurred before.
    """
    following: list[dict[str, int]] = [{}]
    lengths, links, last, distinct = [0], [-1], 0, 0
    for symbol in text:
        state, own = last, len(lengths)
        following.append({})
        lengths.append(lengths[last] + 1)
        links.append(0)
        while state >= 0 and symbol not in following[state]:
            following[state][symbol] = own
            state = links[state]
        if state >= 0:
            target = following[state][symbol]
            if lengths[target] > lengths[state] + 1:  # only a suffix of it occurs here: split it
                split = len(lengths)
                following.append(dict(following[target]))
                lengths.append(lengths[state] + 1)
                links.append(links[target])
                while state >= 0 and following[state].get(symbol) == target:
                    following[state][symbol] = split
                    state = links[state]
                links[target] = target = split
            links[own] = target
        last = own
        distinct += lengths[own] - lengths[links[own]]
    return 1 - distinct / (len(text) * (len(text) + 1) / 2) if len(text) > 1 else 0.0


_MASKS = "torl.components.algorithms.masks"
NAIVE_MASKS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        f"{_MASKS}:wrong_truncated": _wrong_truncated,
        f"{_MASKS}:undecided": _undecided,
        f"{_MASKS}:repetitive": _repetitive,
        f"{_MASKS}:improbable": _improbable,
        "torl.recipes.simpletir:void_turn": _void_turn,
        "torl.recipes.zerotir:mismatched_code": _mismatched_code,
        "torl.recipes.zerotir:invalid_repetitive": _invalid_repetitive,
    }
)
"""The formula of each of torl's masks, by the place of its function."""
