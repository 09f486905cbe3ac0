"""Wrong formulas in torl, one at a time: the run is made with the mistake, and `torl verify` of its files finds it."""

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from planted_code import planted
from scripted_training import ScriptedLearner, train_by_script
from torl.training.monitor import Monitors
from torl_lab.audit.run import Audit, verify_run

Settings = dict[str, dict[str, Any]]

_DYNAMICS, _BEHAVIORS = "torl.run.records.dynamics", "torl.run.records.behaviors"
_SELECTION, _FILTERS = "torl.training.selection", "torl.components.algorithms.selection"
_MASKS, _GRADES = "torl.components.algorithms.masks", "torl.base.types.grades"
_STEPS, _SAMPLES = "torl.learner.optimizer_steps", "torl.training.samples"
_SAMPLER, _CURRICULUM = "torl.components.data.sampler", "torl.components.data.curriculum"
_EVALUATION, _AGGREGATION = "torl.rollout.evaluation", "torl.components.algorithms.aggregation"

RUNS: dict[str, Settings] = {
    "plain": {"run": {"steps": 5}},
    "stale": {
        "engine": {"name": "scripted_training:TrainedEngine", "stale": True},
        "rollout": {"max_staleness": 1},
        "algorithm": {"importance_correction": "tis", "epochs": 2, "mini_batches": 3},
    },
    "masked": {
        "algorithm": {"aggregation": "sequence"},
        "selection": {
            "mask": {
                "wrong_truncated": {},
                "undecided": {},
                "repetitive": {"above": 0.5},
                "improbable": {"above": 11.0},
                "void_turn": {},
                "mismatched_code": {},
                "invalid_repetitive": {},
            },
        },
    },
    "selected": {
        "rollout": {"samples_per_prompt": 6},
        "selection": {
            "members": {"complete": {}, "resample_on_correct": {"count": 3, "at_least": [1, 1]}},
            "groups": {"few_complete": {"at_least": 3}},
        },
    },
    "bounded": {"selection": {"groups": {"accuracy_outside": {"range": [0.0, 0.5]}}}},
    "dynamic": {
        "run": {"steps": 5},
        "rollout": {"prompts_per_step": 3, "samples_per_prompt": 2},
        "selection": {"groups": {"zero_variance": {}, "undecided": {"above": 0.4}}, "max_rounds": 10},
    },
    "shuffled": {
        "ablation": {"shuffle": "rewards"},
        "selection": {"groups": {"zero_variance": {}}},
        "reward": {"name": "scripted_training:ScriptedReward", "turn_rewards": 0.25},
    },
    "turns": {
        "reward": {"name": "scripted_training:ScriptedReward", "turn_rewards": 0.25},
        "algorithm": {"estimator": {"name": "reinforce_plus_plus", "discount": 0.9}},
    },
    "normalized": {"algorithm": {"normalize_rewards": True, "estimator": {"name": "dr_grpo"}}},
    "imitating": {"algorithm": {"imitation": {"name": "observations"}}},
    "curriculum": {
        "run": {"steps": 6},
        "rollout": {"samples_per_prompt": 2},
        "data": {"max_prompt_tokens": 200, "sampler": {"name": "curriculum", "cooldown": [1, 1]}},
    },
    "stream": {"data": {"max_prompt_tokens": 200, "sampler": {"name": "stream", "buffer_size": 6}}},
    "scheduled": {"rollout": {"max_response_tokens": [[0, 300], [1, 250]]}},
}
"""Short runs with the components and settings whose formulas are changed."""


class Plant(NamedTuple):
    """A piece of a function's text, the mistake that replaces it, and the check that finds it."""

    module: str
    old: str
    new: str
    check: str = "metrics"
    run: str = "plain"


PLANTS: dict[str, Plant] = {
    # --- training dynamics
    "mean reward without turn rewards": Plant(
        _DYNAMICS, "sum(grade.total for grade in grades)", "sum(grade.reward for grade in grades)", run="turns"
    ),
    "solved only if all are right": Plant(_DYNAMICS, "solved = sum(any(", "solved = sum(all("),
    "accuracy of valid answers": Plant(
        _DYNAMICS, "names.ACCURACY: sum(grade.correct for", "names.ACCURACY: sum(grade.credited for"
    ),
    "answered also without a box": Plant(_DYNAMICS, "grade.answer is not None", "grade.answer != ''"),
    "part of the reward over all responses": Plant(
        _DYNAMICS,
        "sum(values) / len(values) for name, values in sorted(parts",
        "sum(values) / len(grades) for name, values in sorted(parts",
    ),
    "turn rewards of the responses that have some": Plant(
        _DYNAMICS,
        "has_turn_rewards * len(grades))",
        "sum(map(bool, (sum(grade.turn_rewards) for grade in grades))))",
        run="turns",
    ),
    "grader's timeouts and errors together": Plant(_DYNAMICS, 'grade.failure == "error"', "grade.failure is not None"),
    "kinds by another field": Plant(_DYNAMICS, "metadata.get(field, MISSING)", 'metadata.get("tool", MISSING)'),
    "code ratio of blocks": Plant(
        _DYNAMICS, "sum(member.trajectory.has_code for", "sum(len(member.trajectory.tool_calls) for"
    ),
    "blocks before the answer of their own turn": Plant(
        _DYNAMICS, "offset + block.start < answer.start", "block.start < answer.start"
    ),
    "pass ratio of the wrong responses": Plant(
        _DYNAMICS, "for call, correct in runs if correct]", "for call, correct in runs]"
    ),
    "calls with code as calls without": Plant(
        _DYNAMICS,
        "_ratio(names.CALLS_WITHOUT_CODE, calls - len(runs), calls)",
        "_ratio(names.CALLS_WITHOUT_CODE, len(runs), calls)",
    ),
    "statuses over all calls": Plant(_DYNAMICS, "count / len(runs) for status", "count / calls for status"),
    "exceptions of the model by their names": Plant(
        _DYNAMICS, "error if error in _PYTHON_EXCEPTIONS else OTHER_EXCEPTION", "error"
    ),
    "another tool is the right one": Plant(_DYNAMICS, "called == {right}", "called != {right}"),
    "lengths of sampled tokens": Plant(
        _DYNAMICS,
        "tokens = sum(map(len, trajectories))",
        "tokens = sum(int(each.loss_mask_T.sum()) for each in trajectories)",
    ),
    "ended responses as truncated": Plant(_DYNAMICS, "is FinishReason.LENGTH", "is not FinishReason.LENGTH"),
    "turns of the longest response": Plant(_DYNAMICS, "sum(len(trajectory.turns)", "max(len(trajectory.turns)"),
    "ages from the next version": Plant(_DYNAMICS, "ages = step - np", "ages = step + 1 - np", run="stale"),
    "every trajectory spans versions": Plant(
        _DYNAMICS, "len(np.unique(each)) > 1", "len(np.unique(each)) > 0", run="stale"
    ),
    # --- behaviors
    "comments as lines of code": Plant(_BEHAVIORS, ' and not line.lstrip().startswith("#")', ""),
    "no name in parentheses": Plant(_BEHAVIORS, "if not iskeyword(found[1])", "if iskeyword(found[1])"),
    "failed runs before the answer": Plant(_BEHAVIORS, "if any(call.outcome.ok for call in calls):", "if calls:"),
    "reasoning of any length": Plant(_BEHAVIORS, "number >= MIN_REASONING_WORDS", "number > 0"),
    "equal runs as changed": Plant(_BEHAVIORS, "len(one & other) <", "len(one & other) >"),
    "agreement as disagreement": Plant(_BEHAVIORS, "1 - len(disagreed) / len(checks)", "len(disagreed) / len(checks)"),
    "corrections over all checks": Plant(_BEHAVIORS, "in disagreed) / len(disagreed)", "in disagreed) / len(checks)"),
    "any answer after a check as a change": Plant(
        _BEHAVIORS, "final is None or not same_value(final.text, stated)", "True"
    ),
    "recovered also if wrong": Plant(_BEHAVIORS, "return grade.correct and has_recovery", "return has_recovery"),
    "own opening tag as an invented result": Plant(
        _BEHAVIORS, "ends_with_call=turn.stop_reason is StopReason.CALL", "ends_with_call=False"
    ),
    "easy groups as hard ones": Plant(_BEHAVIORS, "accuracy < HARD_ACCURACY", "accuracy > HARD_ACCURACY"),
    # --- facts of records and grades
    "total without turn rewards": Plant(
        _GRADES, "return self.reward + sum(self.turn_rewards)", "return self.reward", run="turns"
    ),
    "credit without a valid format": Plant(
        _GRADES, "return self.correct and self.valid_format", "return self.correct", "selection", "selected"
    ),
    "uniform by correctness": Plant(_GRADES, "len({member.total for", "len({member.grade.correct for"),
    "later calls in a turn": Plant(
        "torl.base.types.trajectories",
        "self.tool_calls if call.start == turn.stop)",
        "self.tool_calls if call.start >= turn.stop)",
    ),
    # --- selection
    "last groups of a full batch": Plant(
        _SELECTION, "chosen.kept[:wanted]", "chosen.kept[-wanted:]", "selection", "dynamic"
    ),
    "surplus of all groups": Plant(
        _SELECTION, "len(chosen.kept) - len(batch),", "len(groups) - len(batch),", run="dynamic"
    ),
    "missing groups without dynamic sampling": Plant(
        _SELECTION, "if config.selection.dynamic_sampling else 0", "if config.selection else 0", run="bounded"
    ),
    "groups of the smallest size dropped": Plant(
        _SELECTION,
        "len(group.members) < min_group_size",
        "len(group.members) <= min_group_size + 1",
        "selection",
        "selected",
    ),
    "accuracy on a bound kept": Plant(
        _FILTERS, "group.credited_fraction < high", "group.credited_fraction <= high", "selection", "bounded"
    ),
    "undecided without an answer": Plant(
        _FILTERS, "sum(member.grade.failure is not None", "sum(member.grade.answer is None", "selection", "dynamic"
    ),
    "worst correct members kept": Plant(
        _FILTERS, "key=defects)", "key=lambda member: -defects(member))", "selection", "selected"
    ),
    "cut members kept": Plant(
        _FILTERS,
        "member.trajectory.finish_reason is not FinishReason.LENGTH]",
        "member.trajectory.turns]",
        run="selected",
    ),
    "larger next rounds": Plant(
        _SELECTION, "max(kept / played, 0.25)", "max(kept / played, 0.25) / 2", "prompts", "dynamic"
    ),
    "another shuffle of rewards": Plant(
        _SELECTION, "Random(seed).shuffle", "Random(seed + 1).shuffle", "advantages", "shuffled"
    ),
    "shuffled rewards without turn rewards": Plant(
        _SELECTION,
        "turn_rewards=()), reward=grade.total)",
        "turn_rewards=()), reward=grade.reward)",
        "advantages",
        "shuffled",
    ),
    # --- order
    "one order for all epochs": Plant(_SAMPLER, "{self._seed}/{self._epoch}/", "{self._seed}/0/", "prompts"),
    "problems of the last epoch first": Plant(
        _SAMPLER,
        "(*first[: self._shared], *later, *first[self._shared :])",
        "(*first, *later)",
        "prompts",
    ),
    "cooldown after more groups": Plant(
        _CURRICULUM, "abs(streak) >= self", "abs(streak) > self", "prompts", "curriculum"
    ),
    "cooldown of mixed groups": Plant(_CURRICULUM, "(accuracy == 0.0)", "(accuracy < 1.0)", "prompts", "curriculum"),
    "first problem of the buffer": Plant(
        "torl.components.data.stream", "int.from_bytes(digest) % len(self._buffer)", "0", "prompts", "stream"
    ),
    # --- masks
    "right truncated responses masked": Plant(
        _MASKS,
        "is FinishReason.LENGTH and not member.grade.credited",
        "is FinishReason.LENGTH and member.grade.credited",
        run="masked",
    ),
    "decided wrong answers masked": Plant(
        _MASKS, "return member.grade.failure is not None", "return not member.grade.correct", run="masked"
    ),
    "text without repetition masked": Plant(
        _MASKS, "(member.trajectory.text) > above", "(member.trajectory.text) < above", run="masked"
    ),
    "perplexity of the whole response": Plant(
        _MASKS, ".mean(dtype=np.float64)", ".sum(dtype=np.float64)", run="masked"
    ),
    "any turn without a block masked": Plant(
        "torl.recipes.simpletir", "not turn.blocks and find_answer(turn.text) is None", "not turn.blocks", run="masked"
    ),
    "two numbers of blocks allowed": Plant("torl.recipes.zerotir", "runs}) > 1", "runs}) > 2", run="masked"),
    # --- mini-batches, counts and recorded groups
    "one order of mini-batches for all epochs": Plant(
        _STEPS, "repr((key, epoch))", "repr((key, 0))", "updates", "stale"
    ),
    "mini-batches in another order": Plant(
        _STEPS, "np.array_split(order,", "np.array_split(order[::-1],", "updates", "stale"
    ),
    "means of the counts of optimizer steps": Plant(
        _STEPS, "sum(values) if name in _SUMS else", "sum(values) / len(values) if name in _SUMS else", run="stale"
    ),
    "other recorded groups": Plant("torl.training.token_records", '"recorded groups")', '"recorded")', "updates"),
    "tokens without prompts": Plant(
        "torl.learner.batch", "sum(len(samples[index]) for index in packed)", "sum(counts[index] for index in packed)"
    ),
    "imitated sampled tokens": Plant(
        "torl.components.algorithms.imitation",
        "member.trajectory.loss_mask_T, 0, weight)",
        "~member.trajectory.loss_mask_T, 0, weight)",
        run="imitating",
    ),
    # --- rewards, advantages and the loss
    "biased deviation of rewards": Plant(
        "torl.components.algorithms.reward_advantages",
        "rewards_N.std(ddof=1)",
        "rewards_N.std()",
        "advantages",
        "normalized",
    ),
    "turn rewards at the first token": Plant(
        _SAMPLES, "prompt_tokens + turn.stop - 1", "prompt_tokens + turn.start", "advantages", "turns"
    ),
    "mean advantage with prompts": Plant(
        "torl.training.step", "sample.advantages[sample.loss_mask].mean(", "sample.advantages.mean(", "advantages"
    ),
    "loss over trajectories": Plant(_AGGREGATION, "1 / max(1.0, tokens_N.sum())", "1 / len(tokens_N)"),
    "loss over absent sequences": Plant(
        _AGGREGATION, "(max(1, present_N.sum()) * np.maximum", "(len(tokens_N) * np.maximum", run="masked"
    ),
    # --- evaluations and settings
    "accuracy without too long prompts": Plant(_EVALUATION, "len(problems.prompts) / (", "1 or ("),
    "greedy accuracy of sampled groups": Plant(
        _EVALUATION,
        "sum(group.accuracy for group in greedy) / len(greedy)",
        "sum(group.accuracy for group in groups) / len(groups)",
    ),
    "summary after training as before": Plant(
        "torl.run.display.outcome", '("before", evaluations.get(0, {}))', '("before", evaluations[max(evaluations)])'
    ),
    "first value of a schedule for ever": Plant(
        "torl.run.config.training",
        '".join(path): value_at(schedule, step) for',
        '".join(path): value_at(schedule, 0) for',
        run="scheduled",
    ),
}


@pytest.fixture(autouse=True)
def scripted_learner(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of this file have a learner without processes, and no page of charts, which takes most of the time."""
    monkeypatch.setattr("torl.training.startup.Learner", ScriptedLearner)
    monkeypatch.setattr(Monitors, "installed", lambda config: Monitors())


def verified(run: Path) -> Audit:
    return asyncio.run(verify_run(run, 0, trust=True))


@pytest.mark.parametrize("name", RUNS)
def test_a_run_without_a_mistake_agrees(name: str, tmp_path: Path) -> None:
    audit = verified(train_by_script(tmp_path / "files", RUNS[name]))
    assert audit.ok, str(audit)
    assert all(check.compared for check in audit.checks if check.name != "logprobs")


@pytest.mark.parametrize("name", PLANTS)
def test_a_run_with_a_wrong_formula_does_not(name: str, tmp_path: Path) -> None:
    plant = PLANTS[name]
    with planted(plant.module, plant.old, plant.new):
        audit = verified(train_by_script(tmp_path / "files", RUNS[plant.run]))
    assert audit[plant.check].wrong, str(audit)


def test_at_least_thirty_formulas_are_tried() -> None:
    assert len(PLANTS) >= 30


def test_a_stranger_s_component_is_called_a_second_time_and_named(tmp_path: Path) -> None:
    mask = {"name": "scripted_training:is_short", "below": 40}
    audit = verified(train_by_script(tmp_path / "files", {"selection": {"mask": {"short": mask}}}))
    assert audit.ok, str(audit)
    note = "scripted_training:is_short has no second implementation: called a second time"
    assert audit["selection"].note == note
