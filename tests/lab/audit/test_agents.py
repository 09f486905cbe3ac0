"""Mistakes that the audit of an agent program's trajectory finds, one at a time."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from agent_programs import TOOLS, agent_player, ask, begun, result, user
from chat_models import ChatModel, message
from torl.base.types import FinishReason, Grade, StopReason, ToolRequest, Trajectory
from torl.run.records.rows import TrajectoryRecord, decode_trajectory, encode_trajectory
from torl_lab.audit.tokens import agent_mismatch

MODEL = ChatModel.of("hermes")
TURNS = [message("hermes", "print(1)"), "It is 1.<|im_end|>", "I said so"]


async def _played() -> Trajectory:
    """A call and its result, a word of the user, and a message that is cut."""
    player = agent_player(MODEL, lambda name: MODEL.ids(TURNS[int(name.rpartition("/")[2])]))
    episode = begun(player)
    messages = [user("?")]
    first = await ask(episode, messages, tools=TOOLS)
    messages += [dict(first.message), result(first.message["tool_calls"][0], "1")]
    second = await ask(episode, messages, tools=TOOLS)
    messages += [dict(second.message), user("Sure?")]
    await ask(episode, messages, tools=TOOLS, max_tokens=3)
    episode.close()
    played = episode.trajectory("1")
    assert played is not None
    return played


PLAYED = asyncio.run(_played())


def with_token(played: Trajectory, place: int, token: int) -> Trajectory:
    ids = played.token_ids_T.copy()
    ids[place] = token
    return replace(played, token_ids_T=ids, text=MODEL.vocabulary.decode(ids.tolist()))


def other_result(played: Trajectory) -> Trajectory:
    (call,) = played.tool_calls
    return replace(played, tool_calls=(replace(call, outcome=replace(call.outcome, text="2")),))


def other_call(played: Trajectory) -> Trajectory:
    (call,) = played.tool_calls
    return replace(played, tool_calls=(replace(call, request=ToolRequest("python", {"code": "print(2)"})),))


def other_word(played: Trajectory) -> Trajectory:
    (message,) = played.user_messages
    return replace(played, user_messages=(replace(message, text="Sure!"),))


def learned_observation(played: Trajectory) -> Trajectory:
    mask = np.ones_like(played.loss_mask_T)
    return replace(played, loss_mask_T=mask)


def other_end(number: int, stop_reason: StopReason) -> Callable[[Trajectory], Trajectory]:
    def change(played: Trajectory) -> Trajectory:
        turns = list(played.turns)
        turns[number] = replace(turns[number], stop_reason=stop_reason)
        return replace(played, turns=tuple(turns))

    return change


def other_text(played: Trajectory) -> Trajectory:
    first, *others = played.turns
    return replace(played, turns=(replace(first, text="Hm."), *others))


def test_played_and_read_records_have_no_mismatch() -> None:
    record = TrajectoryRecord(0, PLAYED, Grade(1.0, True, "1"))
    read = decode_trajectory(encode_trajectory(record)).trajectory
    assert [agent_mismatch(each, MODEL.rules()) for each in (PLAYED, read)] == [None, None]
    assert read.user_messages == PLAYED.user_messages
    assert read.user_messages_after(read.turns[1]) == ("Sure?",)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (other_result, "does not match the program's messages"),
        (other_word, "does not match the program's messages"),
        (other_call, "does not contain a call that has a result"),
        (lambda played: replace(played, user_messages=()), "there is no result and no message"),
        (lambda played: replace(played, tool_calls=()), "there is no result and no message"),
        (lambda played: with_token(played, PLAYED.turns[0].stop + 2, 5), "does not match the program's messages"),
        (lambda played: with_token(played, 1, 5), "the text or the blocks of turn 0 do not match its tokens"),
        (lambda played: with_token(played, 1, min(MODEL.end_token_ids)), "turn 0 continues after an end token"),
        (learned_observation, "the loss mask is True"),
        (other_text, "the text or the blocks of turn 0 do not match its tokens"),
        (other_end(0, StopReason.LENGTH), "turn 0 was not truncated"),
        (other_end(1, StopReason.CALL), "turn 1 requests no call"),
        (lambda played: replace(played, finish_reason=FinishReason.STOP), "the last turn ended otherwise"),
        (lambda played: replace(played, turns=played.turns[:2]), "there are tokens after the last turn"),
        (lambda played: replace(played, text="Hm."), "the text does not match the token ids"),
        (lambda played: replace(played, format="kimi"), "the format is 'kimi'"),
    ],
)
def test_a_mistake_is_found(change: Callable[[Trajectory], Trajectory], words: str) -> None:
    assert words in (agent_mismatch(change(PLAYED), MODEL.rules()) or "")
