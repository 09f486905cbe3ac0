"""The audit of tokens on an episode with one call: all of it agrees, and each thing that is changed is named."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from builders import asked, player
from scripted_engine import ENCODER, STOP, VOCABULARY, ScriptedEngine, ScriptedInterpreter
from torl.base.types import FinishReason, StopReason, ToolCall, ToolRequest, Trajectory
from torl.recipes.torl import ToRLFormat
from torl.run.config import RolloutConfig
from torl_lab.audit.replay import ReplayContext
from torl_lab.audit.tokens import token_mismatch

TURNS = ["```python\nprint(7)\n```\n```output", "\\boxed{7}"]
RULES = ReplayContext(
    ToRLFormat(),
    VOCABULARY,
    ENCODER,
    frozenset({STOP}),
    frozenset({"python"}),
    RolloutConfig.model_validate({"max_response_tokens": 200}),
)


@pytest.fixture(scope="module")
def played() -> Trajectory:
    """A call, what it printed, and an answer."""
    engine = ScriptedEngine(lambda request: [*ENCODER.encode(TURNS[int(request[-1])]), STOP])
    playing = player(engine, ScriptedInterpreter(lambda _: "7\n"))
    prompt = asked(token_ids=ENCODER.encode("What is 7?\n"))
    return asyncio.run(playing.play(prompt, batch_id=0, sample=0))


def with_call(played: Trajectory, change: Callable[[ToolCall], ToolCall]) -> Trajectory:
    return replace(played, tool_calls=(change(played.tool_calls[0]),))


def other_code(played: Trajectory) -> Trajectory:
    return with_call(played, lambda call: replace(call, request=ToolRequest("python", {"code": "print(8)\n"})))


def other_tool(played: Trajectory) -> Trajectory:
    return with_call(played, lambda call: replace(call, request=replace(call.request, tool="search")))


def other_observation(played: Trajectory) -> Trajectory:
    return with_call(played, lambda call: replace(call, observation="\n8\n```\n"))


def other_observed_token(played: Trajectory) -> Trajectory:
    """The model saw something else than the tool said."""
    token_ids_T = played.token_ids_T.copy()
    token_ids_T[played.tool_calls[0].start] += 1
    return replace(played, token_ids_T=token_ids_T)


def learned_observation(played: Trajectory) -> Trajectory:
    return replace(played, loss_mask_T=np.ones_like(played.loss_mask_T))


def sampled_logprob(logprob: float) -> Callable[[Trajectory], Trajectory]:
    """Give a sampled token this log-probability."""

    def change(played: Trajectory) -> Trajectory:
        logprobs_T = played.rollout_logprobs_T.copy()
        logprobs_T[0] = logprob
        return replace(played, rollout_logprobs_T=logprobs_T)

    return change


def observed_logprob(played: Trajectory) -> Trajectory:
    logprobs_T = played.rollout_logprobs_T.copy()
    logprobs_T[played.tool_calls[0].start] = -1
    return replace(played, rollout_logprobs_T=logprobs_T)


def observed_version(played: Trajectory) -> Trajectory:
    versions_T = played.policy_versions_T.copy()
    versions_T[played.tool_calls[0].start] = 0
    return replace(played, policy_versions_T=versions_T)


def without_block(played: Trajectory) -> Trajectory:
    first, last = played.turns
    return replace(played, turns=(replace(first, blocks=()), last))


def other_ending(played: Trajectory) -> Trajectory:
    first, last = played.turns
    return replace(played, turns=(replace(first, stop_reason=StopReason.STOP), last))


def other_turn_text(played: Trajectory) -> Trajectory:
    first, last = played.turns
    return replace(played, turns=(first, replace(last, text="\\boxed{8}")))


def other_text(played: Trajectory) -> Trajectory:
    return replace(played, text=played.text + " ")


def other_format(played: Trajectory) -> Trajectory:
    return replace(played, format="zerotir")


def cut(played: Trajectory) -> Trajectory:
    return replace(played, finish_reason=FinishReason.LENGTH)


def void(played: Trajectory) -> Trajectory:
    return replace(played, finish_reason=FinishReason.VOID)


def test_an_episode_agrees_with_its_tokens(played: Trajectory) -> None:
    assert len(played.tool_calls) == 1
    assert played.finish_reason is FinishReason.STOP
    assert token_mismatch(played, RULES) is None


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (other_code, "the request of call 0 differs from the text of its turn"),
        (other_tool, "the request of call 0 differs from the text of its turn"),
        (other_observation, "the observation of call 0 does not match its outcome"),
        (other_observed_token, "the observation of call 0 has the wrong position or tokens"),
        (learned_observation, "the loss mask is True at token"),
        (observed_logprob, "an observation token has a logprob or a policy version"),
        (observed_version, "an observation token has a logprob or a policy version"),
        (sampled_logprob(0.1), "a log-probability is above 0"),
        (sampled_logprob(1e-4), "a log-probability is above 0"),
        (sampled_logprob(np.inf), "a log-probability is above 0"),
        (sampled_logprob(-np.inf), "a log-probability is above 0 or not finite"),
        (sampled_logprob(np.nan), "a log-probability is above 0 or not finite"),
        (without_block, "turn 0 has the blocks [], expected [Block("),
        (other_ending, "turn 0 ended by stop, expected call"),
        (other_turn_text, "the text of turn 1 does not match its tokens"),
        (other_text, "the text does not match the token ids"),
        (other_format, "the format is 'zerotir', expected 'torl'"),
        (cut, "the finish reason is length, but the last token does not match it"),
        (void, "the finish reason is void, but the last turn is not a void turn"),
    ],
)
def test_mismatch_is_named(change: Callable[[Trajectory], Trajectory], problem: str, played: Trajectory) -> None:
    assert (token_mismatch(change(played), RULES) or "nothing").startswith(problem)


def test_a_call_beyond_the_last_is_named(played: Trajectory) -> None:
    strict = replace(RULES, rollout=RULES.rollout.model_copy(update={"max_tool_calls": 0}))
    assert token_mismatch(played, strict) == "call 0 exceeds rollout.max_tool_calls"


def test_a_token_that_ends_no_response_is_named(played: Trajectory) -> None:
    others = replace(RULES, stop_token_ids=frozenset({STOP + 1}))
    assert token_mismatch(played, others) == "the finish reason is stop, but the last token does not match it"


def stopping(stop: str) -> ReplayContext:
    return replace(RULES, rollout=RULES.rollout.model_copy(update={"stop": (stop,)}))


def test_a_stop_string_must_end_its_response(played: Trajectory) -> None:
    """The outcome of an episode that was played without a tool."""
    assert token_mismatch(played, stopping("User:")) is None
    assert token_mismatch(played, stopping("{7")) == "tokens were sampled after the end of a turn"
    assert token_mismatch(played, stopping("print(7)")) == "no turn requests call 0"


def test_a_response_that_ended_at_a_stop_string_agrees_with_its_tokens() -> None:
    engine = ScriptedEngine(lambda _: [*ENCODER.encode("\\boxed{7}</answer>\nUser: and 8?"), STOP])
    playing = player(engine, ScriptedInterpreter(), stop=("</answer>",))
    stopped = asyncio.run(playing.play(asked(token_ids=ENCODER.encode("7?\n")), batch_id=0, sample=0))
    assert token_mismatch(stopped, stopping("</answer>")) is None
    assert (
        token_mismatch(cut(stopped), stopping("</answer>"))
        == "the finish reason is length, but the last token does not match it"
    )
    assert token_mismatch(stopped, RULES) == "the finish reason is stop, but the last token does not match it"
