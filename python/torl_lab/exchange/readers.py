"""Readers of other libraries' files, chosen by the contents of a file."""

import json
import math
import os
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from torl.base.columnar import parquet_rows
from torl.base.errors import RecordError, TorlError
from torl.base.guard import place_in_custom_code
from torl.base.inputs import open_file, parse_json, read_file, require_proportion
from torl.base.plugins import load_plugin, plugins
from torl.run.records.row_types import Row
from torl.run.records.rows import check_row
from torl_lab.exchange.atif import is_atif, row_from_atif
from torl_lab.exchange.dumps import is_dump, read_dump
from torl_lab.exchange.messages import REFERENCES, add_messages, new_row, text_of
from torl_lab.exchange.reader import GROUP, Decode, Reader
from torl_lab.exchange.traces import is_trace_line, rows_of_traces

_ZSTD: Final = 93
_ATTACHMENT: Final = "attachment://"
_RESERVED: Final = frozenset({"mode", "step", "prompt", "completion", "advantage", "image", *REFERENCES})


def foreign_format(path: Path) -> str | None:
    """Return the format of another library that a file has, as a key of `readers()`; None for others.

    Raises:
        ConfigError: An installed package adds an invalid reader.
        RecordError: The file cannot be read, or is a damaged parquet file.
    """
    name = None
    try:
        open_file(path).close()  # not a named pipe, at which the readers would wait
        for name, reader in readers().items():
            if reader.matches(path):
                return name
    except TorlError:
        raise
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or str(error).strip()}") from error
    except Exception as error:
        raise RecordError(f"{path}: the reader of {name} failed: {_cause(error)}") from error
    return None


def read_foreign(path: Path, decode: Decode | None = None) -> Iterator[dict[str, Any]]:
    """Yield the trajectories of another library's file as rows of a trajectory file.

    Args:
        path: File.
        decode: Decoder of the model's tokens (`model_decoder`), for files with one text for several turns.

    Raises:
        ConfigError: An installed package adds an invalid reader.
        RecordError: The file cannot be read, is in a format without a reader, or is damaged.
    """
    name = None
    try:
        name = foreign_format(path)
        if name is None:
            raise RecordError(f"{path}: none of the formats {', '.join(readers())}")
        for row in readers()[name].read(path, decode):
            check_row(row, Row)
            yield row
    except OSError as error:
        raise RecordError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (zipfile.BadZipFile, zlib.error) as error:
        raise RecordError(f"{path}: damaged: {error}") from error
    except TorlError:
        raise
    except Exception as error:
        raise RecordError(f"{path}: not a file of {name}: {_cause(error)}") from error


def _cause(error: Exception) -> str:
    """Return an exception as text, with its place if that is in a reader of another package."""
    return f"{type(error).__name__}: {error} {place_in_custom_code(error)}".rstrip()


# --- Inspect --------------------------------------------------------------------------------------------------


class _Inspect(Reader):
    """Logs of Inspect."""

    def matches(self, path: Path) -> bool:
        if path.suffix == ".eval":
            return True
        document = _first_object(path)
        return document is not None and {"eval", "samples"} <= document.keys()

    def read(self, path: Path, decode: Decode | None) -> Iterator[dict[str, Any]]:
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
    asked = sample["input"]
    prompt = [{"role": "user", "content": asked}] if isinstance(asked, str) else asked
    scores = sample.get("scores") or {}
    values = {name: _inspect_value(score["value"]) for name, score in scores.items()}
    parts = {name: value for name, value in values.items() if value is not None}
    reward = sum(parts.values()) / len(parts) if parts else 0.0
    answers = [score.get("answer") for score in scores.values()]
    row = new_row(
        problem=str(sample["id"]),
        question="\n\n".join(text_of(each["content"]) for each in prompt if each["role"] == "user"),
        reference=sample.get("target"),
        reward=reward,
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


# --- trainers --------------------------------------------------------------------------------------------------


class _Verifiers(Reader):
    """Rollouts of verifiers."""

    def matches(self, path: Path) -> bool:
        row = _first_object(path)
        return row is not None and ({"prompt", "completion", "reward"} <= row.keys() or is_trace_line(row))

    def read(self, path: Path, decode: Decode | None) -> Iterator[dict[str, Any]]:
        """Yield the rollouts of `traces.jsonl`, or of the `results.jsonl` of earlier versions."""
        first = _first_object(path)
        if first is not None and is_trace_line(first):
            yield from rows_of_traces(_json_lines(path))
            return
        seen: Counter[str] = Counter()
        for number, line in enumerate(_json_lines(path)):
            problem = str(line.get("example_id", line.get("id", number)))
            row = _prompt_and_completion(line, problem, float(line["reward"] or 0.0), seen)
            metrics = line.get("metrics")
            if isinstance(metrics, Mapping):
                row["reward_parts"] = _numbers(metrics)
            yield row


class _Trl(Reader):
    """Completions of TRL."""

    def matches(self, path: Path) -> bool:
        if path.suffix != ".parquet":
            return False
        from pyarrow import ArrowException
        from pyarrow.parquet import read_schema

        try:
            return {"step", "prompt", "completion"} <= set(read_schema(path).names)
        except ArrowException as error:
            raise RecordError(f"{path}: damaged: {error}") from error

    def read(self, path: Path, decode: Decode | None) -> Iterator[dict[str, Any]]:
        """Yield the rows of the parquet files of `log_completions`; columns of numbers are reward functions."""
        seen: Counter[str] = Counter()
        for line in _parquet_lines(path):
            parts = _numbers({name: value for name, value in line.items() if name not in _RESERVED})
            problem = f"prompt {_checksum(json.dumps(line['prompt'], default=str))}"
            row = _prompt_and_completion(line, problem, sum(parts.values()), seen, step=int(line["step"]))
            row["reward_parts"] = parts
            advantage = line.get("advantage")
            row["advantage"] = float(advantage) if isinstance(advantage, int | float) else None
            yield row


class _Verl(Reader):
    """Rollouts of verl."""

    def matches(self, path: Path) -> bool:
        row = _first_object(path)
        return row is not None and {"input", "output", "score", "step"} <= row.keys()

    def read(self, path: Path, decode: Decode | None) -> Iterator[dict[str, Any]]:
        """Yield the rows of `trainer.rollout_data_dir` and `validation_data_dir`; other numbers are reward parts."""
        seen: Counter[str] = Counter()
        for line in _json_lines(path):
            known = ("input", "output", "score", "step", "gts", "acc")
            problem = f"prompt {_checksum(line['input'])}"
            row = new_row(
                problem=problem,
                question=line["input"],
                reference=line.get("gts"),
                reward=float(line["score"]),
                correct=None if line.get("acc") is None else bool(line["acc"]),
                answer=None if line.get("pred") is None else str(line["pred"]),
                step=int(line["step"]),
                sample=seen[problem],
                parts=_numbers({name: value for name, value in line.items() if name not in known}),
            )
            seen[problem] += 1
            yield add_messages(row, [{"role": "assistant", "content": line["output"]}])


def _prompt_and_completion(
    line: Mapping[str, Any], problem: str, reward: float, seen: Counter[str], step: int = 0
) -> dict[str, Any]:
    prompt, completion = line["prompt"], line["completion"]
    if isinstance(prompt, str):
        question = prompt
    else:
        question = "\n\n".join(text_of(each["content"]) for each in prompt if each["role"] == "user")
    if isinstance(completion, str):
        completion = [{"role": "assistant", "content": completion}]
    reference = next((line[name] for name in REFERENCES if line.get(name) is not None), None)
    row = new_row(
        problem=problem, question=question, reference=reference, reward=reward, step=step, sample=seen[problem]
    )
    seen[problem] += 1
    return add_messages(row, completion)


# --- ATIF ------------------------------------------------------------------------------------------------------


class _Atif(Reader):
    """Trajectories in ATIF."""

    def matches(self, path: Path) -> bool:
        return is_atif(_first_object(path))

    def read(self, path: Path, decode: Decode | None) -> Iterator[dict[str, Any]]:
        """Yield the trajectory of a document, or one of each line."""
        try:
            documents = [parse_json(read_file(path))]
        except ValueError:
            documents = list(_json_lines(path))
        for number, document in enumerate(documents):
            yield row_from_atif(document, f"{path.stem}-{number}")


def _first_object(path: Path) -> Mapping[str, Any] | None:
    """Return the object of the first line, or of the whole file; None for others."""
    if path.suffix not in (".json", ".jsonl"):
        return None
    with open_file(path) as file:
        first = file.readline()
        try:
            found = parse_json(first)
        except ValueError:
            try:
                found = parse_json(first + file.read())
            except ValueError:
                return None
    return found if isinstance(found, dict) else None


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with open_file(path) as file:
        yield from (parse_json(line) for line in file if line.strip())


def _parquet_lines(path: Path) -> Iterator[dict[str, Any]]:
    with open_file(path) as file:
        yield from parquet_rows(file)


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode('utf-8', errors='replace')):08x}"


def _numbers(values: Mapping[str, Any]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


class _Dump(Reader):
    """Rollout dumps of slime and miles."""

    def matches(self, path: Path) -> bool:
        return is_dump(path)

    def read(self, path: Path, decode: Decode | None) -> Iterator[dict[str, Any]]:
        return read_dump(path, decode)


_OWN: Final[Mapping[str, Reader]] = MappingProxyType(
    {
        "ATIF": _Atif(),
        "Inspect": _Inspect(),
        "verifiers": _Verifiers(),
        "TRL": _Trl(),
        "verl": _Verl(),
        "slime or miles": _Dump(),
    }
)
"""Readers of torl by the names of their formats."""


@cache
def readers() -> Mapping[str, Reader]:
    """Return all readers by the names of their formats: torl's own, then readers of installed packages.

    Raises:
        ConfigError: A package adds something else, or a format that has a reader.
    """
    installed = plugins(GROUP, _OWN).items()
    return {**_OWN, **{name: load_plugin(point, Reader) for name, point in installed}}  # type: ignore[type-abstract]
