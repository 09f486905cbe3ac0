"""The exhibits of the museum: valid ground truths and settings, and bugs that change what they say they change."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarks.doctors.exhibits.catalog import CHECKS, EXHIBITS, RECEIPT, REPLAY, applied, load_all
from benchmarks.doctors.exhibits.sampling import tokenizer
from benchmarks.doctors.exhibits.table import lines
from benchmarks.doctors.museum import SETTINGS
from builders import asked, call, failed, printed, scored, scored_group, trajectory
from torl.base.errors import ToolUnavailableError
from torl.base.types import FinishReason, Grade, OutcomeStatus, SampledTurn, TrainingSample, Trajectory, TurnFinish
from torl.components.data.sampler import PromptSampler
from torl.components.rewards.math import MathReward
from torl.learner import optimizer_steps
from torl.learner.batch import scatter_to_samples
from torl.rollout import transcript
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.training import samples, selection, step
from torl_lab.audit.evaluations import Checks
from torl_lab.doctor import registry

load_all()


def demo(**settings: object) -> TrainConfig:
    """The demo's configuration with these settings by dotted name."""
    words = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in settings.items()}
    return load_config(TrainConfig, find_config("demo"), words)


def wrapped(name: str, original: Any) -> Any:
    """The function with the bug of an exhibit for another original than torl's."""
    return next(iter(EXHIBITS[name].patches.values()))(original)


# --- the catalog ----------------------------------------------------------------------------------------------------


def test_there_are_thirty_exhibits_of_different_threads() -> None:
    threads = [exhibit.thread for exhibit in EXHIBITS.values()]
    assert len(threads) == len(set(threads)) >= 30


def test_checks_are_those_of_verify() -> None:
    assert set(CHECKS) == {check.name for check in vars(Checks()).values()}


@pytest.mark.parametrize("name", EXHIBITS)
def test_an_exhibit_names_a_thread_and_valid_checks(name: str) -> None:
    exhibit = EXHIBITS[name]
    known = {*registry.CHECKS, *(f"verify:{check}" for check in CHECKS), RECEIPT, REPLAY}
    assert set(exhibit.truth) <= known
    assert exhibit.truth
    assert exhibit.link.startswith("https://github.com/")
    assert exhibit.says.endswith(".")
    assert exhibit.patches or exhibit.settings
    assert demo(**SETTINGS | dict(exhibit.settings))


def test_recall_false_alarms_and_delay() -> None:
    """One of two bugs is found after three steps; another name and an alarm of flawless runs do not count."""
    chosen = {name: EXHIBITS[name] for name in ("old-weights", "equal-seeds")}
    run = {"run": {"seconds": 60.0}, "verify": {}, "stop": {}}
    results: dict[str, dict[str, Any]] = {
        "old-weights": run | {"doctor": {"stale-engine": 3, "no-signal": 1}, "rldoctor": {"plateau": 9}},
        "equal-seeds": run | {"doctor": {"truncation": 5}, "rldoctor": {"advantage_collapse": 2}},
        "flawless-0": run | {"doctor": {}, "rldoctor": {"plateau": 12}},
    }
    text = "\n".join(lines(chosen, results))
    assert "| torl, all | 1 of 2 | 0.50 | 0 of 1 | 3 |" in text
    assert "| rldoctor | 1 of 2 | 0.50 | 1 of 1 | 2 |" in text
    assert "**stale-engine** (3), no-signal (1)" in text


# --- from a trajectory to a sample ----------------------------------------------------------------------------------

CALLING = trajectory("```python\nprint(1)\n```\n", "so \\boxed{1}", turn_tokens=2)
CUT = trajectory("never ends", finish=FinishReason.LENGTH, turn_tokens=3)


def sample_of(played: Trajectory, name: str | None = None) -> TrainingSample:
    if name is None:
        return samples.training_samples([scored(played)])[0]
    with applied(EXHIBITS[name]):
        return sample_of(played)


def test_samples() -> None:
    flawless = sample_of(CALLING)
    assert flawless.loss_mask.tolist() == [False] * 3 + [True, True, False, False, True, True]
    assert sample_of(CALLING, "observation-loss").loss_mask.tolist() == [False] * 3 + [True] * 6
    assert sample_of(CALLING, "unlearned-end").loss_mask.tolist() == [*flawless.loss_mask[:-1], False]
    assert sample_of(CALLING, "shifted-mask").loss_mask.tolist() == [*flawless.loss_mask[1:], False]
    assert sample_of(CUT, "forced-end").token_ids.tolist() == [*sample_of(CUT).token_ids[:-1], 1875]
    hidden = sample_of(CALLING, "unattended-observations")
    assert hidden.token_ids.tolist() == [1, 2, 3, 0, 1, 4, 5]
    assert hidden.loss_mask.sum() == flawless.loss_mask.sum()
    assert sample_of(CALLING).loss_mask.tolist() == flawless.loss_mask.tolist(), "a patch was not removed"


def pack(name: str | None, chosen: list[TrainingSample]) -> Any:
    if name is None:
        return optimizer_steps.pack_batch(chosen, max_row_tokens=12, ranks=1)
    with applied(EXHIBITS[name]):
        return pack(None, chosen)


def test_rows() -> None:
    chosen = [replace(sample_of(each), advantages=np.ones(len(sample_of(each)), np.float32)) for each in (CALLING, CUT)]
    padded = pack("attended-padding", chosen)
    row = padded.rows[0][0]
    assert row.token_ids_N[:8].tolist() == [1875] * 8
    values = [[row.target_K.astype(np.float32) for row in rank] for rank in padded.rows]
    found = scatter_to_samples(chosen, padded.rows[0], values[0])
    for sample, array in zip(chosen, found, strict=True):
        assert array[sample.loss_mask].tolist() == sample.token_ids[sample.loss_mask].tolist()
    flawless, averaged = pack(None, chosen), pack("mean-of-means", chosen)
    assert len({float(row.weight_K[0]) for row in flawless.rows[0]}) == 1
    sums = [float(row.weight_K.sum()) for row in averaged.rows[0]]
    assert sums == pytest.approx([0.5, 0.5])


async def test_turns_from_the_engine() -> None:
    spelled = [tokenizer().token_to_id(each) for each in "print"]
    turn = SampledTurn((*spelled, 1875), (-1.0,) * (len(spelled) + 1), ((0, 0),), TurnFinish.STOP, 0)
    asked_for: list[Any] = []

    async def sample(self: Any, request: Any, on_block: Any) -> SampledTurn:
        asked_for.append(request)
        return turn

    again = await wrapped("encoded-again", sample)(None, None)
    assert again.token_ids != turn.token_ids
    assert tokenizer().decode(again.token_ids) == tokenizer().decode(turn.token_ids)
    assert len(again.logprobs) == len(again.token_ids)
    request = transcript.TurnRequest("id", [5, 6], transcript.SamplingParameters(8))
    await wrapped("doubled-first-token", sample)(None, request)
    assert list(asked_for[-1].prefix) == [1875, 5, 6]


def test_requests_to_the_engine() -> None:
    def params(request: Any, stop_token_ids: Any) -> SimpleNamespace:
        return SimpleNamespace(top_k=0, repetition_penalty=1.0, ignore_eos=False, stop_token_ids=stop_token_ids)

    assert wrapped("sampling-defaults", params)(None, [1875]).top_k == 20
    endless = wrapped("unknown-end-token", params)(None, [1875])
    assert endless.ignore_eos
    assert endless.stop_token_ids == []
    names = [(0, 3, "p", sample, 0) for sample in range(2)]
    assert len({transcript.derive_seed(*name) for name in names}) == 2
    with applied(EXHIBITS["equal-seeds"]):
        assert len({transcript.derive_seed(*name) for name in names}) == 1


def test_a_cut_response_counts_as_complete() -> None:
    def finished(self: Any, episode: Any, sampler: Any, finish: FinishReason, seconds: float) -> FinishReason:
        return finish

    found = wrapped("lost-truncation", finished)(None, None, None, FinishReason.LENGTH, 1.0)
    assert found is FinishReason.STOP


# --- rewards --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "played", "right", "with_bug"),
    [
        ("passing-grader", trajectory("\\boxed{2}", answer="1"), False, True),
        ("rewarded-errors", trajectory("```python\nx\n```\n", "?", calls=[call("x", failed())]), False, True),
        ("errors-as-wrong", trajectory("\\boxed{12345}", answer="12345"), True, False),
        ("errors-as-wrong", trajectory("\\boxed{12}", answer="12"), True, True),
        ("unread-references", trajectory("?", answer="12345"), False, True),
        ("substring-match", trajectory("no answer", answer="1"), False, True),
        ("substring-match", trajectory("\\boxed{2}", answer="31"), False, False),
    ],
)
async def test_graders(name: str, played: Trajectory, right: bool, with_bug: bool) -> None:
    reward = MathReward()
    flawless: Grade = await reward._grade(played)
    assert (flawless.correct, flawless.reward) == (right, 1.0 if right else -1.0)
    with applied(EXHIBITS[name]):
        found: Grade = await reward._grade(played)
    assert (found.correct, found.reward) == (with_bug, 1.0 if with_bug else -1.0)


def test_remaining_rows_have_the_rewards_of_others() -> None:
    config = demo(**{"selection.groups.zero_variance": {}})
    groups = [scored_group(True, True), scored_group(False, True)]
    assert step.select_batch is selection.select_batch
    with applied(EXHIBITS["rewards-of-other-rows"]):
        (group,) = step.select_batch(groups, config).batch
    assert [member.reward for member in group.members] == [1.0, 1.0]
    assert [member.grade.reward for member in group.members] == [0.0, 1.0]


# --- tools and episodes ---------------------------------------------------------------------------------------------


async def test_outcomes() -> None:
    outputs = iter(f"{number}\n" for number in range(1000))

    async def run(self: Any, arguments: Any) -> Any:
        return printed(next(outputs))

    session = SimpleNamespace(seed=0)
    codes = [{"code": f"print({number})"} for number in range(200)]
    dying = wrapped("graded-deaths", run)
    crashed = [(await dying(session, code)).status is OutcomeStatus.CRASH for code in codes]
    assert 0.05 < np.mean(crashed) < 0.25
    silent = wrapped("hidden-failures", run)
    empty = [await silent(session, code) for code in codes]
    assert 0.5 < np.mean([outcome.text == "" for outcome in empty]) < 0.75
    assert all(outcome.ok for outcome in empty)
    late = wrapped("exchanged-results", run)
    first, second = [await late(session, code) for code in codes[:2]]
    assert first.text == second.text


async def test_long_episodes_are_discarded() -> None:
    async def play(self: Any, prompt: Any, *, batch_id: int | str, sample: int) -> Trajectory:
        return trajectory("long", turn_tokens=sample)

    discarding = wrapped("discarded-slow", play)
    assert len(await discarding(None, None, batch_id=0, sample=70)) == 70
    with pytest.raises(ToolUnavailableError):
        await discarding(None, None, batch_id=0, sample=71)


# --- data and advantages --------------------------------------------------------------------------------------------


def test_prompts() -> None:
    prompts = [asked(f"p{number}") for number in range(8)]
    with applied(EXHIBITS["repeated-prompts"]):
        sampler = PromptSampler(prompts, 0)
        first, second, third = (sampler.take(2) for _ in range(3))
    assert first == second != third
    moved = PromptSampler(prompts, 0)
    moved.take(4)
    with applied(EXHIBITS["replayed-data"]):
        resumed = PromptSampler(prompts, 0)
        resumed.load_state_dict(moved.state_dict())
    assert resumed.take(2) == first


def advantages_of(name: str | None, groups: list[Any]) -> list[float]:
    if name is not None:
        with applied(EXHIBITS[name]):
            return advantages_of(None, groups)
    made = samples.training_samples([member for group in groups for member in group.members])
    found = samples.with_advantages(made, groups, demo().algorithm)
    return [float(sample.advantages[sample.loss_mask][0]) for sample in found if sample.advantages is not None]


def test_advantages() -> None:
    groups = [
        scored_group(*(scored(trajectory("a", group="0/a"), reward=reward) for reward in (0.0, 1.0, 1.0))),
        scored_group(*(scored(trajectory("b", group="0/b"), reward=reward) for reward in (0.0, 0.0, 0.0, 1.0))),
    ]
    flawless = advantages_of(None, groups)
    assert sum(flawless[:3]) == pytest.approx(0, abs=1e-6)
    batch = advantages_of("batch-statistics", groups)
    assert sum(batch[:3]) > 0.5
    assert sum(batch) == pytest.approx(0, abs=1e-5)
    strided = advantages_of("groups-by-stride", groups)
    assert sum(strided[:4]) == pytest.approx(0, abs=1e-5)
    assert sum(strided[:3]) != pytest.approx(0, abs=0.1)
    twice = advantages_of("double-normalization", groups)
    assert np.std(twice, ddof=1) == pytest.approx(1, abs=0.05)
    assert twice != pytest.approx(flawless, abs=1e-3)
