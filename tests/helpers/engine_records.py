"""The inputs and samples of vLLM itself, next to the trajectories."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from torl.base.types import Trajectory
from torl.components.engine.vllm.messages import decode_reply


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
