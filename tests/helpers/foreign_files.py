"""Files of other libraries in their own shapes: Inspect, verifiers, TRL, verl, ATIF, slime and miles."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch

QUESTION = "What is 1 + 1?"
CODE = "```python\nprint(1 + 1)\n```"
CALL = {"id": "call_a", "type": "function", "function": {"name": "python", "arguments": '{"code": "print(1 + 1)"}'}}


def inspect_log(path: Path) -> None:
    sample = {
        "id": "sum-1",
        "epoch": 2,
        "input": QUESTION,
        "target": "2",
        "messages": [
            {"role": "system", "content": "Use Python."},
            {"role": "user", "content": QUESTION, "source": "input"},
            {
                "role": "assistant",
                "content": [{"type": "reasoning", "reasoning": "Easy."}, {"type": "text", "text": "I compute."}],
                "source": "generate",
                "tool_calls": [{"id": "a", "function": "python", "arguments": {"code": "print(1 + 1)"}}],
            },
            {"role": "tool", "content": "2\n", "tool_call_id": "a", "function": "python"},
            {"role": "assistant", "content": "It is \\boxed{2}.", "source": "generate"},
        ],
        "output": {
            "model": "m",
            "choices": [{"message": {"role": "assistant", "content": "x"}, "stop_reason": "stop"}],
        },
        "scores": {"match": {"value": "C", "answer": "2", "explanation": "x"}},
        "total_time": 1.5,
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", json.dumps({"version": 2, "status": "success", "eval": {"task": "sums"}}))
        file.writestr("_journal/start.json", "{}")
        file.writestr("samples/sum-1_epoch_2.json", json.dumps(sample))
        file.writestr("summaries.json", "[]")


def verifiers_results(path: Path) -> None:
    row = {
        "example_id": "sum-1",
        "task": "sums",
        "prompt": [{"role": "system", "content": "Use Python."}, {"role": "user", "content": QUESTION}],
        "completion": [
            {"role": "assistant", "content": "I compute.", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_a", "content": "2\n"},
            {"role": "assistant", "content": "It is \\boxed{2}."},
        ],
        "answer": "2",
        "reward": 1.0,
        "metrics": {"correct": 1.0},
    }
    path.write_text(json.dumps(row) + "\n")


def trl_completions(path: Path) -> None:
    columns = {
        "step": [3, 3],
        "prompt": [QUESTION, QUESTION],
        "completion": ["It is \\boxed{2}.", f"{CODE}\nIt is \\boxed{{3}}."],
        "accuracy_reward": [1.0, 0.0],
        "advantage": [0.7, -0.7],
    }
    pq.write_table(pa.table(columns), path)


def verl_rollouts(path: Path) -> None:
    row = {
        "input": f"user\n{QUESTION}\nassistant\n",
        "output": "It is \\boxed{2}.",
        "gts": "2",
        "score": 1.0,
        "step": 7,
    }
    path.write_text(
        "".join(json.dumps(each) + "\n" for each in (row, row | {"acc": False, "pred": "3", "score": -1.0}))
    )


def atif_document(path: Path) -> None:
    document = {
        "schema_version": "ATIF-v1.6",
        "session_id": "s1",
        "agent": {"name": "terminus-2", "version": "0.1.0", "model_name": "m"},
        "steps": [
            {"step_id": 1, "timestamp": "2026-01-01T00:00:00Z", "source": "system", "message": "Use Python."},
            {"step_id": 2, "source": "user", "message": [{"type": "text", "text": QUESTION}]},
            {
                "step_id": 3,
                "source": "agent",
                "message": "I compute.",
                "tool_calls": [{"tool_call_id": "c", "function_name": "python", "arguments": {"code": "print(1 + 1)"}}],
                "observation": {"results": [{"source_call_id": "c", "content": "2\n"}]},
            },
            {"step_id": 4, "source": "agent", "message": "It is \\boxed{2}."},
        ],
    }
    path.write_text(json.dumps(document, indent=2))


# --- with token ids ---------------------------------------------------------------------------------------------------

TRACE_CALL = {"id": "a", "type": "function", "name": "python", "arguments": '{"code": "print(1 + 1)"}'}


def node(parent: int | None, message: dict[str, Any], ids: list[int], sampled: int = 0, **more: Any) -> dict[str, Any]:
    """A message of a trace, of whose tokens the last `sampled` are the model's."""
    found = {
        "parent": parent,
        "semantic_parents": [],
        "message": message,
        "sampled": sampled > 0,
        "timestamp": 1.0,
        "token_ids": ids,
        "mask": [False] * (len(ids) - sampled) + [True] * sampled,
        "is_content": [],
        "logprobs": [-0.5 * (place + 1) for place in range(sampled)],
    }
    return found | more


def episode(nodes: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    task = {"type": "Sums", "data": {"idx": 4, "prompt": QUESTION, "answer": "2", "network_allow": ["*"]}, "key": "k"}
    trace = {
        "version": 1,
        "id": "t1",
        "verifiers": {"version": "0.4.0"},
        "task": task,
        "agent": {"config": {}, "name": "solver", "trainable": True},
        "tools": [],
        "nodes": nodes,
        "calls": [{"node": len(nodes) - 1, "finish_reason": "stop", "time": {"start": 0.0, "end": 1.0}}],
        "rewards": {"correct": {"score": 1.0, "weight": 1.0}, "format": {"score": 0.5, "weight": 0.2}},
        "metrics": {"num_turns": 2.0},
        "info": {},
        "is_completed": True,
        "ok": True,
        "errors": [],
        "timing": {"start": 1.0, "agent": {"start": 2.0, "end": 3.5}},
    }
    run = {"type": "train", "id": "r", "work": {"type": "train", "step": 7, "policy": {"start": 5, "end": 6}}}
    return {"id": "e1", "env": {"id": "sums"}, "task": task, "group": {"id": "g"}, "run": run, "ok": True} | {
        "errors": [],
        "traces": [trace | more],
    }


CONVERSATION = [
    node(None, {"role": "system", "content": "Use Python."}, [1, 2]),
    node(0, {"role": "user", "content": QUESTION}, [3, 4]),
    node(
        1,
        {"role": "assistant", "content": "I compute.", "tool_calls": [TRACE_CALL]},
        [5, 10, 11],
        2,
        entropies=[0.1, 0.2],
    ),
    node(2, {"role": "tool", "tool_call_id": "a", "content": "2\n"}, [12, 13]),
    node(3, {"role": "assistant", "content": "It is \\boxed{2}."}, [5, 14, 15, 16], 3, entropies=[0.3, 0.4, 0.5]),
]


def verifiers_traces(path: Path) -> None:
    path.write_text(json.dumps(episode(CONVERSATION)) + "\n")


def sample(**changes: Any) -> dict[str, Any]:
    """A sample as the `to_dict` of slime's `Sample` returns it."""
    found = {
        "group_index": 3,
        "index": 6,
        "prompt": QUESTION,
        "tokens": [1, 2, 10, 11, 12],
        "multimodal_inputs": None,
        "response": "It is 2.",
        "response_length": 3,
        "label": "2",
        "reward": 1.0,
        "loss_mask": None,
        "weight_versions": ["8"],
        "rollout_log_probs": [-0.1, -0.2, -0.3],
        "rollout_routed_experts": np.zeros((4, 1, 2), np.int32),
        "remove_sample": False,
        "status": "completed",
        "metadata": {},
        "spec_info": {"spec_accept_token_num": 0},
    }
    return found | changes


def rollout_dump(path: Path) -> None:
    torch.save({"rollout_id": 12, "samples": [sample(), sample(index=7, reward=0.0, response="It is 3.")]}, path)


FILES: dict[str, Callable[[Path], None]] = {
    "log.eval": inspect_log,
    "results.jsonl": verifiers_results,
    "completions_00003.parquet": trl_completions,
    "7.jsonl": verl_rollouts,
    "trajectory.json": atif_document,
    "traces.jsonl": verifiers_traces,
    "12.pt": rollout_dump,
}
"""Writers of files by their name."""
