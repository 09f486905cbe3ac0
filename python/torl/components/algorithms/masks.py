"""Masks: which trajectories carry no loss. They stay in the statistics of their group.

A mask is a function of a `ScoredTrajectory`, and of its `TrainingSample` if it requires the reference model
(`@requires(reference=True)`). Its further parameters are its options:

    def short(member: ScoredTrajectory, below: int = 10) -> bool:
        return len(member.trajectory) < below

    [selection.mask.short]
    name = "my_package.masks:short"
    below = 20
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import Field

import torl._core as _core
from torl.base.guard import InvalidResultError, describe
from torl.base.options import ChosenFrom
from torl.base.types import FinishReason, ScoredTrajectory, TrainingSample
from torl.components.algorithms.requirements import requirements_of, requires

Mask: TypeAlias = Callable[..., bool]
"""Whether a trajectory is masked: a function of it, and of its sample if it needs the reference model."""


def wants_reference(mask: Any) -> bool:
    """Whether a mask requires the reference model's logprobs (`TrainingSample.ref_logprobs`)."""
    return requirements_of(mask).reference


def wrong_truncated(member: ScoredTrajectory) -> bool:
    """Mask responses that were cut at the token limit and have no credit."""
    return member.trajectory.finish_reason is FinishReason.LENGTH and not member.grade.credited


def undecided(member: ScoredTrajectory) -> bool:
    """Mask responses whose answer the grader could not compare."""
    return member.grade.failure is not None


def repetitive(member: ScoredTrajectory, above: Annotated[float, Field(ge=0, lt=1)]) -> bool:
    """Mask responses whose text repeats itself.

    Args:
        above: Maximum repetition: the fraction of all substrings of the text that occur earlier in it.
    """
    return _core.repetition(member.trajectory.text) > above


@requires(reference=True)
def improbable(member: ScoredTrajectory, sample: TrainingSample, above: Annotated[float, Field(gt=1)] = 5.0) -> bool:
    """Mask responses that are improbable under the reference model.

    Args:
        above: Maximum perplexity of the sampled tokens under the reference model.
    """
    if sample.ref_logprobs is None:
        raise ValueError("samples lack the reference policy's logprobs: prepare them first")
    if not sample.loss_mask.any():
        return False
    return float(np.exp(-sample.ref_logprobs[sample.loss_mask].mean(dtype=np.float64))) > above


MASKS: Mapping[str, Callable[..., Any] | str] = MappingProxyType(
    {
        "wrong_truncated": wrong_truncated,
        "undecided": undecided,
        "repetitive": repetitive,
        "improbable": improbable,
        "void_turn": "torl.recipes.simpletir:void_turn",
        "mismatched_code": "torl.recipes.zerotir:mismatched_code",
        "invalid_repetitive": "torl.recipes.zerotir:invalid_repetitive",
    }
)
"""The masks by the names that a configuration calls them."""


def check_mask(masked: object, *_: object) -> None:
    """Check the result of a mask.

    Raises:
        InvalidResultError: `masked` is not a bool.
    """
    if not isinstance(masked, bool | np.bool_):
        raise InvalidResultError(f"expected bool: whether the trajectory is masked; got {describe(masked)}")


MASK = ChosenFrom(
    MASKS, "mask", positional_count=lambda mask: 2 if wants_reference(mask) else 1, check=check_mask, by_step=True
)
