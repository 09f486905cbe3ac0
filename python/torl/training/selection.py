"""Which trajectories of a step are learned from: groups that are left out, and trajectories whose tokens carry no loss.

Groups are left out of the batch altogether. Single trajectories stay in the statistics of their group, but their loss
mask becomes False. Whatever is left out is counted under the name of its reason.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from torl.config import SelectionConfig
from torl.formats import Format
from torl.text.answers import find_answer
from torl.types import FinishReason, Scored, ScoredGroup, TrainingSample, Trajectory


@dataclass(frozen=True, slots=True)
class Selection:
    """Which groups may enter the batch."""

    kept: tuple[ScoredGroup, ...]  # in the order that they were given
    uniform: int  # groups left out because all their rewards are equal
    outside_window: int  # groups left out because of their mean accuracy


def select_groups(groups: Sequence[ScoredGroup], config: SelectionConfig) -> Selection:
    """Leave groups out whose rewards are all equal, or whose mean accuracy is not inside the window, if so configured.

    A group that is both is counted as uniform.
    """
    varied = [group for group in groups if not (config.drop_uniform_groups and group.is_uniform)]
    kept = varied
    if config.accuracy_window is not None:
        low, high = config.accuracy_window
        kept = [group for group in varied if low < group.accuracy < high]
    return Selection(tuple(kept), len(groups) - len(varied), len(varied) - len(kept))


def prompts_for_next_round(wanted: int, kept: int, played: int) -> int:
    """How many prompts to play so that about `wanted` groups are kept, after `kept` of `played` were.

    At most four for each that is missing, so that a round in which hardly any was kept does not ask for thousands.
    """
    share = max(kept / played, 0.25)
    return math.ceil((wanted - kept) / share)


def silenced(members: Sequence[Scored], format: Format, config: SelectionConfig) -> dict[str, set[int]]:
    """The trajectories that no loss is taken of, as indices, by each reason that is configured.

    A trajectory may have several reasons.

    - "void_turn": a turn holds neither a complete code block nor a boxed answer (SimpleTIR)
    - "wrong_truncated": cut at the token limit, and wrong
    - "invented_output": correct, but with an output block that the model wrote itself
    - "repetitive": the repetition of its sampled tokens is above the threshold
    """
    reasons: dict[str, Callable[[Scored], bool]] = {}
    if config.mask_void_turns:
        reasons["void_turn"] = lambda member: has_void_turn(member.trajectory)
    if config.mask_wrong_truncated:
        reasons["wrong_truncated"] = _is_wrong_truncated
    if config.mask_invented_output:
        reasons["invented_output"] = lambda member: member.grade.correct and invents_output(member.trajectory, format)
    if (most := config.mask_repetition_above) is not None:
        reasons["repetitive"] = lambda member: repetition(member.trajectory, config.repetition_ngram) > most
    return {
        reason: {index for index, member in enumerate(members) if applies(member)}
        for reason, applies in reasons.items()
    }


def silence(samples: Sequence[TrainingSample], silent: Mapping[str, set[int]]) -> list[TrainingSample]:
    """The samples, those that `silenced` names for any reason with no token in the loss."""
    indices = set().union(*silent.values())
    return [
        replace(sample, loss_mask=np.zeros_like(sample.loss_mask)) if index in indices else sample
        for index, sample in enumerate(samples)
    ]


def has_void_turn(trajectory: Trajectory) -> bool:
    """Whether a turn holds neither a complete code block nor a boxed answer."""
    return any(not turn.blocks and find_answer(turn.text) is None for turn in trajectory.turns)


def invents_output(trajectory: Trajectory, format: Format) -> bool:
    """Whether the model opened an output block that no tool call answered, so that what stands in it is its own."""
    return any(format.invents_output(turn) for turn in trajectory.turns)


def repetition(trajectory: Trajectory, ngram: int) -> float:
    """The share of n-grams of sampled tokens that have occurred before; 0 where there are none."""
    tokens = trajectory.token_ids_T[trajectory.loss_mask_T].tolist()
    grams = [tuple(tokens[start : start + ngram]) for start in range(len(tokens) - ngram + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0


def _is_wrong_truncated(member: Scored) -> bool:
    return member.trajectory.finish_reason is FinishReason.LENGTH and not member.grade.correct
