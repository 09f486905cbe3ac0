"""The doctor on records with a planted problem: exactly its check fires."""

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest

from builders import asked, failed, grade, play_trajectories, player
from demo_maker import chat
from demo_maker.chat_model import make_tokenizer
from planted_runs import PLANTED, STEPS, Case, config, graded, inventing, played, records, slow_replica, with_slow_call
from scripted_engine import ScriptedEngine, ScriptedInterpreter
from torl.base.types import Markup
from torl.components.formats.chat import HermesFormat
from torl.components.text.tokenizer import PlainTextEncoder
from torl.components.text.vocabulary import build_vocabulary
from torl.run.records import metric_names as names
from torl.run.records.rows import TrajectoryRecord
from torl_lab.doctor.facts import members_of
from torl_lab.doctor.groups import kolmogorov_smirnov
from torl_lab.doctor.history import mann_kendall
from torl_lab.doctor.registry import CHECKS, StepHistory, run_checks


def test_flawless_run_has_no_finding() -> None:
    results = run_checks(Case().history())
    assert [str(each) for each in results.findings] == []


def test_every_check_has_a_planted_run() -> None:
    assert PLANTED.keys() == CHECKS.keys()


@pytest.mark.parametrize("name", PLANTED)
def test_planted_run_has_exactly_its_finding(name: str) -> None:
    results = run_checks(PLANTED[name].history())
    assert [each.check.id for each in results.findings] == [name]
    (finding,) = results.findings
    assert finding.check.fix in "\n".join(finding.lines())
    assert len(finding.evidence) <= 3
    assert name == "stall" or all(":" in each for each in finding.evidence)


@pytest.mark.parametrize("name", ["entropy-collapse", "vanished-calls", "length-runaway", "void-turns", "no-signal"])
def test_finding_is_conditional_on_a_flat_reward(name: str) -> None:
    case = PLANTED[name]
    rising = replace(case, metrics=lambda step, row: {**case.metrics(step, row), names.REWARD_MEAN: step / STEPS})
    assert name not in [each.check.id for each in run_checks(rising.history()).findings]


@pytest.mark.parametrize("name", ["no-signal", "unlearned-format"])
def test_equal_rewards_are_no_finding_if_the_estimator_learns_from_them(name: str) -> None:
    learning = replace(
        PLANTED[name], config=config(algorithm__estimator="gtpo", selection__groups__zero_variance=False)
    )
    assert name not in [each.check.id for each in run_checks(learning.history()).findings]


def test_growth_of_length_that_came_with_reward_is_no_finding() -> None:
    """Length and reward rise until the middle of the run and then stay; a rise of length after it is a finding."""

    def run(later_growth: float) -> list[str]:
        def metrics(step: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
            early, late = min(step, STEPS // 2), max(0, step - STEPS // 2)
            gains = {names.REWARD_MEAN: early / STEPS, names.SAMPLED_TOKENS: 40 + 4 * early + later_growth * late}
            return {**row, **gains}

        return [each.check.id for each in run_checks(Case(metrics=metrics).history()).findings]

    assert run(0) == []
    assert run(24) == ["length-runaway"]


def test_few_invented_results_are_chance() -> None:
    """5 of 80 responses are above 5 %, and fewer than the 10 that 3 standard deviations allow."""
    few = records(lambda index, each: inventing(each) if index == 0 else each)
    assert "invented-results" in run_checks(few.history()).passed


def test_missing_input_is_skipped_with_its_reason() -> None:
    results = run_checks(StepHistory(config()))
    assert not results.passed
    assert not results.findings
    assert all(results.skipped.values())
    assert run_checks(Case().history()).skipped["kl-blow-up"] == "no step has learner/reference_kl"


def test_trend_of_ten_rising_values_has_the_score_of_the_formula() -> None:
    """All 45 pairs rise, and the variance is 10 * 9 * 25 / 18 = 125 (Mann 1945)."""
    assert mann_kendall([float(value) for value in range(10)]) == pytest.approx(44 / 125**0.5)
    assert mann_kendall([1.0] * 10) == 0


@pytest.mark.parametrize(("critical", "p"), [(1.358, 0.05), (1.628, 0.01)])
def test_difference_of_distributions_has_the_p_value_of_published_tables(critical: float, p: float) -> None:
    """The statistic is k / n for two samples of n values that differ by k places (Smirnov 1948)."""
    count = 20_000
    shift = round(critical * count / (count / 2) ** 0.5)
    statistic, found = kolmogorov_smirnov(range(count), range(shift, count + shift))
    assert statistic == pytest.approx(shift / count)
    assert found == pytest.approx(p, rel=0.02)


def test_the_token_limit_of_a_response_is_that_of_its_step() -> None:
    case = PLANTED["cut-as-complete"]
    rollout = {"rollout__max_response_tokens": [[0, 160], [STEPS, 400]]}  # it rises after the last step
    assert [each.check.id for each in run_checks(replace(case, config=config(**rollout)).history()).findings] == [
        "cut-as-complete"
    ]


# --- workers: each kind of difference -------------------------------------------------------------------------------


def on_nodes(index: int, record: TrajectoryRecord, *, fails: bool = False, waits: bool = False) -> TrajectoryRecord:
    """Calls on two nodes, of which the second fails or is slow."""
    node = index // 4 % 2

    def call(each):  # type: ignore[no-untyped-def]
        outcome = failed() if fails and node else each.outcome
        outcome = replace(outcome, details={"worker_node": node})
        return replace(each, outcome=outcome, wait_seconds=2.0 if waits and node else 0.05)

    return played(record, tool_calls=tuple(map(call, record.trajectory.tool_calls)))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"fails": True}, "node 1 of the sandbox fails on 100% of its calls, the others on 0%"),
        ({"waits": True}, "a call waits for node 1 of the sandbox 2 s, the others 0.05 s"),
    ],
)
def test_differing_node_is_named(changes: dict[str, bool], expected: str) -> None:
    history = records(lambda index, each: on_nodes(index, each, **changes)).history()
    (finding,) = run_checks(history).findings
    assert (finding.check.id, finding.text) == ("sick-worker", expected)


def test_equal_nodes_are_no_finding() -> None:
    results = run_checks(records(on_nodes).history())
    assert "sick-worker" in results.passed


def test_replica_with_other_numbers_is_named() -> None:
    """The gap of one replica is 1e-3 nats: above the rounding of float32, and 10,000 times the other's."""
    planted = Case(record=lambda step, index, each: played(slow_replica(index, each), seconds=1.0))
    history = StepHistory(planted.config)
    for step in planted.steps():
        numbers = dict(step.numbers)
        for key, each in step.numbers.items():
            shift = np.float32(1e-3 if key.sample >= 4 else 0.0)
            arrays = {**each.arrays, "learner_logprobs": each.arrays["learner_logprobs"] - shift}
            numbers[key] = replace(each, arrays=arrays)
        history.add(step.number, step.metrics, step.records, numbers)
    found = {each.check.id: each.text for each in run_checks(history).findings}
    assert "the gap of replica 1 of the engine to the learner is 0.001 nats" in found["sick-worker"]


def test_unused_penalty_is_no_dead_part() -> None:
    """A length penalty that no response earned is 0 for all and no finding. Another part is dead."""
    unused = records(
        lambda index, each: graded(each, parts={"answer": each.grade.reward, "style": 0.0}), all_steps=True
    )
    penalty = replace(unused, config=config(reward__parts__style={"name": "overlong", "buffer": 20}))
    assert "dead-part" in run_checks(penalty.history()).passed
    (finding,) = run_checks(unused.history()).findings
    assert finding.text == "style is 0 for all of 400 compared responses"


# --- separators: a conversation that is played in a chat format -------------------------------------------------------


class DoubledEnd(HermesFormat):
    """Writes the end token that the model has sampled a second time."""

    def continuation(self, *arguments: Any) -> list[str | Markup]:
        return [Markup(self.message_end), *super().continuation(*arguments)]


@pytest.mark.parametrize(("form", "counts"), [(HermesFormat(), (1, 0, 0)), (DoubledEnd(), (1, 1, 0))])
async def test_end_tokens_between_messages_are_counted(form: HermesFormat, counts: tuple[int, int, int]) -> None:
    tokenizer = make_tokenizer(chat.conversation)
    vocabulary = build_vocabulary(tokenizer, form.visible_tokens)
    arguments = '{"name": "python", "arguments": {"code": "print(1)"}}'
    turns = [f"<tool_call>\n{arguments}\n</tool_call>{form.message_end}", f"So \\boxed{{1}}{form.message_end}"]
    end = frozenset({tokenizer.convert_tokens_to_ids(form.message_end)})
    engine = ScriptedEngine(lambda id: tokenizer.encode(turns[int(id[-1])]), vocabulary=vocabulary, stop_token_ids=end)
    playing = player(
        engine,
        ScriptedInterpreter(),
        form=form,
        limit=500,
        vocabulary=vocabulary,
        encoder=PlainTextEncoder(tokenizer, vocabulary),
        end_token_ids=end,
        max_tool_calls=2,
    )
    (trajectory,) = await play_trajectories(playing, [asked(token_ids=tokenizer.encode("6 * 7?"))], 0, 1)
    (member,) = members_of(0, [TrajectoryRecord(0, trajectory, grade(True))])
    assert (member.boundaries, member.doubled, member.unseparated) == counts


def test_groups_of_other_responses_have_advantages_off_zero() -> None:
    """Responses are compared with those of the batch, of which one group is solved more often."""

    def record(step: int, index: int, each: TrajectoryRecord) -> TrajectoryRecord:
        is_right = index % 8 < (7 if index < 8 else 1)
        reward = 1.0 if is_right else -1.0
        return replace(graded(each, reward=reward, correct=is_right, answer="1" if is_right else "2"), advantage=reward)

    whitened = Case(record=record, config=config(algorithm__normalize_advantages=True))
    assert "advantage-without-reward" in run_checks(whitened.history()).skipped
    found = {each.check.id: each.text for each in run_checks(Case(record=record).history()).findings}
    assert found["advantage-without-reward"].startswith("the mean advantage of a group is off 0 by 0.75")


def test_groups_of_other_spread_have_advantages_of_equal_size() -> None:
    """Rewards with a part for brevity: groups of correct responses differ by it alone, and are scaled as the others."""

    def record(step: int, index: int, each: TrajectoryRecord) -> TrajectoryRecord:
        brevity = 0.01 * (index % 8)
        is_right = index < 8 or index % 2 == 0
        rewards = [0.01 * place + (1.0 if index < 8 or place % 2 == 0 else -1.0) for place in range(8)]
        reward = brevity + (1.0 if is_right else -1.0)
        advantage = (reward - fmean(rewards)) / stdev(rewards)
        made = graded(each, reward=reward, correct=is_right, answer="1" if is_right else "2")
        return replace(made, advantage=advantage)

    assert "advantage-without-reward" in run_checks(Case(record=record).history()).passed


def test_credit_for_another_number_is_found() -> None:
    wrong = records(lambda index, each: graded(each, answer="1.5") if index == 2 else each)
    (finding,) = run_checks(wrong.history()).findings
    assert finding.text.startswith("5 of 80 responses are correct")


@pytest.mark.parametrize(("answer", "reference"), [("220110", "220110_3"), ("1061_9", "1061")])
def test_a_numeral_without_its_base_is_no_other_number(answer: str, reference: str) -> None:
    """From a run on MATH: Python's `float` reads the base of 220110_3 as a digit."""

    def with_base(record: TrajectoryRecord) -> TrajectoryRecord:
        prompt = record.trajectory.prompt
        problem = replace(prompt.problem, answer=reference)
        return played(graded(record, answer=answer, correct=True), prompt=replace(prompt, problem=problem))

    case = records(lambda index, each: with_base(each) if index == 2 else each)
    assert "credit-without-answer" in run_checks(case.history()).passed


def test_slow_call_that_delays_no_step_is_no_finding() -> None:
    """Another episode is as long without a call, or started later: the step would not have ended sooner."""

    def beside(step: int, index: int, each: TrajectoryRecord) -> TrajectoryRecord:
        return played(each, seconds=3.8) if index == 6 else with_slow_call(each) if index == 5 else each

    later = {names.TIME_ROLLOUT: 7.5}
    slow = PLANTED["slow-calls"].record
    for case in (Case(record=beside), Case(record=slow, metrics=lambda step, row: row | later)):
        assert "slow-calls" in run_checks(case.history()).passed
    (found,) = run_checks(PLANTED["slow-calls"].history()).findings
    assert found.text == "58% of the steps' time passes waiting for one call, of up to 3.5 s"


def test_a_learner_that_does_not_wait_has_no_slow_calls() -> None:
    ahead = config(rollout__max_staleness=1, algorithm__importance_correction="tis")
    assert "slow-calls" not in run_checks(Case(ahead, record=PLANTED["slow-calls"].record).history()).passed


@pytest.mark.parametrize("steps", [3, STEPS])
def test_steps_in_which_the_critic_learns_alone_need_no_gradient(steps: int) -> None:
    """PPO's critic may learn first; a policy without a gradient after that is a finding."""
    ppo = {"algorithm__estimator": "ppo", "selection__groups__zero_variance": False}

    def without_gradient(step: int, row: Mapping[str, Any]) -> Mapping[str, Any]:
        return {name: value for name, value in row.items() if name != names.GRADIENT_NORM} if step < steps else row

    def found(pretrain_steps: int) -> list[str]:
        case = Case(config(**ppo, critic__pretrain_steps=pretrain_steps), metrics=without_gradient)
        history = StepHistory(case.config)
        alarms = set[str]()
        for each in case.steps():
            history.add(*each)
            alarms |= {finding.check.id for finding in run_checks(history).findings}
        return sorted(alarms)

    assert found(pretrain_steps=steps) == []
    assert found(pretrain_steps=0) == ["no-gradient"]
