"""Which trajectories of a step are learned from: groups that are left out, and trajectories whose tokens carry no loss.

Groups are left out of the batch altogether. Single trajectories stay in the statistics of their group, but their loss
mask becomes False. Whatever is passed over is counted under the name of its reason.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from torl.algorithms.advantages import carries_signal
from torl.config import SelectionConfig
from torl.metrics.blocks import split_turns, written_blocks
from torl.reward.answers import find_answer
from torl.types import BoolArray, FinishReason, Grade, TrainingSample, Trajectory

_OUTPUT_FENCE = "```output"


@dataclass(frozen=True, slots=True)
class GroupSelection:
    """Which groups of a step enter the batch."""

    kept_N: BoolArray  # of each trajectory, whether its group does
    uniform: int  # groups left out because all their rewards are equal
    outside_window: int  # groups left out because of their mean accuracy

    def groups(self, groups_N: Sequence[str]) -> list[str]:
        """The groups that were kept, in the order of their first trajectories."""
        return list(dict.fromkeys(group for group, kept in zip(groups_N, self.kept_N, strict=True) if kept))


def select_groups(
    rewards_N: Sequence[float], grades: Sequence[Grade], groups_N: Sequence[str], config: SelectionConfig
) -> GroupSelection:
    """Leave groups out whose rewards are all equal, or whose mean accuracy is not inside the window, if so configured.

    A group that is both is counted as uniform.
    """
    uniform: set[str] = set()
    outside: set[str] = set()
    if config.drop_uniform_groups:
        signal_N = carries_signal(rewards_N, groups_N)
        uniform = {group for group, signal in zip(groups_N, signal_N, strict=True) if not signal}
    if config.accuracy_window is not None:
        low, high = config.accuracy_window
        members: dict[str, list[bool]] = {}
        for group, grade in zip(groups_N, grades, strict=True):
            members.setdefault(group, []).append(grade.correct)
        outside = {
            group for group, correct in members.items() if not low < sum(correct) / len(correct) < high
        } - uniform
    dropped = uniform | outside
    kept_N = np.array([group not in dropped for group in groups_N], dtype=np.bool_)
    return GroupSelection(kept_N, len(uniform), len(outside))


def silenced(
    trajectories: Sequence[Trajectory], grades: Sequence[Grade], config: SelectionConfig
) -> dict[str, set[int]]:
    """The trajectories that no loss is taken of, by reason; a trajectory may have several.

    - "void_turn": a turn holds neither a complete code block nor a boxed answer (SimpleTIR)
    - "wrong_truncated": cut at the token limit, and wrong
    - "invented_output": correct, but with an output block that the model wrote itself
    - "repetitive": the repetition of its sampled tokens is above the threshold
    """
    found: dict[str, set[int]] = {}
    if config.mask_void_turns:
        found["void_turn"] = {index for index, each in enumerate(trajectories) if has_void_turn(each)}
    if config.mask_wrong_truncated:
        found["wrong_truncated"] = {
            index
            for index, (each, grade) in enumerate(zip(trajectories, grades, strict=True))
            if each.finish_reason is FinishReason.LENGTH and not grade.correct
        }
    if config.mask_invented_output:
        found["invented_output"] = {
            index
            for index, (each, grade) in enumerate(zip(trajectories, grades, strict=True))
            if grade.correct and invents_output(each)
        }
    if config.mask_repetition_above is not None:
        found["repetitive"] = {
            index
            for index, each in enumerate(trajectories)
            if repetition(each, config.repetition_ngram) > config.mask_repetition_above
        }
    return found


def prompts_for_next_round(wanted: int, kept: int, played: int) -> int:
    """How many prompts to play so that about `wanted` groups are kept, after `kept` of `played` were.

    At most four for each that is missing, so that a round in which hardly any was kept does not ask for thousands.
    """
    share = max(kept / played, 0.25)
    return math.ceil((wanted - kept) / share)


def without_loss(sample: TrainingSample) -> TrainingSample:
    """The sample with no token in the loss."""
    return replace(sample, loss_mask=np.zeros_like(sample.loss_mask))


def has_void_turn(trajectory: Trajectory) -> bool:
    """Whether a turn holds neither a complete code block nor a boxed answer."""
    calls = len(trajectory.tool_calls)
    # A response that its last observation filled up to the limit has no turn after it.
    turns = split_turns(trajectory.sampled_text, calls, trajectory.format)[: len(trajectory.turns)]
    return any(
        not written_blocks(turn, int(index < calls), trajectory.format) and find_answer(turn) is None
        for index, turn in enumerate(turns)
    )


def invents_output(trajectory: Trajectory) -> bool:
    """Whether the model opened an output block that no tool call answered, so that what stands in it is its own.

    In format "torl" the model opens those of its calls as well; in format "zerotir" it should open none.
    """
    own = len(trajectory.tool_calls) if trajectory.format == "torl" else 0
    return trajectory.sampled_text.count(_OUTPUT_FENCE) > own


def repetition(trajectory: Trajectory, ngram: int) -> float:
    """The share of n-grams of sampled tokens that have occurred before; 0 where there are none."""
    tokens = trajectory.token_ids_T[trajectory.loss_mask_T].tolist()
    grams = [tuple(tokens[start : start + ngram]) for start in range(len(tokens) - ngram + 1)]
    return 1 - len(set(grams)) / len(grams) if grams else 0.0
