"""A logits processor that decides where a model calls its tool and when it stops, so that runs can be compared.

vLLM loads it in the engine's process (`tool_calls.py` names it). Between calls the model samples freely, except that it
can neither write a backtick nor end. A prompt says by its first token how many calls its response makes, and by the
others where: episodes call at separate moments, as real ones do. A turn has between a half and three halves of an equal
share of the response's tokens, roughly, and ends with a forced block, the marker, or the end of the text.
"""

import json
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from vllm.v1.sample.logits_processor import BatchUpdate, LogitsProcessor, MoveDirectionality

PLAN = "TORL_BENCHMARK_PLAN"
PROMPT_TOKENS = 24


def text(tokens: list[int]) -> str:
    """Return tokens as characters: finding some among thousands must not cost what is measured."""
    return "".join(map(chr, tokens))


@dataclass
class Row:
    """A turn being sampled: its tokens so far, its length, and what it ends with."""

    sampled: list[int]
    length: int
    ending: list[int]


class ForcedCalls(LogitsProcessor):
    """See the module."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        plan = json.loads(Path(os.environ[PLAN]).read_text())
        self.tokens: int = plan["tokens"]
        self.calls: list[list[int]] = plan["calls"]
        self.marker = text(plan["marker"])
        self.end: int = plan["end"]
        self.banned = torch.tensor([*plan["banned"], self.end], device=device)
        self.rows: dict[int, Row] = {}

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: BatchUpdate | None) -> None:
        if batch_update is None:
            return
        for index in batch_update.removed:
            self.rows.pop(index, None)
        for index, _, prompt, sampled in batch_update.added:
            self.rows[index] = self.row(prompt, sampled)
        for first, second, direction in batch_update.moved:
            moved, other = self.rows.pop(first, None), self.rows.pop(second, None)
            if moved is not None:
                self.rows[second] = moved
            if other is not None and direction == MoveDirectionality.SWAP:
                self.rows[first] = other

    def row(self, prompt: list[int], sampled: list[int]) -> Row:
        calls = prompt[0]
        turn = text(prompt).count(self.marker)
        length = self.lengths(prompt[:PROMPT_TOKENS])[turn]
        return Row(sampled, length, self.calls[(prompt[1] + turn) % len(self.calls)] if turn < calls else [self.end])

    def lengths(self, prompt: list[int]) -> list[int]:
        """Tokens of each turn of the response to a prompt, its ending included."""
        calls = prompt[0]
        source = random.Random(repr(prompt))
        weights = [0.5 + source.random() for _ in range(calls + 1)]
        lengths = [int(self.tokens * weight / sum(weights)) for weight in weights[:-1]]
        return [*lengths, self.tokens - sum(lengths)]

    def apply(self, logits: torch.Tensor) -> torch.Tensor:
        logits[:, self.banned] = -torch.inf
        for index, row in self.rows.items():
            place = len(row.sampled) - (row.length - len(row.ending))
            if place >= 0:
                logits[index] = -torch.inf
                logits[index, row.ending[place]] = 0.0
        return logits
