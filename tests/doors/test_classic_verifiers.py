"""The environment "verifiers" beside the library's own rollouts: the same messages, the same rewards."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
import verifiers as vf
from verifiers.clients import Client
from verifiers.types import Response, ResponseMessage

from builders import asked
from chat_models import ChatModel
from scripted_environment import in_environment
from torl.audit.tokens import token_problem
from torl.environments.verifiers import VerifiersEnvironment, verifiers_problems
from torl.errors import ConfigError, ToolUnavailableError
from torl.types import FinishReason, Problem, Prompt, Trajectory

NAME = "verifiers_games"


def said(text: str) -> dict[str, Any]:
    return {"content": text, "calls": []}


def asks(*numbers: int) -> dict[str, Any]:
    return {"content": "Hm.", "calls": [("larger", {"number": number}) for number in numbers]}


def written(message: dict[str, Any]) -> str:
    """The message as Qwen writes it."""
    calls = [json.dumps({"name": name, "arguments": arguments}) for name, arguments in message["calls"]]
    return message["content"] + "".join(f"\n<tool_call>\n{call}\n</tool_call>" for call in calls) + "<|im_end|>"


class Scripted(Client):
    """A client of the library's own that gives these messages."""

    def __init__(self, messages: Sequence[dict[str, Any]]) -> None:
        super().__init__(None)
        self.messages, self.prompts = list(messages), []

    async def get_response(self, prompt: Any, *_: Any, **__: Any) -> Response:
        self.prompts.append(prompt)
        message = self.messages.pop(0)
        calls = [
            vf.ToolCall(id=f"call_{number}", name=name, arguments=json.dumps(arguments))
            for number, (name, arguments) in enumerate(message["calls"])
        ]
        told = ResponseMessage(
            content=message["content"], tool_calls=calls or None, finish_reason="stop", is_truncated=False
        )
        return Response(id="", created=0, model="", message=told)


Scripted.__abstractmethods__ = frozenset()


def played_by_the_library(kind: str, messages: Sequence[dict[str, Any]], place: int = 0, **arguments: Any) -> Any:
    environment = vf.load_environment(NAME, kind=kind, **arguments)
    row = environment.get_dataset()[place]
    return asyncio.run(environment.run_rollout(dict(row), Scripted(messages), "", {}))


def play(
    kind: str, turns: Sequence[str], limit: int = 4000, bounds: Any = None, place: int = 0, **arguments: Any
) -> Trajectory:
    model = ChatModel.of("hermes")
    given = {"kind": kind, **arguments}
    environment = VerifiersEnvironment(NAME, given)
    player = in_environment(model.player(turns, limit=limit), model, environment, **(bounds or {}))
    problem = [*verifiers_problems(NAME, given)][place]
    played = asyncio.run(player.play(Prompt(problem, asked().token_ids), series=0, sample=0))
    rules = model.rules(limit=limit, environment={"verifiers": NAME, "arguments": given, **(bounds or {})})
    assert token_problem(played, rules) is None
    return played


def said_in(completion: Sequence[Any], role: str) -> list[str]:
    return [message["content"] for message in completion if message["role"] == role]


def weighed(output: Any) -> dict[str, float]:
    return {"right": output["right"], "brief": 0.5 * output["brief"]}


@pytest.mark.parametrize("messages", [["3", "5", "7"], ["3", "4", "6", "7"], ["5"]], ids=["right", "limit", "at once"])
def test_a_dialogue_has_the_messages_and_rewards_of_the_librarys_own_rollout(messages: list[str]) -> None:
    output = played_by_the_library("multi", [said(text) for text in messages])
    played = play("multi", [written(said(text)) for text in messages])
    assert [each.text for each in played.user_messages] == said_in(output["completion"], "user")
    assert [turn.text for turn in played.turns] == said_in(output["completion"], "assistant")
    assert played.environment_rewards == pytest.approx(weighed(output))
    assert sum(played.environment_rewards.values()) == pytest.approx(output["reward"])
    over = FinishReason.ENVIRONMENT if "5" in messages else FinishReason.STOP
    assert played.finish_reason is over
    prompt = ChatModel.of("hermes").tokenizer.decode(played.prompt.token_ids)
    assert (
        prompt
        == "".join(f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in output["prompt"])
        + "<|im_start|>assistant\n"
    )


@pytest.mark.parametrize(
    "messages", [[asks(3), asks(7, -1), said("5")], [asks(3)] * 4], ids=["errors and several", "limit"]
)
def test_tools_have_the_results_and_rewards_of_the_librarys_own_rollout(messages: list[dict[str, Any]]) -> None:
    output = played_by_the_library("tools", messages)
    played = play("tools", [written(message) for message in messages])
    results = said_in(output["completion"], "tool")
    assert [call.outcome.text for call in played.tool_calls][: len(results)] == results
    assert {call.outcome.error for call in played.tool_calls[len(results) :]} <= {"EpisodeOver"}
    assert played.environment_rewards == pytest.approx(weighed(output))
    (schema,) = VerifiersEnvironment(NAME, {"kind": "tools"}).tools.values()
    assert schema.description.startswith("Whether the number to be guessed is larger.")
    assert list(schema.parameters["properties"]) == ["number"]  # type: ignore[call-overload]


def test_a_single_turn_is_scored_as_the_library_scores_it() -> None:
    output = played_by_the_library("single", [said("5")])
    played = play("single", ["5<|im_end|>"])
    assert (played.finish_reason, len(played.turns)) == (FinishReason.STOP, 1)
    assert played.environment_rewards == pytest.approx(weighed(output))


@pytest.mark.parametrize(("place", "messages"), [(0, ["3", "5"]), (2, ["5"])], ids=["many", "once"])
def test_a_group_of_environments_has_the_messages_and_the_one_reward_of_the_librarys_own_rollout(
    place: int, messages: list[str]
) -> None:
    output = played_by_the_library("group", [said(text) for text in messages], place)
    played = play("group", [written(said(text)) for text in messages], place=place)
    assert [turn.text for turn in played.turns] == said_in(output["completion"], "assistant") == messages
    assert played.environment_rewards == pytest.approx({"reward": output["reward"]})
    assert output["reward"] > 0


@pytest.mark.parametrize("answer", ["5", "3"])
def test_the_parts_are_the_same_in_every_episode_and_their_sum_is_the_librarys_reward(answer: str) -> None:
    """So that a weight of one of them is never of a part that is missing."""
    messages = [answer, "4", "4", "4"][: 1 if answer == "5" else 4]
    scripted, turns = [said(text) for text in messages], [written(said(text)) for text in messages]
    twice = play("twice", turns).environment_rewards
    assert twice == {"reward": played_by_the_library("twice", scripted)["reward"]}
    output = played_by_the_library("halved", scripted)
    halved = play("halved", turns).environment_rewards
    assert halved == pytest.approx({**weighed(output), "rest": -output["reward"]})
    assert sum(halved.values()) == pytest.approx(output["reward"])


def test_an_episode_that_ends_at_our_limits_is_scored_with_what_was_written() -> None:
    played = play("multi", ["3<|im_end|>", "5 and so on and so on and so on"], limit=60)
    assert played.finish_reason in (FinishReason.LENGTH, FinishReason.STOP)
    assert played.environment_rewards == {"right": 0.0, "brief": pytest.approx(0.5 / 4)}
    played = play("multi", ["3<|im_end|>", "5<|im_end|>"], bounds={"max_turns": 1})
    assert played.finish_reason is FinishReason.TURNS
    assert played.environment_rewards["right"] == 0.0


def test_what_breaks_in_it_spoils_the_episode_and_nothing_is_left_of_its_loop() -> None:
    with pytest.raises(ToolUnavailableError, match="the table broke"):
        play("multi", ["break<|im_end|>"])

    async def left() -> int:
        environment = VerifiersEnvironment(NAME)
        problem = next(iter(verifiers_problems(NAME)))
        before = len(asyncio.all_tasks())
        session = environment.session(problem, 0)
        await session.begin([])
        await session.close()
        return len(asyncio.all_tasks()) - before

    assert asyncio.run(left()) == 0


def test_its_data_set_is_a_source_of_problems() -> None:
    first, second = verifiers_problems(NAME)
    assert (first.id, first.question, first.answer) == ("0", "Guess, Ann.", "5")
    assert (second.id, second.question) == ("1", "Guess, Ben.")
    with pytest.raises(ConfigError, match="problem p is not of the environment's data set"):
        VerifiersEnvironment(NAME).session(Problem("p", "", ""), 0)
    with pytest.raises(ConfigError, match="verifiers cannot load the environment 'nowhere'"):
        VerifiersEnvironment("nowhere")
