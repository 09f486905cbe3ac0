"""The logs of Inspect, TRL and verl, and the files of JSON and parquet that logs are."""

import json
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from torl.base.columnar import parquet_rows
from torl.base.errors import RecordError
from torl.base.inputs import open_file, parse_json, read_file, require_proportion
from torl_lab.exchange.messages import REFERENCES, add_messages, new_row, number_samples, question_of
from torl_lab.exchange.tokens import Decode

_ZSTD: Final = 93
_ATTACHMENT: Final = "attachment://"
_NOT_REWARDS: Final = frozenset({"mode", "step", "prompt", "completion", "advantage", "image", *REFERENCES})


def first_object(path: Path) -> Mapping[str, Any]:
    """Return the object in the first line of a JSON file, or in the whole file; empty for other files."""
    if path.suffix not in (".json", ".jsonl"):
        return {}
    with open_file(path) as file:
        first = file.readline()
        try:
            found = parse_json(first)
        except ValueError:
            try:
                found = parse_json(first + file.read())
            except ValueError:
                return {}
    return found if isinstance(found, dict) else {}


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the values of a file of JSON lines."""
    with open_file(path) as file:
        yield from (parse_json(line) for line in file if line.strip())


def numbers_of(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the finite numbers among values."""
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


def row_of_completion(line: Mapping[str, Any], problem: str, reward: float, step: int = 0) -> dict[str, Any]:
    """Return the row of a line with the fields "prompt" and "completion", each a text or messages."""
    completion = line["completion"]
    if isinstance(completion, str):
        completion = [{"role": "assistant", "content": completion}]
    reference = next((line[name] for name in REFERENCES if line.get(name) is not None), None)
    question = question_of(line["prompt"])
    row = new_row(problem=problem, question=question, reference=reference, reward=reward, step=step)
    return add_messages(row, completion)


# --- Inspect ----------------------------------------------------------------------------------------------------------


def read_inspect(path: Path, _: Decode | None) -> Iterator[dict[str, Any]]:
    """Yield the samples of a log, in Inspect's .eval (a zip file) or .json."""
    if not zipfile.is_zipfile(path):
        yield from map(_inspect_row, parse_json(read_file(path))["samples"])
        return
    with zipfile.ZipFile(path) as file:
        for member in file.infolist():
            if member.filename.startswith("samples/"):
                yield _inspect_row(parse_json(_read_member(path, file, member)))


def _read_member(path: Path, file: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """Return a file of a zip file, also one with zstd compression, which Python reads from 3.14 on."""
    require_proportion(member.file_size, member.compress_size)
    if member.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with file.open(member) as opened:
            return opened.read(member.file_size)  # no more, although there may be more
    if member.compress_type != _ZSTD:
        raise ValueError(f"{member.filename}: compressed by method {member.compress_type}; Inspect uses 0, 8 and 93")
    import pyarrow

    with open_file(path) as raw:
        raw.seek(member.header_offset)
        names = struct.unpack("<HH", raw.read(30)[26:30])  # lengths of the name and of the extra field
        raw.seek(sum(names), os.SEEK_CUR)
        data = raw.read(member.compress_size)
    content: bytes = pyarrow.decompress(data, member.file_size, codec="zstd", asbytes=True)
    if zlib.crc32(content) != member.CRC:
        raise ValueError(f"{member.filename}: wrong checksum")
    return content


def _inspect_row(sample: Mapping[str, Any]) -> dict[str, Any]:
    sample = _with_attachments({**sample, "events": None}, sample.get("attachments") or {})
    scores = sample.get("scores") or {}
    values = {name: _inspect_value(score["value"]) for name, score in scores.items()}
    parts = {name: value for name, value in values.items() if value is not None}
    answers = (score.get("answer") for score in scores.values())
    row = new_row(
        problem=str(sample["id"]),
        question=question_of(sample["input"]),
        reference=sample.get("target"),
        reward=sum(parts.values()) / len(parts) if parts else 0.0,
        answer=next((str(answer) for answer in answers if answer is not None), None),
        sample=int(sample.get("epoch", 1)) - 1,
        parts=parts,
    )
    messages = sample.get("messages") or []
    first = next((index for index, each in enumerate(messages) if each["role"] == "assistant"), len(messages))
    add_messages(row, messages[first:])
    if not parts:
        row["grader_failure"] = "error" if sample.get("error") else "no score"
    choices = (sample.get("output") or {}).get("choices") or []
    if choices and choices[-1].get("stop_reason") in ("max_tokens", "model_length"):
        row["finish_reason"] = "length"
    row["seconds"] = float(sample.get("total_time") or 0.0)
    return row


def _with_attachments(value: Any, attachments: Mapping[str, str]) -> Any:
    """Return a value with long texts in their places: Inspect stores each once, and refers to it."""
    if isinstance(value, str) and value.startswith(_ATTACHMENT):
        return attachments.get(value.removeprefix(_ATTACHMENT), value)
    if isinstance(value, dict):
        return {name: _with_attachments(member, attachments) for name, member in value.items()}
    return [_with_attachments(member, attachments) for member in value] if isinstance(value, list) else value


def _inspect_value(value: Any) -> float | None:
    """Return a score as a number: Inspect writes "C", "P", "I" and "N" for correct, partial, incorrect, no answer."""
    if isinstance(value, str):
        return {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0}.get(value)
    return float(value) if isinstance(value, bool | int | float) and math.isfinite(value) else None


# --- TRL and verl -----------------------------------------------------------------------------------------------------


def is_trl(path: Path) -> bool:
    """Whether a file has completions of TRL.

    Raises:
        RecordError: The parquet file is damaged.
    """
    if path.suffix != ".parquet":
        return False
    from pyarrow import ArrowException
    from pyarrow.parquet import read_schema

    try:
        return {"step", "prompt", "completion"} <= set(read_schema(path).names)
    except ArrowException as error:
        raise RecordError(f"{path}: damaged: {error}") from error


def read_trl(path: Path, _: Decode | None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a parquet file of `log_completions`; columns of numbers are reward functions."""
    with open_file(path) as file:
        yield from number_samples(map(_trl_row, parquet_rows(file)))


def _trl_row(line: Mapping[str, Any]) -> dict[str, Any]:
    parts = numbers_of({name: value for name, value in line.items() if name not in _NOT_REWARDS})
    problem = _prompt_id(json.dumps(line["prompt"], default=str))
    advantage = line.get("advantage")
    return row_of_completion(line, problem, sum(parts.values()), int(line["step"])) | {
        "reward_parts": parts,
        "advantage": float(advantage) if isinstance(advantage, int | float) else None,
    }


def read_verl(path: Path, _: Decode | None) -> Iterator[dict[str, Any]]:
    """Yield the rows of `trainer.rollout_data_dir` and `validation_data_dir`; other numbers are reward parts."""
    return number_samples(map(_verl_row, json_lines(path)))


def _verl_row(line: Mapping[str, Any]) -> dict[str, Any]:
    known = ("input", "output", "score", "step", "gts", "acc")
    row = new_row(
        problem=_prompt_id(line["input"]),
        question=line["input"],
        reference=line.get("gts"),
        reward=float(line["score"]),
        correct=None if line.get("acc") is None else bool(line["acc"]),
        answer=None if line.get("pred") is None else str(line["pred"]),
        step=int(line["step"]),
        parts=numbers_of({name: value for name, value in line.items() if name not in known}),
    )
    return add_messages(row, [{"role": "assistant", "content": line["output"]}])


def _prompt_id(prompt: str) -> str:
    return f"prompt {zlib.crc32(prompt.encode('utf-8', errors='replace')):08x}"
