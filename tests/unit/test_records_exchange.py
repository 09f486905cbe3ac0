"""Files of other libraries in their own shapes, read as trajectories; ATIF written and read back."""

import json
import re
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders import call, grade, trajectory
from torl.apps.view.facts import facts_of
from torl.apps.view.imported import own_file
from torl.commands.convert import main
from torl.errors import RecordError
from torl.records.exchange import read_foreign
from torl.records.exchange.atif import SCHEMA_VERSION, atif_from_row, row_from_atif
from torl.records.reading import read_trajectories
from torl.records.rows import TrajectoryRecord, decode_trajectory, encode_trajectory
from torl.types import Outcome, OutcomeStatus

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


FILES: dict[str, Callable[[Path], None]] = {
    "log.eval": inspect_log,
    "results.jsonl": verifiers_results,
    "completions_00003.parquet": trl_completions,
    "7.jsonl": verl_rollouts,
    "trajectory.json": atif_document,
}


@pytest.fixture(params=FILES)
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    FILES[path.name](path)
    return path


def test_rows_of_foreign_files_are_trajectories(foreign: Path) -> None:
    for row in read_foreign(foreign):
        record = decode_trajectory(row)
        assert QUESTION in record.trajectory.prompt.problem.question
        assert facts_of(row).facets["turns"] == len(record.trajectory.turns) > 0


@pytest.mark.parametrize("name", ["log.eval", "results.jsonl", "trajectory.json"])
def test_conversations_keep_turns_calls_and_results(tmp_path: Path, name: str) -> None:
    FILES[name](tmp_path / name)
    [row] = read_foreign(tmp_path / name)
    assert [turn["stop_reason"] for turn in row["turns"]] == ["call", "stop"]
    [made] = row["tool_calls"]
    assert (made["tool"], made["arguments"], made["text"]) == ("python", {"code": "print(1 + 1)"}, "2\n")
    assert row["turns"][0]["stop"] == made["start"] < made["stop"] <= row["turns"][1]["start"]
    assert row["turns"][1]["text"] == "It is \\boxed{2}."
    assert "2\n" not in row["sampled_text"]


def test_inspect_scores_and_epochs_become_grades_and_samples(tmp_path: Path) -> None:
    inspect_log(tmp_path / "log.eval")
    [row] = read_foreign(tmp_path / "log.eval")
    assert (row["correct"], row["answer"], row["reference_answer"], row["sample"]) == (True, "2", "2", 1)
    assert row["turns"][0]["text"].startswith("Easy.")


def test_inspect_attachments_and_zstd_are_read(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    sample = {
        "id": 1,
        "input": "attachment://a",
        "messages": [{"role": "assistant", "content": "attachment://b"}],
        "attachments": {"a": QUESTION, "b": "long"},
        "scores": {},
        "error": {"message": "x"},
    }
    write_zstd(path, "samples/1_epoch_1.json", json.dumps(sample).encode())
    [row] = read_foreign(path)
    assert (row["question"], row["turns"][0]["text"], row["grader_failure"]) == (QUESTION, "long", "error")
    path.write_bytes(path.read_bytes().replace(b"\x28\xb5\x2f\xfd", b"\0\0\0\0"))
    with pytest.raises(RecordError, match=re.escape(str(path))):
        list(read_foreign(path))


def write_zstd(path: Path, name: str, data: bytes) -> None:
    """Write a zip file with one member by method 93 of PKWARE's specification, as Inspect does."""
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(name, pa.compress(data, codec="zstd", asbytes=True))
    written = bytearray(path.read_bytes())
    central = written.index(b"PK\x01\x02")
    for method, checksum, size in ((8, 14, 22), (central + 10, central + 16, central + 24)):
        struct.pack_into("<H", written, method, 93)
        struct.pack_into("<I", written, checksum, zlib.crc32(data))
        struct.pack_into("<I", written, size, len(data))
    path.write_bytes(written)


def test_trl_columns_become_reward_parts(tmp_path: Path) -> None:
    trl_completions(tmp_path / "completions.parquet")
    first, second = read_foreign(tmp_path / "completions.parquet")
    assert (first["reward_parts"], first["reward"], first["advantage"]) == ({"accuracy_reward": 1.0}, 1.0, 0.7)
    assert first["group"] == second["group"]
    assert (first["sample"], second["sample"], second["correct"]) == (0, 1, False)
    [[start, stop, _]] = second["turns"][0]["blocks"]
    assert second["turns"][0]["text"][start:stop] == "print(1 + 1)\n"


def test_verl_accuracy_overrides_the_score(tmp_path: Path) -> None:
    verl_rollouts(tmp_path / "7.jsonl")
    first, second = read_foreign(tmp_path / "7.jsonl")
    assert (first["correct"], first["step"], first["reference_answer"]) == (True, 7, "2")
    assert (second["correct"], second["answer"], second["reward"]) == (False, "3", -1.0)


@pytest.mark.parametrize("name", FILES)
def test_damaged_file_is_a_clear_error(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    FILES[name](path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(RecordError, match=re.escape(str(path))):
        list(read_foreign(path))


def test_atif_round_trip_keeps_every_token(tmp_path: Path) -> None:
    text = f"{CODE}\n"
    made = trajectory(
        text, "It is \\boxed{2}.", calls=[call("print(1 + 1)", Outcome(OutcomeStatus.OK, "2\n"))], turn_tokens=3
    )
    record = TrajectoryRecord(4, made, grade(answer="2"), 0.5)
    row = encode_trajectory(record)
    document = json.loads(json.dumps(atif_from_row(row)))
    check_atif(document)
    again = row_from_atif(document, "x")
    for name in ("token_ids", "loss_mask", "rollout_logprobs", "prompt_token_ids", "policy_versions", "turns", "text"):
        if name == "turns":
            same = [{**turn, "cached_tokens": 0} for turn in again["turns"]]
            assert same == [{**turn, "cached_tokens": 0} for turn in row["turns"]]
        else:
            assert again[name] == row[name], name
    assert again["tool_calls"] == row["tool_calls"]
    assert (again["step"], again["reward"], again["advantage"]) == (4, row["reward"], 0.5)
    assert np.array_equal(decode_trajectory(again).trajectory.token_ids_T, made.token_ids_T)


def check_atif(document: dict[str, Any]) -> None:
    """Check the rules that Harbor's models check: known fields only, ordinal steps, results of calls of their step."""
    fields = "schema_version session_id trajectory_id agent steps notes final_metrics continued_trajectory_ref extra"
    assert document.keys() <= {*fields.split(), "subagent_trajectories"}
    assert document["schema_version"] == SCHEMA_VERSION
    assert document["agent"].keys() <= {"name", "version", "model_name", "tool_definitions", "extra"}
    step_fields = (
        "step_id timestamp source model_name reasoning_effort message reasoning_content tool_calls observation"
    )
    for number, step in enumerate(document["steps"], start=1):
        assert step.keys() <= {*step_fields.split(), "metrics", "is_copied_context", "llm_call_count", "extra"}
        assert step["step_id"] == number
        assert step["source"] in ("system", "user", "agent")
        if step["source"] != "agent":
            assert not step.keys() & {"tool_calls", "metrics", "reasoning_content", "llm_call_count"}
        calls = [made["tool_call_id"] for made in step.get("tool_calls", ())]
        for result in step.get("observation", {"results": ()})["results"]:
            assert result.keys() <= {"source_call_id", "content", "subagent_trajectory_ref", "extra"}
            assert result.get("source_call_id") in (*calls, None)


def test_command_converts_grades_and_writes_atif(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verl_rollouts(tmp_path / "7.jsonl")
    assert main([str(tmp_path / "7.jsonl"), str(tmp_path / "own.jsonl"), "--grade"]) == 0
    assert "graded 2: 1 as in the file, 1 otherwise, 0 undecided" in capsys.readouterr().out
    assert [record.grade.correct for record in read_trajectories(tmp_path / "own.jsonl")] == [True, True]
    assert main([str(tmp_path / "own.jsonl"), str(tmp_path / "atif"), "--atif"]) == 0
    for path in (tmp_path / "atif").iterdir():
        check_atif(json.loads(path.read_text()))
    assert main([str(tmp_path / "own.jsonl"), str(tmp_path / "atif"), "--atif"]) == 2
    assert "exists; choose another output" in capsys.readouterr().err


def test_viewer_reads_a_converted_copy(foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = own_file(foreign)
    assert made != foreign
    assert list(read_trajectories(made))
    assert own_file(made) == made
