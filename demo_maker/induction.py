"""An induction head, written into the initial weights by hand.

Tool use is copying: constants into code, results into the answer. A model this small needs millions of tokens
before it grows the two heads that copy (Olsson et al. 2022, "In-context learning and induction heads"); started
with them it learns the rest in minutes. Everything stays trainable.
"""

from typing import cast

import torch
from torch import Tensor

from demo_maker.model import Attention, DemoModel, Layer

# Rotations by the fastest frequencies tell one position from the next, those by the slow ones hardly turn content.
FAST_FREQUENCIES, FIRST_SLOW_FREQUENCY = 6, 8
PREVIOUS_TOKEN_SHARPNESS = 8.0
MATCH_SHARPNESS = 3.0
WRITE_SCALE, COPY_SCALE = 2.0, 4.0


def orthonormal_rows(rows: int, columns: int, generator: torch.Generator) -> Tensor:
    """Random orthonormal rows, (rows, columns)."""
    basis: Tensor = torch.linalg.qr(torch.randn(columns, rows, generator=generator))[0]
    return basis.T


@torch.no_grad()
def install_induction_heads(model: DemoModel, generator: torch.Generator) -> None:
    """Make layer 0 write each position's previous token, and layer 1 attend to what followed the current token."""
    width, head = model.shape.width, model.shape.head_width
    scale = model.model.embed_tokens.weight.std()
    read, write = (orthonormal_rows(head, width, generator) for _ in range(2))

    first, second = (cast(Layer, layer).self_attn for layer in list(model.model.layers)[:2])
    _attend_to_previous_position(first, model.shape.rope_base, head)
    first.v_proj.weight[:head] = read
    first.o_proj.weight[:, :head] = write.T * WRITE_SCALE * scale

    slow = _onto_slow_frequencies(head)
    group = model.shape.heads // model.shape.key_value_heads
    for key_head in range(model.shape.key_value_heads):
        query_rows = slice(key_head * group * head, (key_head * group + 1) * head)
        key_rows = slice(key_head * head, (key_head + 1) * head)
        copied = orthonormal_rows(head, width, generator)
        second.q_proj.weight[query_rows] = slow @ read * MATCH_SHARPNESS
        second.k_proj.weight[key_rows] = slow @ write * MATCH_SHARPNESS
        second.v_proj.weight[key_rows] = copied
        second.o_proj.weight[:, query_rows] = copied.T * COPY_SCALE * scale


def _attend_to_previous_position(attention: Attention, rope_base: float, head: int) -> None:
    """Query and key biases of head 0 whose product, under rotary embedding, peaks one position back."""
    half = head // 2
    frequencies = rope_base ** (-torch.arange(half) / half)
    strength = (torch.arange(half) < FAST_FREQUENCIES) * PREVIOUS_TOKEN_SHARPNESS
    attention.q_proj.bias[:head] = torch.cat((strength * frequencies.cos(), -strength * frequencies.sin()))
    attention.k_proj.bias[:head] = torch.cat((strength, torch.zeros(half)))
    attention.q_proj.weight[:head] *= 0.1
    attention.k_proj.weight[:head] *= 0.1


def _onto_slow_frequencies(head: int) -> Tensor:
    """(head, head): the first coordinates, in pairs, onto the slowly rotating ones; the rest is dropped."""
    half = head // 2
    matrix = torch.zeros(head, head)
    for index in range(half - FIRST_SLOW_FREQUENCY):
        matrix[FIRST_SLOW_FREQUENCY + index, 2 * index] = 1.0
        matrix[half + FIRST_SLOW_FREQUENCY + index, 2 * index + 1] = 1.0
    return matrix
