"""The rollout dumps of slime and miles: the samples of a step by `torch.save` (`--save-debug-rollout-data`)."""

import math
import pickle
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

from torl.base.errors import RecordError
from torl.base.inputs import open_file, require_archive_proportion
from torl.base.types import FinishReason
from torl_lab.exchange.messages import add_messages, new_row, number_samples, question_of
from torl_lab.exchange.tokens import Decode, TokenSequence


def read_dump(path: Path, decode: Decode | None) -> Iterator[dict[str, Any]]:
    """Yield the samples of a dump as rows of a trajectory file. Without a decoder, a response is one turn.

    Raises:
        RecordError: The file is damaged, is far larger when decompressed, or contains other objects than data, or torch
            is not installed.
    """
    content = _load(path)
    if not isinstance(content, Mapping) or not isinstance(content.get("samples"), list):
        raise RecordError(f"{path}: not a rollout dump: it has no list of samples")
    number = content.get("rollout_id", 0)
    step = number if isinstance(number, int) else int("".join(filter(str.isdigit, str(number))) or 0)
    yield from number_samples(_row(sample, step, decode) for sample in content["samples"])


def _load(path: Path) -> Any:
    try:
        import numpy
        import torch
    except ModuleNotFoundError as error:
        raise RecordError(f"{path}: needs {error.name} to be read: pip install 'torl[cpu]'") from error
    multiarray: Any = vars(numpy)["_core"].multiarray
    plain = [
        numpy.ndarray,
        numpy.dtype,
        multiarray._reconstruct,
        multiarray.scalar,
        *(type(numpy.dtype(code)) for code in "?bhilqBHILQefd"),
    ]
    try:
        with open_file(path) as file, torch.serialization.safe_globals(plain):  # never runs code of the file
            require_archive_proportion(file)
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise RecordError(f"{path}: not only plain data, so it is not loaded: {error}") from error
    except (EOFError, RuntimeError, zipfile.BadZipFile) as error:
        raise RecordError(f"{path}: damaged: {error}") from error


def _row(sample: Mapping[str, Any], step: int, decode: Decode | None) -> dict[str, Any]:
    reward, parts = _reward(sample.get("reward"))
    verdict = parts.get("acc")
    group = sample.get("group_index")
    row = new_row(
        problem=f"{step}/{group if group is not None else sample.get('index')}",
        question=question_of(sample["prompt"]),
        reference=sample.get("label"),
        reward=0.0 if reward is None else reward,
        correct=None if verdict is None else verdict >= 1,
        step=step,
        parts=parts,
    )
    status = str(sample.get("status", "completed"))
    row["finish_reason"] = (FinishReason.LENGTH if status == "truncated" else FinishReason.STOP).value
    if status in ("aborted", "failed"):
        row["grader_failure"] = status
    elif reward is None:
        row["grader_failure"] = "no reward"
    tokens = _tokens(sample)
    spans = [] if tokens is None else tokens.spans
    if len(spans) < 2 or tokens is None or decode is None:
        whole = [(spans[0][0], spans[-1][1], len(tokens.ids))] if spans and tokens is not None else []
        add_messages(row, [{"role": "assistant", "content": sample["response"]}], whole)
    else:
        add_messages(row, list(_messages(tokens, decode)), spans)
        row["text"] = decode(tokens.ids)
    return row if tokens is None else row | tokens.fields()


def _messages(tokens: TokenSequence, decode: Decode) -> Iterator[dict[str, str]]:
    for start, stop, after in tokens.spans:
        yield {"role": "assistant", "content": decode(tokens.ids[start:stop])}
        if after > stop:
            yield {"role": "user", "content": decode(tokens.ids[stop:after])}


def _tokens(sample: Mapping[str, Any]) -> TokenSequence | None:
    """Return the tokens of a sample; None if the engine's log-probabilities are missing."""
    ids, length = [int(token) for token in sample.get("tokens") or ()], int(sample["response_length"])
    logprobs = sample.get("rollout_log_probs")
    if not ids or not length or logprobs is None:
        return None
    mask = sample.get("loss_mask")
    if len(ids) < length or any(len(each) != length for each in (logprobs, mask) if each is not None):
        raise ValueError(f"the arrays of sample {sample.get('index')} differ in length")
    mask = [True] * length if mask is None else [bool(value) for value in mask]
    tokens = TokenSequence()
    first = len(ids) - length
    tokens.add_observation(ids[:first])
    turns = list(_spans(mask))
    versions = _versions(sample.get("weight_versions") or (), first, turns, length)
    position = 0
    for start, stop in turns:
        tokens.add_observation(ids[first + position : first + start])
        tokens.add_turn(ids[first + start : first + stop], logprobs[start:stop], versions[start:stop])
        position = stop
    tokens.add_observation(ids[first + position :])
    return tokens if turns else None


def _spans(mask: Sequence[bool]) -> Iterator[tuple[int, int]]:
    """Yield the starts and ends of the runs of true values."""
    stop = 0
    for value, run in groupby(mask):
        start, stop = stop, stop + len(list(run))
        if value:
            yield start, stop


def _versions(recorded: Sequence[Any], first: int, turns: Sequence[tuple[int, int]], length: int) -> list[int]:
    """Return the policy version of each token.

    slime has one version for each call of the engine, which is a turn unless the rollout was interrupted: then the
    oldest one stands for all tokens. miles has spans of tokens for each call.
    """
    versions = [0] * length
    names = [each for each in recorded if isinstance(each, str | int)]
    numbers = [int(each) if str(each).isdecimal() else 0 for each in names]
    for number, (start, stop) in enumerate(turns):
        own = numbers[number] if len(numbers) == len(turns) else min(numbers, default=0)
        versions[start:stop] = [own] * (stop - start)
    for spans in recorded:
        for span in spans if isinstance(spans, list | tuple) else ():
            start, stop = (min(max(0, int(span[name]) - first), length) for name in ("abs_start", "abs_end"))
            version = str(span["version"])
            versions[start:stop] = [int(version) if version.isdecimal() else 0] * (stop - start)
    return versions


def _reward(reward: Any) -> tuple[float | None, dict[str, float]]:
    """Return the total reward, or None without a reward, and its parts. A part "score" is the total, else their sum."""
    if isinstance(reward, Mapping):
        parts = {
            str(name): float(value)
            for name, value in reward.items()
            if isinstance(value, int | float) and math.isfinite(value)
        }
        return (parts.get("score", sum(parts.values())) if parts else None), parts
    return (None if reward is None else float(reward)), {}
