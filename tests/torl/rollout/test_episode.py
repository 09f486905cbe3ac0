"""Real rollouts: the engine's own record against ours, transformers' logprobs against the engine's."""

from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from builders import play_trajectories, player
from engine_records import EngineRecord, check_against_engine, recorded
from torl.base.types import FinishReason, StopReason, Trajectory
from torl.components.formats import Format
from torl.recipes.torl import ToRLFormat
from torl.recipes.zerotir import ZeroTIRFormat, ZeroTIROptions

MAX_RESPONSE_TOKENS = 220
FORMATS = (("torl", 0), ("torl", 1), ("torl", 3), ("zerotir", 1), ("zerotir", 2))


@dataclass
class Rollout:
    record: EngineRecord
    trajectories: list[Trajectory]


@pytest_asyncio.fixture(scope="session", params=FORMATS, ids=[f"{name}-{calls}" for name, calls in FORMATS])
async def rollout(request, engine, vocabulary, encoder, prompts, subprocess_interpreter) -> Rollout:
    name, calls = request.param
    form: Format = ToRLFormat() if name == "torl" else ZeroTIRFormat(ZeroTIROptions(error_style="last_line"))
    playing = player(
        engine,
        subprocess_interpreter,
        form=form,
        limit=MAX_RESPONSE_TOKENS,
        vocabulary=vocabulary,
        encoder=encoder,
        max_tool_calls=calls,
        seed=7,
    )
    with recorded(engine) as record:
        trajectories = await play_trajectories(playing, prompts[:8], f"{name}-{calls}", samples=4)
    return Rollout(record, trajectories)


def test_mask_is_one_exactly_on_sampled_tokens(rollout: Rollout, request: pytest.FixtureRequest) -> None:
    _, calls = request.node.callspec.params["rollout"]
    assert len(rollout.trajectories) == 32
    for trajectory in rollout.trajectories:
        check_against_engine(trajectory, rollout.record)
        assert len(trajectory.tool_calls) <= calls
    made = [len(trajectory.tool_calls) for trajectory in rollout.trajectories]
    assert max(made) == calls


def test_a_wrong_mask_is_found(rollout: Rollout) -> None:
    """The check above can fail: one observed token counted as sampled, or one sampled token left out."""
    trajectory = max(rollout.trajectories, key=lambda trajectory: len(trajectory.tool_calls))
    for index in [0, *(call.start for call in trajectory.tool_calls)]:
        mask = trajectory.loss_mask_T.copy()
        mask[index] = not mask[index]
        with pytest.raises(AssertionError):
            check_against_engine(replace(trajectory, loss_mask_T=mask), rollout.record)


def test_logprobs_equal_those_of_transformers(rollout: Rollout, tiny_model_directory: Path) -> None:
    import torch
    from transformers import Qwen2ForCausalLM

    # In double precision, so that the rounding that is left is the engine's own.
    model = Qwen2ForCausalLM.from_pretrained(tiny_model_directory, dtype=torch.float64)
    worst, tokens = 0.0, 0
    for trajectory in rollout.trajectories:
        prompt = list(trajectory.prompt.token_ids)
        ids = torch.tensor([prompt + trajectory.token_ids_T.tolist()])
        with torch.no_grad():
            logits = model(ids).logits[0, len(prompt) - 1 : -1]
        logprobs = logits.log_softmax(-1).gather(1, ids[0, len(prompt) :, None])[:, 0].numpy()
        gap = np.abs(logprobs - trajectory.rollout_logprobs_T)[trajectory.loss_mask_T]
        worst, tokens = max(worst, float(gap.max())), tokens + len(gap)
    assert tokens > 1000
    assert worst < 2e-5


def test_observations_are_outputs_of_the_code(rollout: Rollout, vocabulary: Any) -> None:
    """Each call's code really ran, and its observation is what the model continued from."""
    for trajectory in rollout.trajectories:
        ids = trajectory.token_ids_T.tolist()
        for call in trajectory.tool_calls:
            if call.code.startswith("print(") and call.outcome.ok:
                assert call.outcome.text == call.outcome.details["stdout"] == f"{eval(call.code[5:])}\n"
            observed = vocabulary.decode(ids[call.start : call.stop])
            assert observed == call.observation or (call.stop == len(ids) and call.observation.startswith(observed))
            request = vocabulary.decode(ids[: call.start]).rstrip("\n")
            assert request.endswith("```output" if trajectory.format == "torl" else "```")


def test_text_and_ends(rollout: Rollout, tokenizer: Any) -> None:
    for trajectory in rollout.trajectories:
        ids = trajectory.token_ids_T.tolist()
        assert trajectory.text == tokenizer.decode(ids, skip_special_tokens=True)
        assert len(trajectory) <= MAX_RESPONSE_TOKENS
        if trajectory.finish_reason is FinishReason.STOP:
            assert ids[-1] == tokenizer.eos_token_id
        else:
            assert len(trajectory) == MAX_RESPONSE_TOKENS
        *earlier, last = trajectory.turns
        assert {turn.stop_reason for turn in earlier} <= {StopReason.CALL}
        assert (last.stop_reason is StopReason.STOP) == (trajectory.finish_reason is FinishReason.STOP)
        for turn in trajectory.turns:
            assert turn.text == tokenizer.decode(ids[turn.start : turn.stop], skip_special_tokens=True)
        for before, turn in pairwise(trajectory.turns):
            computed = len(trajectory.prompt.token_ids) + before.stop - 1  # the last token was sampled, not read
            assert turn.cached_tokens >= computed
