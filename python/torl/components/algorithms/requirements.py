"""The requirements of estimators, losses, KL estimators and masks: inputs that a run computes only for them."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_ATTRIBUTE = "__torl_requirements__"


@dataclass(frozen=True, slots=True)
class Requirements:
    """The requirements of a component, or of several.

    Attributes:
        critic: Whether it requires the values of a critic (estimators).
        min_group_size: Minimum number of trajectories in a group (estimators).
        reference: Whether it requires the log-probabilities of the reference model.
        old_logprobs: Whether it requires the trainer's log-probabilities before the first update of the step, also
            where they would be equal to the current ones.
        entropies: Whether it requires the policy's entropies before the first update of the step.
        collision_probs: Whether it requires the sums of squared probabilities before the first update of the step
            (estimators).
        batch_values: Function of a `BatchTokens` that returns `LossInputs.batch_values` (policy losses).
        aggregations: Aggregations that the method is published with. A run with another one has a warning.
        engine_ratio: Whether the importance ratio is that to the engine, so that an importance correction would apply
            it twice (policy losses).
        all_tokens: Whether tokens without an advantage have a loss, too, or the name of the option that gives them one
            above 0 (policy losses).
        uniform_groups: Whether groups of equal total rewards have advantages, too (estimators).
        across_groups: Whether rewards are compared across groups or with a critic's values, so that a group of equal
            rewards, or of one response, has advantages where those of other groups differ (estimators).
    """

    critic: bool = False
    min_group_size: int = 1
    reference: bool = False
    old_logprobs: bool = False
    entropies: bool = False
    collision_probs: bool = False
    batch_values: Callable[..., Any] | None = None
    aggregations: tuple[str, ...] = ()
    engine_ratio: bool = False
    all_tokens: bool | str = False
    uniform_groups: bool = False
    across_groups: bool = False

    @property
    def token_arrays(self) -> list[str]:
        """Names of the numbers of tokens that are required, as in `TrainingSample`; without a critic's values."""
        required = {
            "old_logprobs": self.old_logprobs,
            "ref_logprobs": self.reference,
            "entropies": self.entropies,
            "collision_probs": self.collision_probs,
        }
        return [name for name, is_required in required.items() if is_required]

    def __or__(self, other: "Requirements") -> "Requirements":
        """Return the requirements of both, without those from `aggregations` on: each is of one component alone."""
        return Requirements(
            critic=self.critic or other.critic,
            min_group_size=max(self.min_group_size, other.min_group_size),
            reference=self.reference or other.reference,
            old_logprobs=self.old_logprobs or other.old_logprobs,
            entropies=self.entropies or other.entropies,
            collision_probs=self.collision_probs or other.collision_probs,
            batch_values=self.batch_values or other.batch_values,
        )


def requires(
    *,
    critic: bool = False,
    min_group_size: int = 1,
    reference: bool = False,
    old_logprobs: bool = False,
    entropies: bool = False,
    collision_probs: bool = False,
    batch_values: Callable[..., Any] | None = None,
    aggregations: Sequence[str] = (),
    engine_ratio: bool = False,
    all_tokens: bool | str = False,
    uniform_groups: bool = False,
    across_groups: bool = False,
) -> Callable[[Function], Function]:
    """Declare the requirements of an estimator, a policy loss, a KL estimator or a mask.

    Args:
        critic: Whether an estimator requires the values of a critic.
        min_group_size: Minimum number of trajectories in a group, for an estimator.
        reference: Whether the log-probabilities of the reference model are required.
        old_logprobs: Whether the trainer's log-probabilities before the first update of the step are required, by an
            estimator or in `BatchTokens`.
        entropies: Whether the policy's entropies before the first update of the step are required, by an estimator or
            in `BatchTokens`. A policy loss always gets the current ones.
        collision_probs: Whether an estimator requires the policy's sums of squared probabilities before the first
            update of the step, which takes one more forward pass.
        batch_values: For a policy loss that depends on the whole batch, such as on a quantile: a function of
            `BatchTokens` and of the loss's options that it names, which returns one number for each sampled token. It
            is called before the batch is cut into rows, and its result is `LossInputs.batch_values`.
        aggregations: Aggregations that an estimator or a policy loss is published with. A run with another one begins
            with a warning.
        engine_ratio: Whether a policy loss has its importance ratio to the engine's log-probabilities. Rollouts ahead
            of the learner then need no importance correction, and with one the run is refused.
        all_tokens: Whether a policy loss has a term for tokens without an advantage, too, such as a penalty, or the
            name of the option that gives it one above 0. Without a term, trajectories without an advantage are skipped.
        uniform_groups: Whether an estimator gives advantages to groups of equal total rewards, too. A selection that
            drops them is then refused.
        across_groups: Whether an estimator compares rewards across groups or with a critic's values, so that a group of
            equal rewards, or of one response, has advantages where those of other groups differ. A selection may drop
            such groups.

    Raises:
        ValueError: `all_tokens` names no option of the function.
    """
    requirements = Requirements(
        critic,
        min_group_size,
        reference,
        old_logprobs,
        entropies,
        collision_probs,
        batch_values,
        tuple(aggregations),
        engine_ratio,
        all_tokens,
        uniform_groups,
        across_groups,
    )

    def mark(function: Function) -> Function:
        if isinstance(all_tokens, str) and not {all_tokens, "options"} & inspect.signature(function).parameters.keys():
            raise ValueError(f"all_tokens = {all_tokens!r} names no option of {function.__name__}")
        setattr(function, _ATTRIBUTE, requirements)
        return function

    return mark


def requirements_of(target: object) -> Requirements:
    """Return the declared requirements of a function."""
    declared = getattr(target, _ATTRIBUTE, None)
    return declared if isinstance(declared, Requirements) else Requirements()
