"""Files of other libraries in their own shapes, read as trajectories; ATIF written and read back."""

import json
import re
import struct
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from builders import call, grade, trajectory
from foreign_files import CODE, FILES, QUESTION, inspect_log, trl_completions, verl_rollouts
from torl.base.errors import RecordError
from torl.base.types import Outcome, OutcomeStatus, UserMessage
from torl.run.records.reading import read_trajectories
from torl.run.records.rows import TrajectoryRecord, check_row, decode_trajectory, encode_trajectory
from torl_lab.audit.run import main as verify
from torl_lab.exchange import read_foreign
from torl_lab.exchange.atif import SCHEMA_VERSION, atif_from_row, row_from_atif
from torl_lab.exchange.command import main
from torl_lab.exchange.messages import add_messages, new_row, text_of
from torl_lab.view.command import main as view
from torl_lab.view.command import own_file
from torl_lab.view.facets import IndexedRow, facts_of


@pytest.fixture(params=FILES)
def foreign(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / str(request.param)
    FILES[path.name](path)
    return path


def test_rows_of_foreign_files_are_trajectories(foreign: Path) -> None:
    for row in read_foreign(foreign):
        record = decode_trajectory(row)
        assert QUESTION in record.trajectory.prompt.problem.question
        assert facts_of(check_row(row, IndexedRow)).facets["turns"] == len(record.trajectory.turns) > 0


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


@pytest.mark.parametrize("damage", ["torn", "footer"])  # of which pyarrow raises different errors
def test_commands_report_a_damaged_parquet_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "completions.parquet"
    trl_completions(path)
    data = path.read_bytes()
    path.write_bytes(data[:200] if damage == "torn" else data[:-200] + bytes(192) + data[-8:])
    assert main([str(path), str(tmp_path / "own.jsonl")]) == 2
    assert verify([str(path)]) == 2
    assert view([str(path), "--index-only"]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert [line.startswith(f"error: {path}: ") for line in errors] == [True] * 3


def test_atif_round_trip_keeps_every_token(tmp_path: Path) -> None:
    text = f"{CODE}\n"
    made = trajectory(
        text, "It is \\boxed{2}.", calls=[call("print(1 + 1)", Outcome(OutcomeStatus.OK, "2\n"))], turn_tokens=3
    )
    made = replace(made, turns=tuple(replace(turn, replica=1) for turn in made.turns))
    made = replace(made, answer="2", environment_rewards={"room": 0.5})  # fields that ATIF does not have
    record = TrajectoryRecord(4, made, grade(answer="2"), 0.5)
    row = encode_trajectory(record)
    document = json.loads(json.dumps(atif_from_row(row)))
    check_atif(document)
    again = row_from_atif(document, "x")
    for name in row.keys() - {"question", "tool_calls"}:
        if name == "turns":
            same = [{**turn, "cached_tokens": 0} for turn in again["turns"]]
            assert same == [{**turn, "cached_tokens": 0} for turn in row["turns"]]
        else:
            assert again[name] == row[name], name
    assert again["tool_calls"] == row["tool_calls"]
    assert (again["step"], again["reward"], again["advantage"]) == (4, row["reward"], 0.5)
    assert np.array_equal(decode_trajectory(again).trajectory.token_ids_T, made.token_ids_T)


def test_atif_has_each_result_and_each_user_message_once() -> None:
    """The calls of a turn share an observation, and so do the user messages after it."""
    joint = "<result>1</result><result>2</result>And 3?And 4?"
    results = [
        call(f"print({number})", Outcome(OutcomeStatus.OK, f"{number}\n"), observation=joint, start=1, stop=3)
        for number in (1, 2)
    ]
    made = replace(trajectory("both", "\\boxed{2}", calls=results[:1]), tool_calls=tuple(results))
    asked = tuple(UserMessage(text, joint, 1, 3) for text in ("And 3?", "And 4?"))
    row = encode_trajectory(TrajectoryRecord(0, replace(made, user_messages=asked), grade(answer="2"), 0.0))
    document = json.loads(json.dumps(atif_from_row(row)))
    check_atif(document)
    steps = document["steps"]
    assert [step["message"] for step in steps if step["source"] == "user"] == [row["question"], "And 3?", "And 4?"]
    assert [each["content"] for each in steps[1]["observation"]["results"]] == ["1\n", "2\n"]
    again = row_from_atif(document, "x")
    assert again["tool_calls"] == row["tool_calls"]
    assert [message["text"] for message in again["user_messages"]] == ["And 3?", "And 4?"]


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


def test_row_without_a_reference_answer_keeps_its_grade(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FILES["trajectory.json"](tmp_path / "atif.json")
    document = json.loads((tmp_path / "atif.json").read_text())
    (tmp_path / "atif.json").write_text(json.dumps(document | {"extra": {"reward": 1.0}}))
    assert main([str(tmp_path / "atif.json"), str(tmp_path / "read.jsonl")]) == 0
    before = [record.grade.correct for record in read_trajectories(tmp_path / "read.jsonl")]
    assert before == [True]
    assert main([str(tmp_path / "atif.json"), str(tmp_path / "graded.jsonl"), "--grade"]) == 0
    assert [record.grade.correct for record in read_trajectories(tmp_path / "graded.jsonl")] == before
    assert "graded 0: 0 as in the file, 0 otherwise, 0 undecided; 1 without" in capsys.readouterr().out


def test_viewer_reads_a_converted_copy(foreign: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = own_file(foreign)
    assert made != foreign
    assert list(read_trajectories(made))
    assert own_file(made) == made


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("a", "a"),
        ([{"type": "text", "text": "a"}, {"type": "text", "value": "b"}, {"content": "c"}, "d"], "abcd"),
        ([{"type": "text", "text": None}, {"type": "image", "image": "x"}], "[text][image]"),
        ([{"thinking": "Hm."}, {"type": "text", "text": ""}], "Hm.\n"),
        ([{"image": "x"}], "[image]"),
        ({"sum": 2}, '{"sum": 2}'),
        (2, "2"),
    ],
)
def test_text_of_a_message_keeps_every_part(content: Any, text: str) -> None:
    assert text_of(content) == text


@pytest.mark.parametrize(
    ("fields", "arguments"),
    [
        *(({name: {"a": 1}}, {"a": 1}) for name in ("arguments", "parameters", "args", "input")),
        ({"arguments": '{"a": 1}', "type": "function", "id": "c"}, {"a": 1}),
        ({"arguments": {}, "input": {"a": 1}}, {}),
        ({"arguments": None, "input": {"a": 1}}, {"a": 1}),
        ({"arguments": 0}, {"arguments": 0}),
        ({"kwargs": {"a": 1}, "index": 0}, {"kwargs": {"a": 1}}),
        ({"code": "1", "language": None}, {"code": "1"}),
        ({}, {}),
    ],
)
@pytest.mark.parametrize("reasoning", ["reasoning_content", "reasoning", "thinking"])
def test_calls_keep_their_arguments_and_messages_their_reasoning(
    fields: dict[str, Any], arguments: dict[str, Any], reasoning: str
) -> None:
    call = {"name": "f", **fields}
    for calls in ({"tool_calls": [call]}, {"tool_calls": [{"function": call}]}, {"function_call": call}):
        message = {"role": "assistant", "content": None, reasoning: "Hm.", **calls}
        row = new_row(problem="p", question="q", reference="1", reward=0.0)
        row = add_messages(row | {"turns": [], "tool_calls": []}, [message])
        assert (row["tool_calls"][0]["tool"], row["tool_calls"][0]["arguments"]) == ("f", arguments)
        assert row["text"].startswith("Hm.")


@pytest.mark.parametrize("role", ["system", "user", "tool"])
def test_messages_before_the_first_turn_are_refused(tmp_path: Path, role: str) -> None:
    messages = [{"role": role, "content": QUESTION}, {"role": "assistant", "content": "2"}]
    row = new_row(problem="p", question=QUESTION, reference="2", reward=1.0)
    with pytest.raises(
        ValueError, match=f"the first message of a response must be the model's, .* got the role '{role}'"
    ):
        add_messages(row, messages)
    assert add_messages(row, messages[1:])["text"] == "2"
    line = {"prompt": QUESTION, "completion": messages, "reward": 1.0}
    (tmp_path / "results.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(RecordError, match=r"not a file of verifiers: .*new_row takes their question"):
        list(read_foreign(tmp_path / "results.jsonl"))


def atif_of(tmp_path: Path, **fields: Any) -> dict[str, Any]:
    """The document of another library, with more fields."""
    FILES["trajectory.json"](tmp_path / "atif.json")
    document: dict[str, Any] = json.loads((tmp_path / "atif.json").read_text())
    return document | fields


@pytest.mark.parametrize(
    ("place", "kind"),
    [
        ((), "trajectory"),
        (("steps", 2), "step"),
        (("steps", 2, "metrics"), "metrics"),
        (("steps", 2, "tool_calls", 0), "call"),
        (("steps", 2, "observation"), "observation"),
        (("steps", 2, "observation", "results", 0), "result"),
        (("steps", 2, "observation", "results", 0, "subagent_trajectory_ref", 0), "reference"),
    ],
)
def test_a_field_that_atif_does_not_have_is_named(tmp_path: Path, place: tuple[Any, ...], kind: str) -> None:
    document = atif_of(tmp_path)
    document["steps"][2]["metrics"] = {}
    document["steps"][2]["observation"]["results"][0]["subagent_trajectory_ref"] = [{"trajectory_path": "a.json"}]
    row_from_atif(document, "x")
    found: Any = document
    for name in place:
        found = found[name]
    found["surplus"] = 1
    with pytest.raises(ValueError, match=f"a {kind} has the field 'surplus'"):
        row_from_atif(document, "x")


def test_references_to_the_trajectories_of_other_agents_are_kept_or_refused(tmp_path: Path) -> None:
    document = atif_of(tmp_path)
    result = document["steps"][2]["observation"]["results"][0]
    result["subagent_trajectory_ref"] = [{"trajectory_id": "inner"}]
    with pytest.raises(ValueError, match="no trajectory has the id 'inner'"):
        row_from_atif(document, "x")
    inner = atif_of(tmp_path, trajectory_id="inner")
    row = row_from_atif(document | {"subagent_trajectories": [inner]}, "x")
    assert len(row["branches"]) == 1
    assert row["tool_calls"][0]["details"] == {"subagent_trajectory_ref": [{"trajectory_id": "inner"}]}
    result["subagent_trajectory_ref"] = [{"trajectory_path": "inner.json"}]
    row = row_from_atif(document, "x")
    assert row["tool_calls"][0]["details"] == {"subagent_trajectory_ref": [{"trajectory_path": "inner.json"}]}


@pytest.mark.parametrize("field", [{"is_copied_context": True}, {"llm_call_count": 0}])
def test_steps_that_the_model_did_not_make_are_no_turns(tmp_path: Path, field: dict[str, Any]) -> None:
    document = atif_of(tmp_path)
    assert [turn["text"] for turn in row_from_atif(document, "x")["turns"]] == ["I compute.", "It is \\boxed{2}."]
    document["steps"][3] |= field
    row = row_from_atif(document, "x")
    assert [turn["text"] for turn in row["turns"]] == ["I compute."]
    assert [message["text"] for message in row["user_messages"]] == ["It is \\boxed{2}."]
    assert row["sampled_text"] == "I compute."


def test_a_trajectory_that_continues_in_another_file_is_not_taken_as_complete(tmp_path: Path) -> None:
    assert row_from_atif(atif_of(tmp_path), "x")["grader_failure"] is None
    row = row_from_atif(atif_of(tmp_path, continued_trajectory_ref="next.json"), "x")
    assert row["grader_failure"] == "continues in next.json"
