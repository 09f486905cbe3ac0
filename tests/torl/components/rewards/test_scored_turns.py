"""Turns that a model or a function scores: their rewards, and that failures give none."""

import asyncio
import weakref
from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import ValidationError

from builders import asked, call, group, printed, trajectory
from judge_server import JudgeServer, serving
from torl.base.component import RunContext
from torl.base.errors import RewardError, ToolUnavailableError
from torl.base.types import Grade, Trajectory
from torl.components.rewards import JudgeClient, Rubric, RubricOptions
from torl.recipes.agent_prm import (
    MAX_TRANSCRIPT_CHARACTERS,
    FunctionScorer,
    JudgeScorer,
    TurnScoresOptions,
    compute_turn_rewards,
    read_score,
    transcripts,
)

QUESTION = asked(answer="12", question="How many eggs?")
PLAYED = trajectory(
    "first <b>",
    "second",
    r"\boxed{12}",
    prompt=QUESTION,
    calls=[call(outcome=printed("6"), observation="\nsix\n"), call(outcome=printed("12"), observation="\ntwelve\n")],
)


def opinion(prompt: str) -> str:
    """Rises with the text written so far."""
    return "0.5" if "twelve" in prompt else "0.75" if "six" in prompt else "0.25."


@pytest.fixture
async def server() -> AsyncIterator[JudgeServer]:
    async with serving(opinion) as judge:
        yield judge


async def graded(*played: Trajectory, parts: Any = None, **options: Any) -> tuple[list[Grade], Rubric]:
    tree = {"parts": {"answer": "math", **(parts or {}), "turn_scores": options}}
    reward = Rubric(RubricOptions.model_validate(tree))
    await reward.start(RunContext())
    try:
        return await reward.grade(group(*played)), reward
    finally:
        await reward.close()


async def test_each_turn_is_rewarded_by_the_score_of_its_prefix(server: JudgeServer) -> None:
    ((grade,), reward) = await graded(PLAYED, url=server.url, model="judge")
    assert (grade.reward, grade.turn_rewards) == (1.0, (0.25, 0.75, 0.5))
    assert grade.total == 2.5
    about_eggs = [prompt for prompt in server.prompts if "eggs" in prompt]
    rendered = sorted((prompt.partition(" and </transcript>")[2] for prompt in about_eggs), key=len)
    assert [prompt.partition("\n<transcript>")[2].partition("</transcript>")[0] for prompt in rendered] == [
        "first  < b>",
        "first  < b>\nsix\nsecond",
        "first  < b>\nsix\nsecond\ntwelve\n\\boxed{12}",
    ]
    assert (reward.metrics()["judge_asked"], reward.metrics()["judge_failures"]) == (4, 0)


async def test_progress_is_the_gain_of_a_turn(server: JudgeServer) -> None:
    ((grade,), _) = await graded(PLAYED, url=server.url, model="judge", turn_reward="progress", weight=2.0)
    assert grade.turn_rewards == (0.5, 1.0, -0.5)


def asking(server: JudgeServer) -> JudgeScorer:
    return JudgeScorer(JudgeClient(server.url, "judge", read_score, 5.0, 2))


async def test_a_turn_that_the_model_fails_on_has_no_number_and_is_counted(server: JudgeServer) -> None:
    server.reply = lambda prompt: 500 if "six" in prompt and "twelve" not in prompt else opinion(prompt)
    scores = asking(server)
    await scores.start()
    assert await scores.score(PLAYED) == [0.25, None, 0.5]
    assert scores.metrics()["judge_failures"] == 1
    await scores.close()


class Question(str):
    """A text of which it can be known whether anybody still has it."""


async def test_question_is_judged_once_and_its_text_is_not_kept(server: JudgeServer) -> None:
    model = JudgeClient(server.url, "judge", read_score, 5.0, 2)
    await model.start()
    question = Question("How likely?")
    kept = weakref.ref(question)
    assert await asyncio.gather(model.ask(question), model.ask(question)) == [0.25, 0.25]
    del question
    assert kept() is None
    assert await model.ask("How likely?") == 0.25
    assert server.prompts == ["How likely?"]
    await model.close()


async def test_questions_that_are_open_end_with_the_connection(server: JudgeServer) -> None:
    model = JudgeClient(server.url, "judge", read_score, 5.0, 1)
    await model.start()
    asking = [asyncio.ensure_future(model.ask(f"How likely, {number}?")) for number in range(3)]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for each in asking:
        each.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    await model.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    assert not [task for task in others if "JudgeClient" in repr(task)]


async def test_a_model_that_gives_no_numbers_does_not_start(server: JudgeServer) -> None:
    server.reply = lambda _: "quite likely"
    scores = asking(server)
    with pytest.raises(RewardError, match="did not answer with a number from 0 to 1"):
        await scores.start()
    await scores.close()


def lengths(trajectory: Trajectory) -> list[float]:
    return [len(turn.text) / 10 for turn in trajectory.turns]


async def later(trajectory: Trajectory) -> list[float]:
    return lengths(trajectory)


async def test_a_function_of_one_s_own_scores_turns() -> None:
    ((grade,), _) = await graded(PLAYED, function=f"{__name__}:lengths", parts={"malformed_turn": {"weight": -0.5}})
    assert grade.turn_rewards == (0.9, 0.6, 1.0)
    assert await FunctionScorer(f"{__name__}:later").score(PLAYED) == [0.9, 0.6, 1.0]


def too_few(trajectory: Trajectory) -> list[float]:
    return [0.0]


def no_number(trajectory: Trajectory) -> list[float]:
    return [float("nan")] * len(trajectory.turns)


def broken(trajectory: Trajectory) -> list[float]:
    raise KeyError("weights")


def unavailable(trajectory: Trajectory) -> list[float]:
    raise ToolUnavailableError("the server is away")


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("too_few", RewardError, r"gave \[0.0\] for 3 turns"),
        ("no_number", RewardError, "gave .nan, nan, nan. for 3 turns"),
        ("broken", RewardError, "broken failed: KeyError: 'weights'"),
        ("unavailable", ToolUnavailableError, "the server is away"),
        ("missing", RewardError, "has no missing"),
    ],
)
async def test_a_function_that_is_broken_stops_the_run(name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        await FunctionScorer(f"{__name__}:{name}").score(PLAYED)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "set one of function and url"),
        ({"function": "a:b", "url": "http://x", "model": "m"}, "set one of function and url"),
        ({"url": "http://x"}, "url and model belong together"),
    ],
)
def test_one_of_both_scores(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        TurnScoresOptions(**options)


@pytest.mark.parametrize(
    ("reply", "score"),
    [
        ("0.25", 0.25),
        ("0.25.", 0.25),
        (" 1\n", 1.0),
        ("0", 0.0),
        (".5 because", 0.5),
        ("1.0", 1.0),
        ("1.5", None),
        ("2", None),
    ]
    + [(reply, None) for reply in ("", "likely", "-0.5", "10", "0.5.1", "I say 0.5", "1%", "1 / 10", "1e-3", "0.5%")],
)
def test_a_reply_begins_with_a_number_from_0_to_1(reply: str, score: float | None) -> None:
    assert read_score(reply) == score


def test_progress_continues_from_the_last_available_score() -> None:
    assert compute_turn_rewards([0.5, None, 0.75], "progress") == [0.5, 0.0, 0.25]
    assert compute_turn_rewards([None, 0.5], "promise") == [0.0, 0.5]


def test_a_transcript_keeps_its_end() -> None:
    (rendered,) = transcripts(trajectory("a" * MAX_TRANSCRIPT_CHARACTERS + "z"))
    assert (len(rendered), rendered[-1]) == (MAX_TRANSCRIPT_CHARACTERS, "z")
