"""The logic of proofs: verdicts by the step made again, without and with the change. `make_step` is a script here."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from planted_runs import PLANTED, Case, config
from torl.base.errors import CheckpointError
from torl.base.options import dotted_leaves
from torl.run.config import TrainConfig
from torl.run.config.learning import SelectionConfig
from torl.run.config.loading import load_config
from torl.run.records.content import KINDS
from torl_lab.doctor.experiments import EXPERIMENTS
from torl_lab.doctor.history import Step, StepHistory
from torl_lab.doctor.proof import ORIGINS, MadeStep, Proof, prove
from torl_lab.doctor.registry import CHECKS, run_checks
from torl_lab.doctor.run_check import RunFinding
from torl_lab.replay.differences import Difference

OF_HOST = [name for name, each in EXPERIMENTS.items() if each.changes is None]
OF_SETTING = [name for name, each in EXPERIMENTS.items() if each.changes is not None and name != "no-gradient"]

GAP = Difference("logprobs", "step 29, p1, sample 0, rollout_logprobs 3", -0.5, -0.25)


@cache
def planted(name: str) -> tuple[StepHistory, RunFinding]:
    case = PLANTED[name]
    if name == "numeric-gap":  # the demo has one precision
        case = replace(case, config=config(engine__dtype="bfloat16"))
    history = case.history()
    return history, next(each for each in run_checks(history).findings if each.check.id == name)


@cache
def flawless_steps() -> list[Step]:
    return Case().history().steps


async def proved(name: str, *, again: bool, changed: bool) -> tuple[Proof, list[Mapping[str, Any]]]:
    """The proof of a finding whose step shows it again without and with the change, or not, and the changes made."""
    history, finding = planted(name)
    made: list[Mapping[str, Any]] = []

    async def make_step(number: int, changes: Mapping[str, Any]) -> MadeStep:
        made.append(changes)
        shows_it = changed if changes else again
        steps = history.steps if shows_it else flawless_steps()
        return MadeStep(steps[number], () if shows_it else (GAP,))

    proof = await prove(history, finding, make_step)
    assert proof is not None
    return proof, made


def test_experiments_belong_to_checks() -> None:
    assert EXPERIMENTS.keys() <= CHECKS.keys()
    assert len(OF_HOST) >= 6
    assert len(OF_SETTING) >= 4


@pytest.mark.parametrize("name", OF_SETTING)
async def test_problem_that_vanishes_with_the_change_proves_the_setting(name: str) -> None:
    proof, made = await proved(name, again=True, changed=False)
    assert proof.verdict == "proved"
    assert proof.text.endswith(f"Cause: {EXPERIMENTS[name].cause}")
    assert len(made) == 2
    ((setting, value),) = made[1].items()  # one valid setting with another value
    changed = config(**{setting.replace(".", "__"): value})
    assert dict(dotted_leaves(changed.model_dump(mode="json")))[setting] == value
    assert changed != planted(name)[0].config


@pytest.mark.parametrize("name", OF_SETTING)
async def test_problem_that_stays_with_the_change_refutes_the_setting(name: str) -> None:
    proof, _ = await proved(name, again=True, changed=True)
    assert proof.verdict == "refuted"
    assert proof.text.endswith(f"Cause: not {EXPERIMENTS[name].cause}")


@pytest.mark.parametrize("name", OF_SETTING)
async def test_problem_that_vanishes_without_a_change_is_of_the_host(name: str) -> None:
    proof, made = await proved(name, again=False, changed=False)
    assert (proof.verdict, made) == ("proved", [{}])
    assert proof.text.endswith(
        "Cause: the engine, not a setting. First difference: "
        "logprobs: step 29, p1, sample 0, rollout_logprobs 3: -0.5 -> -0.25"
    )


@pytest.mark.parametrize("name", OF_HOST)
async def test_step_made_again_tells_the_host_from_the_batch(name: str) -> None:
    proof, made = await proved(name, again=False, changed=False)
    assert (proof.verdict, made) == ("proved", [{}])
    assert "Cause: the engine, not a setting" in proof.text
    proof, made = await proved(name, again=True, changed=True)
    assert (proof.verdict, made) == ("refuted", [{}])
    assert "not the host" in proof.text


async def test_run_without_the_setting_is_undecided() -> None:
    """Without filters and masks, none can drop what would have a gradient."""
    made = await changes_without_selection(selection__groups__zero_variance=False)
    assert made == ("undecided", [{}])


@pytest.mark.parametrize(
    "selection",
    [
        {"groups": {"undecided": {"above": 0.4}}, "mask": {"repetitive": {"above": 0.05}}},
        {"groups": {"accuracy_outside": {"range": [0.1, 0.9]}}, "max_rounds": 10},
    ],
)
async def test_no_filter_or_mask_is_left_where_they_are_removed(selection: dict[str, Any], tmp_path: Path) -> None:
    settings = {f"selection__{name}": value for name, value in selection.items()}
    verdict, (_, changes) = await changes_without_selection(**settings)
    assert verdict == "proved"
    assert {f"selection.{name}" for name in selection} <= changes.keys()
    path = tmp_path / "config.toml"
    path.write_text(str(config(**settings)))
    assert load_config(TrainConfig, path, changes).selection == SelectionConfig()


async def changes_without_selection(**settings: Any) -> tuple[str, list[Mapping[str, Any]]]:
    """The verdict on steps without a gradient, whose cause is the selection, and the changes made."""
    history = replace(PLANTED["no-gradient"], config=config(**settings)).history()
    finding = next(each for each in run_checks(history).findings if each.check.id == "no-gradient")
    made: list[Mapping[str, Any]] = []

    async def make_step(number: int, changes: Mapping[str, Any]) -> MadeStep:
        made.append(changes)
        return MadeStep((flawless_steps() if changes else history.steps)[number])

    proof = await prove(history, finding, make_step)
    assert proof is not None
    return proof.verdict, made


async def test_step_that_cannot_be_made_is_undecided() -> None:
    history, finding = planted("clip-saturation")

    async def make_step(number: int, changes: Mapping[str, Any]) -> MadeStep:
        raise CheckpointError("no checkpoint")

    proof = await prove(history, finding, make_step)
    assert proof is not None
    assert str(proof).startswith(
        "undecided: step 29: learner/clip_fraction: 0.6 in the record; the step cannot be made"
    )


@pytest.mark.parametrize(
    ("differences", "verdict", "cause"),
    [
        (
            (Difference("rewards", "step 29, p1, sample 0, reward", 1.0, 1.001),),
            "proved",
            "the reward, not a setting",
        ),
        ((), "undecided", "a setting, the data or the weights"),
    ],
)
async def test_other_finding_is_proved_by_a_step_that_differs(
    differences: tuple[Difference, ...], verdict: str, cause: str
) -> None:
    history, finding = planted("jittered-rewards")

    async def make_step(number: int, changes: Mapping[str, Any]) -> MadeStep:
        assert (number, changes) == (history.steps[-1].number, {})
        return MadeStep(history.steps[-1], differences)

    proof = await prove(history, finding, make_step)
    assert proof is not None
    assert proof.verdict == verdict
    assert f"Cause: {cause}" in proof.text


async def test_step_with_a_checkpoint_is_made_first() -> None:
    history, finding = planted("clip-saturation")
    made: list[int] = []

    async def make_step(number: int, changes: Mapping[str, Any]) -> MadeStep:
        made.append(number)
        return MadeStep(flawless_steps()[number])

    await prove(history, finding, make_step, checkpoints=(10, 26, 30))
    assert made == [26]  # steps 24 to 29 show it


async def test_finding_in_the_data_has_no_proof() -> None:
    history, finding = planted("contamination")

    async def make_step(number: int, changes: Mapping[str, Any]) -> MadeStep:
        raise AssertionError("no step is needed")

    assert await prove(history, finding, make_step) is None


def test_every_kind_of_difference_has_an_origin() -> None:
    assert {*KINDS, "gradient", "metrics", "weights"} == ORIGINS.keys()


async def test_equal_step_without_the_problem_is_of_the_host() -> None:
    history, finding = planted("stall")

    async def make_step(number: int, changes: Mapping[str, Any]) -> MadeStep:
        return MadeStep(flawless_steps()[number])

    proof = await prove(history, finding, make_step)
    assert proof is not None
    assert proof.verdict == "proved"
    assert proof.text.endswith(". Cause: the host at that time: the step made again is equal")
