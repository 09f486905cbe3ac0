"""The requirements of estimators, losses, KL estimators and masks: inputs that a run computes only for them."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])

_ATTRIBUTE = "__torl_requirements__"


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirements:
    """The requirements of an estimator, a policy loss, a KL estimator or a mask; as a decorator, their declaration.

        @requires(critic=True)
        def estimate(inputs: EstimatorInputs) -> TokenAdvantages: ...

    Attributes:
        critic: Whether an estimator requires the values of a critic.
        min_group_size: Minimum number of trajectories in a group, for an estimator.
        reference: Whether the log-probabilities of the reference model are required.
        old_logprobs: Whether the trainer's log-probabilities before the first update of the step are required, by an
            estimator or in `BatchTokens`, also where they would be equal to the current ones.
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
    """

    critic: bool = False
    min_group_size: int = 1
    reference: bool = False
    old_logprobs: bool = False
    entropies: bool = False
    collision_probs: bool = False
    batch_values: Callable[..., Any] | None = None
    aggregations: Sequence[str] = ()
    engine_ratio: bool = False
    all_tokens: bool | str = False
    uniform_groups: bool = False
    across_groups: bool = False

    def __call__(self, function: Function) -> Function:
        """Declare the requirements of a function.

        Raises:
            ValueError: `all_tokens` names no option of the function.
        """
        option = self.all_tokens
        if isinstance(option, str) and not {option, "options"} & inspect.signature(function).parameters.keys():
            raise ValueError(f"all_tokens = {option!r} names no option of {function.__name__}")
        setattr(function, _ATTRIBUTE, self)
        return function

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
        """Merge two requirements; fields from `aggregations` on are dropped, because each is of one component alone."""
        names = [each.name for each in fields(self)]
        shared = names[: names.index("aggregations")]
        return Requirements(**{name: max(getattr(self, name), getattr(other, name), key=_rank) for name in shared})


def _rank(value: Any) -> int:
    """Return a number by which the stronger of two requirements is the larger one."""
    return value if isinstance(value, int) else value is not None


requires = Requirements
"""Decorator of a function with requirements."""


def requirements_of(target: object) -> Requirements:
    """Return the declared requirements of a function."""
    declared = getattr(target, _ATTRIBUTE, None)
    return declared if isinstance(declared, Requirements) else Requirements()
