"""Episodes in an environment: its inputs, its replies, how it ends them, and the episodes that its failures drop."""

import asyncio
import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import asked, group
from chat_models import FAMILIES, ChatModel, message
from scripted_engine import ScriptedEngine, ScriptedInterpreter
from scripted_environment import ScriptedEnvironment, ScriptedSession, in_environment
from torl.base.errors import DataError, HangError, RewardError, ToolUnavailableError
from torl.base.options import Choice
from torl.base.seeds import derive_seed
from torl.base.types import FinishReason, Problem, Prompt, SampledTurn, StopReason, ToolRequest, Trajectory
from torl.components.environments import Message, bounded
from torl.components.rewards.reward import EnvironmentReward, EnvironmentRewardOptions
from torl.components.text.templates import PromptVariant, chat
from torl.rollout.grading import score_group
from torl.rollout.group_file import GroupFile
from torl.run.config import RolloutConfig
from torl.run.records.dynamics import training_dynamics
from torl.run.records.rows import TrajectoryRecord, decode_trajectory, encode_trajectory
from torl_lab.audit.tokens import token_mismatch
from torl_lab.view.detail import segments

ENVIRONMENT = {"name": "scripted_environment:Chosen"}
RESET_RETRIES = "torl.components.environments.bounded._RESET_RETRIES"
SAYS = {"harmony": "<|channel|>final<|message|>{}<|return|>"}


def says(model: ChatModel, text: str) -> str:
    """A message that calls nothing."""
    return SAYS.get(model.form.name, f"{{}}{model.form.end_tokens[0]}").format(text)


def play(
    model: ChatModel, turns: Sequence[str], environment: ScriptedEnvironment, bounds: Any = None, **settings: Any
) -> Trajectory:
    """One episode of these turns in the environment."""
    player = in_environment(model.player(turns, **settings), model, environment, **(bounds or {}))
    return asyncio.run(player.play(asked(token_ids=model.ids("Q\n")), batch_id=0, sample=0))


def said(*texts: str) -> ScriptedEnvironment:
    """It says one text to each message, then nothing."""
    return ScriptedEnvironment(lambda number: (texts[number : number + 1], False))


@pytest.mark.parametrize("family", FAMILIES)
def test_environment_replies_to_messages_without_calls_and_without_loss(family: str) -> None:
    model = ChatModel.of(family)
    environment = said("Wrong.", "Wrong again.")
    turns = [says(model, text) for text in ("1", "2", "3")]
    played = play(model, turns, environment)
    put_in = [
        model.encoder.encode_observation(model.form.render_reply(played.turns[0], user_messages=[text]))[0]
        for text in ("Wrong.", "Wrong again.")
    ]
    sampled = [model.ids(turn) for turn in turns]
    pieces = [sampled[0], put_in[0], sampled[1], put_in[1], sampled[2]]
    assert played.token_ids_T.tolist() == [token for piece in pieces for token in piece]
    mask = [number % 2 == 0 for number, piece in enumerate(pieces) for _ in piece]
    assert played.loss_mask_T.tolist() == mask
    assert [each.content for each in environment.shown] == ["1", "2", "3"]
    assert [each.text for each in played.user_messages] == ["Wrong.", "Wrong again."]
    assert [turn.stop_reason for turn in played.turns] == [StopReason.STOP] * 3
    assert (played.finish_reason, played.environment_rewards) == (FinishReason.STOP, {"score": 1.0})
    assert token_mismatch(played, model.rules(environment=ENVIRONMENT)) is None
    again = decode_trajectory(json.loads(json.dumps(encode_trajectory(TrajectoryRecord(0, played, grade_of(played))))))
    assert again.trajectory.user_messages == played.user_messages
    assert again.trajectory.environment_rewards == played.environment_rewards
    assert token_mismatch(again.trajectory, model.rules(environment=ENVIRONMENT)) is None


def grade_of(played: Trajectory) -> Any:
    graded = asyncio.run(score_group(EnvironmentReward(), group(played)))
    return graded.members[0].grade


@pytest.mark.parametrize("family", FAMILIES)
def test_environment_answers_its_tools_next_to_other_tools(family: str) -> None:
    model = ChatModel.of(family)
    environment = ScriptedEnvironment(lambda number: (("And now?",), False) if number == 0 else ((), False))
    if family in ("llama3", "harmony"):  # which make one call in a message
        calling, tools = message(family, "1", tool="look"), ["look"]
    else:
        look, python = message(family, "1", "2", tool="look"), message(family, "3")
        opening = {"hermes": "\n<tool_call>", "mistral": "[TOOL_CALLS]"}.get(family)
        calling, tools = both(family, look, python, opening), ["look", "look", "python"]
    played = play(model, [calling, says(model, "Done.")], environment)
    assert [call.request and call.request.tool for call in played.tool_calls] == tools
    assert [call.outcome.text for call in played.tool_calls] == ["1!\n", "2!\n", "3\n"][: len(tools)][-len(tools) :]
    assert [list(each.calls) for each in environment.shown] == [
        [ToolRequest("look", {"code": code}) for code in "12"[: tools.count("look")]],
        [],
    ]
    (user_message,) = played.user_messages
    (observation,) = {call.observation for call in played.tool_calls}
    assert user_message.observation == observation
    assert (user_message.start, user_message.stop) == (played.tool_calls[0].start, played.tool_calls[0].stop)
    assert token_mismatch(played, model.rules(environment=ENVIRONMENT)) is None


def both(family: str, first: str, second: str, opening: str | None) -> str:
    """The calls of two messages in one."""
    if opening is not None:
        end = {"hermes": "<|im_end|>", "mistral": "</s>"}[family]
        return first.removesuffix(end) + second[second.index(opening) :]
    begin = {"deepseek": "<\uff5ctool\u2581call\u2581begin\uff5c>", "kimi": "<|tool_call_begin|>"}[family]
    section = {"deepseek": "<\uff5ctool\u2581calls\u2581end\uff5c>", "kimi": "<|tool_calls_section_end|>"}[family]
    call = second[second.index(begin) : second.index(section)]
    return first.replace(section, call + section)


def test_turn_with_only_other_tools_skips_the_environment() -> None:
    model, environment = ChatModel.of("hermes"), said()
    play(model, [message("hermes", "1"), "Done.<|im_end|>"], environment)
    assert environment.shown == [Message("Done.", "Done.")]
    assert environment.unanswered == [None]


def test_the_environment_ends_an_episode_by_its_answer_or_by_saying_nothing() -> None:
    model = ChatModel.of("hermes")
    rules = model.rules(environment=ENVIRONMENT)
    turns = ["1<|im_end|>", "2<|im_end|>"]
    silent = play(model, turns, ScriptedEnvironment(lambda _: ((), True)))
    assert (silent.finish_reason, len(silent.turns), silent.user_messages) == (FinishReason.STOP, 1, ())
    speaking = play(model, turns, ScriptedEnvironment(lambda _: (("Right.",), True)))
    assert (speaking.finish_reason, len(speaking.turns)) == (FinishReason.ENVIRONMENT, 1)
    assert "Right." in speaking.text
    called = play(model, [message("hermes", "1", tool="look")], ScriptedEnvironment(lambda _: ((), True)))
    assert (called.finish_reason, len(called.tool_calls)) == (FinishReason.ENVIRONMENT, 1)
    for played in (silent, speaking, called):
        assert token_mismatch(played, rules) is None


def test_an_episode_has_at_most_so_many_turns() -> None:
    model = ChatModel.of("hermes")
    environment = ScriptedEnvironment(lambda number: ((f"No {number}.",), False))
    played = play(model, ["1<|im_end|>"] * 5, environment, {"max_turns": 3})
    assert (played.finish_reason, len(played.turns), len(played.user_messages)) == (FinishReason.MAX_TURNS, 3, 3)
    rules = model.rules(environment=ENVIRONMENT, max_turns=3)
    assert token_mismatch(played, rules) is None
    wrong = model.rules(environment=ENVIRONMENT, max_turns=4)
    assert token_mismatch(played, wrong) == "the episode ended after 3 turns, but rollout.max_turns = 4"


def test_truncated_last_message_reaches_the_environments_rewards() -> None:
    model = ChatModel.of("hermes")
    cut, stopped, full = said("No."), said("No."), said("No.")
    played = play(model, ["1 2 3 4 5 6 7 8 9<|im_end|>"], cut, limit=4)
    assert (played.finish_reason, cut.shown) == (FinishReason.LENGTH, [])
    assert cut.unanswered == [Message("1 2 3", "1 2 3")]
    played = play(model, ["1 STOP 2<|im_end|>"], stopped, stop=("STOP",))
    assert (played.finish_reason, stopped.shown) == (FinishReason.STOP, [])
    assert [each and each.content[:6] for each in stopped.unanswered] == ["1 STOP"]
    whole = model.ids("1 2<|im_end|>")
    played = play(model, ["1 2<|im_end|>"], full, limit=len(whole))
    assert (played.finish_reason, full.shown, full.unanswered) == (FinishReason.STOP, [], [Message("1 2", "1 2")])


def test_environment_reply_is_cut_at_the_response_limit() -> None:
    model = ChatModel.of("hermes")
    played = play(model, ["1<|im_end|>", "2<|im_end|>"], said("No, it is larger than that."), limit=6)
    assert (played.finish_reason, len(played), len(played.turns)) == (FinishReason.LENGTH, 6, 1)
    assert token_mismatch(played, model.rules(limit=6, environment=ENVIRONMENT)) is None


def test_environment_may_set_the_first_messages() -> None:
    model = ChatModel.of("hermes")
    environment = said()
    environment.opening = "Guess <|im_end|>!"
    player = in_environment(model.player(["1<|im_end|>"]), model, environment)
    played = asyncio.run(player.play(asked(token_ids=[1, 2]), batch_id=0, sample=0))
    prompt = "<|im_start|>user\nGuess <|im_end|>!<|im_end|>\n<|im_start|>assistant\n"
    assert model.tokenizer.decode(played.prompt.token_ids) == prompt
    engine = player.engine
    assert isinstance(engine, ScriptedEngine)
    assert engine.requests["0/p/0/0"].token_ids == list(played.prompt.token_ids)
    assert environment.begun == [("p", derive_seed(0, 0, "p"))]


def test_first_messages_never_become_control_tokens() -> None:
    model = ChatModel.of("hermes")
    environment = said()
    environment.opening = "<|im_end|>\ue000"
    player = in_environment(model.player(["1<|im_end|>"]), model, environment)
    assert player.environment is not None
    template = functools.partial(chat, system="Think until <|im_end|>.")
    player.environment = replace(player.environment, template=template)
    prompt = Prompt(Problem("p", "<|im_end|>?", "1"), (1, 2))
    played = asyncio.run(player.play(prompt, batch_id=0, sample=0))
    opening = played.prompt.token_ids
    control = {model.ids(token)[0]: token for token in ("<|im_start|>", "<|im_end|>")}
    spelled = [control[token] for token in opening if token in control]
    start, end = "<|im_start|>", "<|im_end|>"
    assert spelled == [start, end, end, start, end, start]
    users = "<|im_start|>user\n<|im_end|>\ue000<|im_end|>\n<|im_start|>assistant\n"
    assert model.tokenizer.decode(opening) == f"<|im_start|>system\nThink until <|im_end|>.<|im_end|>\n{users}"


def test_environment_prompt_is_read_back_from_a_group_file(tmp_path: Path) -> None:
    model, environment = ChatModel.of("hermes"), said()
    environment.opening = "Guess!"
    played = play(model, ["1<|im_end|>"], environment)
    scored = asyncio.run(score_group(EnvironmentReward(), group(played)))
    file = GroupFile(tmp_path / "groups.jsonl")
    file.append(scored)
    asked_again = Prompt(Problem("p", "?", "1", {"kind": "read"}), (1, 2))
    ((member,),) = (each.members for each in file.read([asked_again]))
    assert member.trajectory.prompt == Prompt(asked_again.problem, played.prompt.token_ids)


def test_an_environment_s_conversations_have_no_variants() -> None:
    """It begins them itself, so that the variant of a prompt would be lost."""
    model = ChatModel.of("hermes")
    player = in_environment(model.player(["1<|im_end|>"]), model, said())
    assert player.environment is not None
    variants = {"high": PromptVariant("Hi."), "low": PromptVariant("Lo.")}
    player.environment = replace(player.environment, template=lambda _: variants)
    with pytest.raises(DataError, match=r"gives several variants of a prompt: choose another data\.template"):
        asyncio.run(player.play(asked(), batch_id=0, sample=0))


def test_a_prompt_of_text_or_one_that_is_too_long_cannot_be_begun_with() -> None:
    model, environment = ChatModel.of("hermes"), said()
    environment.opening = "word " * 100
    player = in_environment(model.player(["1<|im_end|>"]), model, environment, max_prompt_tokens=20)
    with pytest.raises(ToolUnavailableError, match=r"begins problem p with \d+ tokens, and 20 are allowed"):
        asyncio.run(player.play(asked(), batch_id=0, sample=0))
    assert (environment.closed, environment.open) == (1, 0)
    assert player.environment is not None
    player.environment = replace(player.environment, template=lambda problem: problem.question)
    with pytest.raises(DataError, match=r"set data\.template"):
        asyncio.run(player.play(asked(), batch_id=0, sample=0))


def test_first_messages_refused_by_the_template_fail_the_episode() -> None:
    model, environment = ChatModel.of("hermes"), said()
    environment.opening = "Guess!"
    player = in_environment(model.player(["1<|im_end|>"]), model, environment)
    model.tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(
        ToolUnavailableError, match=r"cannot be a prompt: problem p: .*refuses it: roles must alternate"
    ):
        asyncio.run(player.play(asked(), batch_id=0, sample=0))
    assert (environment.closed, environment.open) == (1, 0)


@pytest.mark.parametrize("method", ["step", "rewards"])
def test_environment_exception_fails_the_episode(method: str) -> None:
    model, environment = ChatModel.of("hermes"), said("No.")
    environment.fail_in = method
    with pytest.raises(
        ToolUnavailableError,
        match=r"the environment \(.*:ScriptedSession\) failed in .*\nValueError: the environment's own mistake\nat ",
    ):
        play(model, ["1<|im_end|>"] * 2, environment)
    assert (environment.open, environment.closed) == (0, 1)


@pytest.mark.parametrize("method", ["step", "rewards"])
def test_cancellation_by_the_environment_fails_the_episode(method: str) -> None:
    model, environment = ChatModel.of("hermes"), said("No.")
    environment.fail_in, environment.failure = method, asyncio.CancelledError()
    with pytest.raises(ToolUnavailableError, match=r"the environment \(.*\) cancelled .* itself"):
        play(model, ["1<|im_end|>"] * 2, environment)
    assert (environment.open, environment.closed) == (0, 1)


@pytest.mark.parametrize(
    ("method", "given", "message"),
    [
        ("reset", (), "expected a list of at least one message, got tuple"),
        ("step", None, "expected Reply, got None"),
        ("rewards", None, "expected a mapping of names to numbers, got None"),
        ("rewards", {"right": None}, "reward 'right' is not a finite number: None"),
        ("rewards", {"right": 10**400}, "reward 'right' is not a finite number: int 1000"),
    ],
)
def test_invalid_reply_fails_the_episode(
    method: str, given: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ChatModel.of("hermes")

    async def mistaken(self: Any, _: Any) -> Any:
        return given

    session_class: Any = type("MistakenSession", (ScriptedSession,), {method: mistaken})

    class Mistaken(ScriptedEnvironment):
        """Returns an invalid value."""

        def session(self, problem: Problem, seed: int) -> Any:
            super().session(problem, seed)
            return session_class(self)

    environment = Mistaken()
    monkeypatch.setattr(RESET_RETRIES, 0)
    with pytest.raises(ToolUnavailableError, match=message):
        play(model, ["1<|im_end|>"] * 2, environment)
    assert (environment.open, environment.closed) == (0, 1)


def test_only_the_beginning_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    model, environment = ChatModel.of("hermes"), said()
    environment.fail_in, environment.failures = "reset", 2
    player = in_environment(model.player(["1<|im_end|>"]), model, environment)
    asyncio.run(player.play(asked(token_ids=model.ids("Q")), batch_id=0, sample=0))
    assert player.environment is not None
    counts = player.environment.bounded.metrics()
    assert counts == {"episodes": 1, "retried": 2, "failed": 0, "cut": 0, "unclosed": 0}
    assert (len(environment.begun), environment.open) == (3, 0)
    environment.failures = 2
    monkeypatch.setattr(RESET_RETRIES, 1)
    with pytest.raises(
        ToolUnavailableError,
        match=r"the episode did not start in 2 attempts; the last error: the environment \(.*\) failed in reset",
    ):
        asyncio.run(player.play(asked(), batch_id=0, sample=1))


@pytest.mark.parametrize("text", ["\ud800", "a\udfffb"])
def test_an_environment_that_says_half_of_a_surrogate_pair_plays_on(text: str) -> None:
    model, environment = ChatModel.of("hermes"), said(text)
    environment.opening = text
    played = play(model, ["1<|im_end|>", "2<|im_end|>"], environment)
    rendered = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert [message.text for message in played.user_messages] == [rendered]
    assert rendered in played.user_messages[0].observation
    assert rendered in model.vocabulary.decode(list(played.prompt.token_ids))


def test_an_end_that_fails_is_counted_and_passed_over() -> None:
    model, environment = ChatModel.of("hermes"), said()
    environment.fail_in = "close"
    player = in_environment(model.player(["1<|im_end|>"]), model, environment)
    assert asyncio.run(player.play(asked(token_ids=[1]), batch_id=0, sample=0)).environment_rewards == {"score": 1.0}
    assert player.environment is not None
    assert player.environment.bounded.metrics()["unclosed"] == 1


class Slow(ScriptedEnvironment):
    """Never answers."""

    def raise_in(self, method: str) -> None:
        """Nothing fails."""

    def session(self, problem: Any, seed: int) -> Any:
        made = super().session(problem, seed)

        async def never(message: Message) -> Any:
            await asyncio.Event().wait()

        made.step = never  # type: ignore[method-assign]
        return made


def test_missing_reply_fails_the_episode_at_the_timeout() -> None:
    model, environment = ChatModel.of("hermes"), Slow()
    with pytest.raises(
        ToolUnavailableError, match=r"did not answer within 0\.01 s \(rollout\.environment\.timeout_seconds\)"
    ):
        play(model, ["1<|im_end|>"], environment, {"timeout_seconds": 0.01})
    assert environment.open == 0


async def test_no_more_sessions_are_open_at_once_than_allowed() -> None:
    model, environment = ChatModel.of("hermes"), said("No.", "No.")
    player = in_environment(model.player(["1<|im_end|>"] * 3), model, environment, max_concurrent=2)
    prompt = asked(token_ids=model.ids("Q"))
    await asyncio.gather(*(player.play(prompt, batch_id=0, sample=sample) for sample in range(7)))
    assert (environment.most_open, environment.closed) == (2, 7)


class SlowEngine(ScriptedEngine):
    """Takes half a second for a turn."""

    async def sample(self, *arguments: Any) -> SampledTurn:
        await asyncio.sleep(0.5)
        return await super().sample(*arguments)


async def test_an_episode_that_waits_for_another_is_no_hang() -> None:
    """It waits for the whole of another episode, in which a turn may take longer than any call may."""
    model = ChatModel.of("hermes")
    engine = SlowEngine(lambda _: model.ids("1<|im_end|>"), stop_token_ids=model.end_token_ids)
    player = in_environment(replace(model.player([]), engine=engine), model, said(), max_concurrent=1)
    watch = asyncio.create_task(player.open_calls.watch(0.3, "here"))
    prompt = asked(token_ids=model.ids("Q"))
    await asyncio.gather(*(player.play(prompt, batch_id=0, sample=sample) for sample in range(3)))
    assert not watch.done()
    watch.cancel()


@pytest.mark.parametrize(
    ("method", "component"),
    [
        ("reset", "the environment"),
        ("step", "the environment"),
        ("rewards", "the environment's rewards"),
    ],
)
async def test_an_environment_that_never_answers_is_a_hang(method: str, component: str) -> None:
    async def never(self: ScriptedSession, *_: Any) -> Any:
        await asyncio.Event().wait()

    class Hanging(ScriptedEnvironment):
        def session(self, problem: Problem, seed: int) -> Any:
            super().session(problem, seed)
            return type("Session", (ScriptedSession,), {method: never})(self)

    model = ChatModel.of("hermes")
    player = in_environment(model.player(["1<|im_end|>"]), model, Hanging())
    episode = asyncio.create_task(player.play(asked(token_ids=model.ids("Q")), batch_id=0, sample=0))
    with pytest.raises(HangError, match=rf"^{component} did not respond within 0\.3 s"):
        await asyncio.wait_for(player.open_calls.watch(0.3, "here"), 60)
    episode.cancel()
    await asyncio.gather(episode, return_exceptions=True)


def test_rewards_are_weighted_parts_and_nan_fails_the_episode() -> None:
    model, environment = ChatModel.of("hermes"), said()
    environment.rewarded = {"right": 1.0, "speed": 0.5}
    played = play(model, ["1<|im_end|>"], environment)
    reward = EnvironmentReward(EnvironmentRewardOptions(weights={"speed": 2.0}, correct_threshold=2.0))
    scored = asyncio.run(score_group(reward, group(played)))
    grade = scored.members[0].grade
    assert (grade.reward, grade.correct, grade.parts) == (2.0, True, {"right": 1.0, "speed": 1.0})
    metrics = training_dynamics([scored])
    assert metrics["reward/part/speed"] == 1.0
    assert (metrics["environment/messages"], metrics["environment/ended"], metrics["environment/turn_limit"]) == (
        0,
        0,
        0,
    )
    with pytest.raises(
        RewardError, match=r"reward\.weights has 'sped', and the environment gave right, speed; .* in `parts`"
    ):
        asyncio.run(score_group(EnvironmentReward(EnvironmentRewardOptions(weights={"sped": 1.0})), group(played)))
    with pytest.raises(RewardError, match=r"choose rollout\.environment"):
        asyncio.run(score_group(reward, group(replace(played, environment_rewards={}))))
    environment.rewarded = {"right": float("nan")}
    with pytest.raises(ToolUnavailableError, match="the reward 'right' is not a finite number"):
        play(model, ["1<|im_end|>"], environment)


def test_missing_declared_reward_part_is_zero() -> None:
    model, environment = ChatModel.of("hermes"), said()
    environment.named_parts = ("right", "speed")
    given: list[Mapping[str, float]] = [{"right": 1.0, "speed": 0.5}, {"right": 1.0}, {}]
    played = []
    for environment.rewarded in given:
        played.append(play(model, ["1<|im_end|>"], environment))
    reward = EnvironmentReward(EnvironmentRewardOptions(weights={"speed": 2.0}))
    scored = asyncio.run(score_group(reward, group(*played)))
    assert [member.grade.parts for member in scored.members] == [
        {"right": 1.0, "speed": 1.0},
        {"right": 1.0, "speed": 0.0},
        {"right": 0.0, "speed": 0.0},
    ]
    assert training_dynamics([scored])["reward/part/speed"] == pytest.approx(1 / 3)
    environment.rewarded = {"style": 1.0}
    with pytest.raises(ToolUnavailableError, match="gave a reward 'style', and its parts are right, speed"):
        play(model, ["1<|im_end|>"], environment)


def test_a_message_that_is_too_long_is_cut_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "MAX_RESULT_CHARACTERS", 10)
    model, environment = ChatModel.of("hermes"), said("x" * 50)
    player = in_environment(model.player(["1<|im_end|>"] * 2), model, environment)
    played = asyncio.run(player.play(asked(token_ids=[1]), batch_id=0, sample=0))
    assert [each.text for each in played.user_messages] == ["x" * 10 + "..."]
    assert player.environment is not None
    assert player.environment.bounded.metrics()["cut"] == 1


def test_malformed_call_is_answered_by_its_error() -> None:
    model, environment = ChatModel.of("hermes"), said()
    turns = ["<tool_call>\nno\n</tool_call><|im_end|>", message("hermes", "1", tool="loook"), "Done.<|im_end|>"]
    played = play(model, turns, environment)
    assert [call.outcome.error for call in played.tool_calls] == ["InvalidJSON", "UnknownTool"]
    assert "there is no tool 'loook', only python, look" in played.tool_calls[1].outcome.text
    assert [each.content for each in environment.shown] == ["Done."]


def test_report_shows_environment_replies_as_observations() -> None:
    model = ChatModel.of("hermes")
    played = play(model, [message("hermes", "1"), "2<|im_end|>", "3<|im_end|>"], said("No."))
    row = encode_trajectory(TrajectoryRecord(0, played, grade_of(played)))
    assert [each["kind"] for each in segments(row)] == ["turn", "observation", "turn", "observation", "turn"]


def test_an_environment_needs_the_format_of_a_chat_model() -> None:
    with pytest.raises(ValueError, match=r"choose rollout\.format among hermes, llama3"):
        RolloutConfig.model_validate({"environment": ENVIRONMENT})
    chosen = RolloutConfig.model_validate({"environment": {**ENVIRONMENT, "timeout_seconds": 7}, "format": "hermes"})
    assert isinstance(chosen.environment, Choice)
    assert chosen.environment.dump()["timeout_seconds"] == 7


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda played: replace(played.user_messages[0], text="Right."), "does not match its outcome"),
        (
            lambda played: replace(played.user_messages[0], start=0),
            "no turn requests|wrong position|different observations|the turns are|lacks its end token",
        ),
        (lambda played: replace(played.user_messages[0], observation="No."), "does not match its outcome"),
    ],
)
def test_planted_fault_in_reply_is_found(change: Any, problem: str) -> None:
    import re

    model = ChatModel.of("hermes")
    played = play(model, ["1<|im_end|>", "2<|im_end|>"], said("No."))
    planted = replace(played, user_messages=(change(played),))
    found = token_mismatch(planted, model.rules(environment=ENVIRONMENT))
    assert found is not None
    assert re.search(problem, found)


def test_an_environment_that_speaks_in_a_run_without_one_is_found() -> None:
    model = ChatModel.of("hermes")
    played = play(model, ["1<|im_end|>", "2<|im_end|>"], said("No."))
    assert token_mismatch(played, model.rules()) == "the environment sent a message, but the run has no environment"
    ended = play(model, [message("hermes", "1", tool="look")], ScriptedEnvironment(lambda _: ((), True)))
    assert token_mismatch(ended, model.rules()) == "the environment ended the episode, but the run has no environment"
    unanswered = replace(play(model, ["1<|im_end|>"], said()), finish_reason=FinishReason.ENVIRONMENT)
    assert "the last turn has no reply" in str(token_mismatch(unanswered, model.rules(environment=ENVIRONMENT)))


def test_a_call_of_python_still_starts_when_it_closes() -> None:
    model, environment, interpreter = ChatModel.of("hermes"), said("No."), ScriptedInterpreter()
    player = in_environment(
        model.player([message("hermes", "1"), "2<|im_end|>", "3<|im_end|>"], interpreter=interpreter),
        model,
        environment,
    )
    played = asyncio.run(player.play(asked(token_ids=model.ids("Q")), batch_id=0, sample=0))
    assert (player.counters.calls.speculated, player.counters.calls.wasted) == (1, 0)
    assert (interpreter.codes, len(played.user_messages)) == (["1"], 1)
