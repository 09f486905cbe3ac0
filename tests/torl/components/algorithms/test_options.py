"""Options of estimators, losses, aggregations and corrections: accepted and refused values."""

import inspect
import pickle
import re
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import torch

from torl.base.options import Choice, ChosenFrom
from torl.components.algorithms import ESTIMATORS
from torl.components.algorithms.advantages import Estimator, EstimatorInputs
from torl.components.algorithms.aggregation import AGGREGATIONS, Aggregation
from torl.components.algorithms.losses import (
    CORRECTIONS,
    POLICY_LOSSES,
    CorrectionInputs,
    ImportanceCorrection,
    LossInputs,
    PolicyLoss,
)
from torl.components.algorithms.requirements import requirements_of, requires

REGISTRIES: dict[str, Mapping[str, Callable[..., Any]]] = {
    "estimator": ESTIMATORS,
    "policy loss": POLICY_LOSSES,
    "aggregation": AGGREGATIONS,
    "correction": CORRECTIONS,
}


def choose(kind: str, name: str, **options: object) -> Choice[Any]:
    return ChosenFrom(REGISTRIES[kind], kind, positional_count=1).choose({"name": name, **options})


@pytest.mark.parametrize(
    ("kind", "name", "options"),
    [
        ("estimator", "grpo", {}),
        ("estimator", "dr_grpo", {}),
        ("estimator", "rloo", {}),
        ("estimator", "gtpo", {"discount": 1.0, "baseline": "group"}),
        ("estimator", "reinforce_plus_plus", {"discount": 1.0}),
        ("estimator", "reinforce_plus_plus_baseline", {"discount": 1.0}),
        ("estimator", "ppo", {"discount": 1.0, "gae_lambda": 1.0}),
        ("policy loss", "clipped", {"clip_low": 0.2, "clip_high": 0.2}),
        ("policy loss", "gspo", {"clip_low": 3e-4, "clip_high": 4e-4}),
        ("policy loss", "cispo", {"clip_low": 0.2, "clip_high": 0.2}),
        ("policy loss", "reinforce", {}),
        (
            "policy loss",
            "dppo",
            {"divergence": "tv", "clip_low": 0.2, "clip_high": 0.2, "penalty": 0.0},
        ),
        ("policy loss", "sapo", {"temperatures": [1.0, 1.05]}),
        ("policy loss", "vespo", {"positive": [2.0, 3.0], "negative": [3.0, 2.0]}),
        ("policy loss", "gmpo", {"clip_low": 0.4, "clip_high": 0.4}),
        ("policy loss", "kl_cov", {"share": 2e-4, "penalty": 1.0}),
        ("policy loss", "high_entropy", {"share": 0.2, "clip_low": 0.2, "clip_high": 0.2}),
        ("aggregation", "token", {}),
        ("aggregation", "sequence", {}),
        ("correction", "tis", {"high": 2.0}),
        ("correction", "icepop", {"low": 0.5, "high": 5.0}),
        ("correction", "mis", {"low": 0.0, "high": 3.0}),
        ("correction", "geometric", {"low": 0.999, "high": 1.001, "truncate": 0.0}),
        ("correction", "mean_kl", {"high": 0.01, "truncate": 0.0}),
    ],
)
def test_each_has_its_own_options_with_their_defaults(kind: str, name: str, options: dict[str, float]) -> None:
    found = choose(kind, name)
    assert found.dump() == {"name": name, **options}
    again = pickle.loads(pickle.dumps(found))  # the ranks of a learner get it so
    assert (again.target, again.dump()) == (found.target, found.dump())


@pytest.mark.parametrize(
    ("kind", "section", "message"),
    [
        ("estimator", {"name": "grpo", "gae_lambda": 0.9}, "gae_lambda\n +Extra inputs"),
        ("estimator", {"name": "ppo", "discount": 0.0}, "greater than 0"),
        ("estimator", {"name": "ppo", "gae_lambda": 1.5}, "less than or equal to 1"),
        ("estimator", {"name": "gtpo", "discount": -0.5}, "greater than or equal to 0"),
        ("estimator", {"name": "gtpo", "baseline": "step"}, "'group' or 'turn'"),
        ("estimator", {"name": "grppo"}, "no estimator is called 'grppo'; did you mean grpo?"),
        ("policy loss", {"name": "gspo", "dual_clip": 3.0}, "dual_clip\n +Extra inputs"),
        ("policy loss", {"name": "reinforce", "clip_low": 0.2}, "clip_low\n +Extra inputs"),
        ("policy loss", {"name": "clipped", "dual_clip": 1.0}, "greater than 1"),
        ("policy loss", {"name": "clipped", "clip_high": -0.1}, "greater than or equal to 0"),
        ("aggregation", {"name": "fixed_length"}, "length\n +Field required"),
        ("aggregation", {"name": "fixed_length", "length": 0}, "greater than 0"),
        ("aggregation", {"name": "token", "length": 9}, "length\n +Extra inputs"),
        ("correction", {"name": "tis", "low": 0.5}, "low\n +Extra inputs"),
        ("correction", {"name": "icepop", "low": 6.0}, "low = 6 must not be more than high = 5"),
        ("correction", {"name": "mis", "low": 0.9, "high": 0.8}, "low = 0.9 must not be more than high = 0.8"),
        ("correction", {"name": "mis", "low": -1.0}, "greater than or equal to 0"),
    ],
)
def test_invalid_input_is_refused(kind: str, section: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ChosenFrom(REGISTRIES[kind], kind, positional_count=1).choose(section)


def test_equal_bounds_are_an_interval() -> None:
    assert choose("correction", "mis", low=1.0, high=1.0).dump() == {"name": "mis", "low": 1.0, "high": 1.0}


def test_estimator_requirements_are_checked() -> None:
    options = {"adatir": {"max_calls": 1}}
    found = {name: requirements_of(choose("estimator", name, **options.get(name, {})).target) for name in ESTIMATORS}
    assert {name for name, each in found.items() if each.critic} == {"ppo"}
    assert {name for name, each in found.items() if each.min_group_size > 1} == {"rloo"}
    assert {name for name, each in found.items() if each.reference and each.old_logprobs} == {"distillation"}
    assert {name for name, each in found.items() if each.aggregations} == {"dr_grpo"}


# --- custom estimators, losses and aggregations: the examples of the docstrings run -------------------------------


def example(protocol: type, function: str, **options: object) -> Choice[Any]:
    """The function that a protocol's docstring defines, chosen as a configuration would."""
    indented = re.search(r"\n\n((?: {4}.*\n|\n)+?)\n? {4}\[algorithm", inspect.getdoc(protocol) or "")
    assert indented is not None
    module: dict[str, Any] = {"Tensor": torch.Tensor}
    exec(textwrap.dedent(indented.group(1)), module)
    return ChosenFrom({function: module[function]}, "function", positional_count=1).choose(
        {"name": function, **options}
    )


def test_the_estimator_of_the_docstring() -> None:
    chosen = example(Estimator, "best_of_group", margin=0.5)
    assert requirements_of(chosen.target).min_group_size == 2
    rewards = EstimatorInputs(
        np.array([1.0, 0.5, 0.0, 0.0]), ["a", "a", "a", "b"], np.full(4, 2), np.array([False, True] * 4)
    )
    assert chosen.bind()(rewards).advantages_M.tolist() == [0, 1, 0, 1, 0, -1, 0, 1]


def test_the_policy_loss_of_the_docstring() -> None:
    log2 = float(np.log(2))
    inputs = LossInputs(
        torch.tensor([log2, float("nan")], requires_grad=True),
        torch.zeros(2),
        torch.tensor([3.0, 1.0]),
        torch.tensor([True, False]),
        torch.zeros(2, dtype=torch.int64),
        torch.zeros(2),
        torch.zeros(2),
    )
    chosen = example(PolicyLoss, "tethered", pull=0.5)
    assert requirements_of(chosen.target).all_tokens == "pull"
    found = chosen.bind()(inputs)
    assert found.per_token.tolist() == pytest.approx([-2 * 3 + 0.5 / 2, 0])
    assert (found.clipped_tokens.item(), found.dual_clipped_tokens.item()) == (0, 0)
    assert found.approximate_kl.item() == pytest.approx(1 - log2)
    found.per_token.sum().backward()
    assert inputs.logprobs.grad is not None
    assert inputs.logprobs.grad.tolist() == pytest.approx([-6 + 0.5 * 2, 0])  # d ratio / d logprob = ratio


def test_a_requirement_by_an_option_that_does_not_exist_is_refused() -> None:
    def pulled(inputs: LossInputs, pull: float = 1.0) -> None: ...

    with pytest.raises(ValueError, match="all_tokens = 'push' names no option of pulled"):
        requires(all_tokens="push")(pulled)
    assert requirements_of(requires(all_tokens="pull")(pulled)).all_tokens == "pull"


def test_the_aggregation_of_the_docstring() -> None:
    weights = example(Aggregation, "by_power_of_length", power=0.5).bind()(np.array([4, 1, 0]))
    assert weights.tolist() == pytest.approx([2 / 3 / 4, 1 / 3, 0])
    assert example(Aggregation, "by_power_of_length").bind()(np.array([0])).tolist() == [0]


def test_the_correction_of_the_docstring() -> None:
    inputs = CorrectionInputs(torch.tensor([0.1, -3.0, 3.0]), torch.zeros(3), torch.tensor([True] * 3), torch.arange(3))
    found = example(ImportanceCorrection, "clamped", factor=2.0).bind()(inputs)
    assert found.tolist() == pytest.approx([np.exp(0.1), 0.5, 2.0])
