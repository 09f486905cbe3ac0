"""Slow, literal restatements of the native kernels, for the tests to compare with. Written for clarity only."""

import statistics
from dataclasses import dataclass
from math import exp


@dataclass(frozen=True)
class ReferenceBlock:
    """A closed block in the bytes of a turn; `end` is one past the third backtick of its closing line."""

    code: bytes
    start: int
    stop: int
    end: int


@dataclass(frozen=True)
class ReferenceScan:
    """Everything there is to find in the bytes of one turn."""

    blocks: list[ReferenceBlock]
    marker: tuple[int, int, bool] | None  # start, stop, inside a block


def scan_bytes(text: bytes, marker: bytes | None, at_line_start: bool = True) -> ReferenceScan:
    """Look at a whole turn at once: cut it after the first marker, then walk over its lines."""
    place = text.find(marker) if marker is not None else -1
    if marker is not None and place >= 0:
        text = text[: place + len(marker)]
    blocks: list[ReferenceBlock] = []
    opened: int | None = None
    offset = 0
    for number, line in enumerate(_lines(text)):
        if line.startswith(b"```") and (number > 0 or at_line_start):
            if opened is not None:
                blocks.append(ReferenceBlock(text[opened:offset], opened, offset, offset + 3))
                opened = None
            if line.endswith(b"\n") and line.rstrip(b" \t\r\n") == b"```python":
                opened = offset + len(line)
        offset += len(line)
    found = None if place < 0 or marker is None else (place, place + len(marker), opened is not None)
    return ReferenceScan(blocks, found)


def _lines(text: bytes) -> list[bytes]:
    """Lines with their newline; only a newline ends a line."""
    pieces = text.split(b"\n")
    return [piece + b"\n" for piece in pieces[:-1]] + ([pieces[-1]] if pieces[-1] else [])


def token_at(tokens: list[bytes], offset: int) -> tuple[int, bytes]:
    """The index of the token that holds byte `offset`, and what the token holds after that byte."""
    position = 0
    for index, token in enumerate(tokens):
        if offset < position + len(token):
            return index, token[offset - position + 1 :]
        position += len(token)
    raise IndexError(offset)


def first_fit_decreasing(lengths: list[int], capacity: int) -> int:
    """How many rows first-fit decreasing needs."""
    free: list[int] = []
    for length in sorted(lengths, reverse=True):
        for row, space in enumerate(free):
            if length <= space:
                free[row] -= length
                break
        else:
            free.append(capacity - length)
    return len(free)


def group_advantages(estimator: str, rewards: list[float], groups: list[int]) -> list[float]:
    """The formulas of the papers, one trajectory at a time."""
    advantages = []
    for index, reward in enumerate(rewards):
        members = [other for other, group in zip(rewards, groups, strict=True) if group == groups[index]]
        others = [
            other
            for place, (other, group) in enumerate(zip(rewards, groups, strict=True))
            if group == groups[index] and place != index
        ]
        if estimator == "grpo":
            mean, deviation = (statistics.fmean(members), statistics.stdev(members)) if others else (0.0, 1.0)
            advantages.append((reward - mean) / (deviation + 1e-6))
        elif estimator == "dr_grpo":
            advantages.append(reward - (statistics.fmean(members) if others else 0.0))
        elif estimator == "rloo":
            advantages.append(reward - (statistics.fmean(others) if others else 0.0))
        else:
            raise ValueError(estimator)
    return advantages


def clipped_token_loss(
    logprob: float,
    old_logprob: float,
    advantage: float,
    clip_low: float,
    clip_high: float,
    dual_clip: float | None = None,
    importance_weight: float = 1.0,
) -> float:
    """PPO's clipped objective for one sampled token, negated."""
    ratio = exp(logprob - old_logprob)
    objective = min(ratio * advantage, min(max(ratio, 1 - clip_low), 1 + clip_high) * advantage)
    if dual_clip is not None and advantage < 0:
        objective = max(objective, dual_clip * advantage)
    return -objective * importance_weight
