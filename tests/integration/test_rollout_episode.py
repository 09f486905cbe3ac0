"""Real rollouts: the engine's own record against ours, transformers' logprobs against the engine's."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from builders import play_trajectories, player
from torl.engine.vllm.messages import decode_reply
from torl.formats import Format
from torl.recipes.torl import ToRLFormat
from torl.recipes.zerotir import ZeroTIRFormat, ZeroTIROptions
from torl.types import FinishReason, StopReason, Trajectory

MAX_RESPONSE_TOKENS = 220
FORMATS = (("torl", 0), ("torl", 1), ("torl", 3), ("zerotir", 1), ("zerotir", 2))


@dataclass
class EngineRecord:
    """vLLM's inputs and samples, by the names of turns: taken from vLLM itself, below our engine class."""

    prompts: dict[str, list[int]] = field(default_factory=dict)
    tokens: dict[str, list[int]] = field(default_factory=dict)
    logprobs: dict[str, list[float]] = field(default_factory=dict)


@contextmanager
def recorded(engine: Any) -> Iterator[EngineRecord]:
    record = EngineRecord()
    generate = engine._llm.generate

    async def generate_and_record(prompt: Mapping[str, Any], sampling: Any, request_id: str, **routing: Any) -> Any:
        name = request_id.partition(":")[2]  # after the number of the episode
        record.tokens[name], record.logprobs[name] = [], []
        async for output in generate(prompt, sampling, request_id, **routing):
            record.prompts[name] = list(output.prompt_token_ids)
            record.tokens[name] += output.outputs[0].token_ids
            record.logprobs[name] += decode_reply(output.kv_transfer_params)[1]
            yield output

    engine._llm.generate = generate_and_record
    try:
        yield record
    finally:
        del engine._llm.generate


def check_against_engine(trajectory: Trajectory, record: EngineRecord) -> None:
    """Every turn's prompt is the prefix so far; the mask is 1 exactly on what the engine sampled."""
    ids = trajectory.token_ids_T.tolist()
    sampled = np.zeros(len(ids), dtype=bool)
    for index, turn in enumerate(trajectory.turns):
        name = f"{trajectory.group_id}/{trajectory.sample_index}/{index}"
        length = turn.stop - turn.start
        assert record.prompts[name] == [*trajectory.prompt.token_ids, *ids[: turn.start]]
        assert record.tokens[name] == ids[turn.start : turn.stop]
        logprobs = trajectory.rollout_logprobs_T[turn.start : turn.stop]
        assert np.array_equal(logprobs, np.float32(record.logprobs[name]))
        sampled[turn.start : turn.stop] = True
        assert len(record.tokens[name]) == length  # the engine ends a turn where it ends
    assert np.array_equal(trajectory.loss_mask_T, sampled)
    assert not np.any(trajectory.rollout_logprobs_T[~sampled])
    assert np.array_equal(trajectory.policy_versions_T >= 0, sampled)


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
