"""Packed attention: both ways against attention written out, and the kernel's call against torch's own declaration."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import MistralConfig, Qwen2Config

from torl.learner.model.attention import (
    PACKED,
    PackedPieces,
    attention_implementation,
    gather_tokens,
    packed_attention,
    piecewise_attention,
    varlen_attention,
)
from torl.learner.rows import RowPieces

LENGTHS = (5, 1, 9, 3)
SAMPLES = RowPieces(LENGTHS, (None, None, None, None))
SHARING = RowPieces(LENGTHS, (None, 0, 0, None))
"""A prompt of five tokens with two samples, and a separate sample."""
HEADS, GROUPS, WIDTH = 6, 2, 8


def row(dtype: torch.dtype = torch.float64, value_width: int = WIDTH) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of a row, as transformers gives them."""
    generator = torch.Generator().manual_seed(0)

    def part(heads: int, width: int = WIDTH) -> Tensor:
        return torch.randn(1, heads, sum(LENGTHS), width, generator=generator, dtype=dtype).requires_grad_()

    return part(HEADS), part(GROUPS), part(GROUPS, value_width)


def packed(pieces: RowPieces = SAMPLES) -> PackedPieces:
    return PackedPieces.from_row(pieces, torch.device("cpu"))


def attended(inputs: tuple[Tensor, Tensor, Tensor], pieces: RowPieces) -> tuple[Tensor, Tensor, Tensor]:
    """Query, and the keys and values of each piece one after another."""
    index = packed(pieces).key_index
    query, key, value = inputs
    return inputs if index is None else (query, gather_tokens(key, index, 2), gather_tokens(value, index, 2))


def written_out(query: Tensor, key: Tensor, value: Tensor, scale: float, pieces: RowPieces) -> Tensor:
    """One matrix of scores for the whole row: -inf between samples and on what comes later."""
    piece = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    prompt = torch.tensor([-1 if each is None else each for each in pieces.prompts])[piece]
    place = torch.arange(len(piece))
    allowed = ((piece[:, None] == piece) & (place[:, None] >= place)) | (prompt[:, None] == piece)
    spread_key, spread_value = (part.repeat_interleave(HEADS // GROUPS, dim=1) for part in (key, value))
    scores = (query @ spread_key.transpose(-1, -2) * scale).masked_fill(~allowed, -torch.inf)
    return (scores.softmax(-1) @ spread_value).transpose(1, 2)


def kernel_as_documented(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    cu_seq_q: Tensor,
    cu_seq_k: Tensor,
    max_q: int,
    max_k: int,
    *,
    scale: float | None,
    window_size: tuple[int, int],
    enable_gqa: bool,
) -> Tensor:
    """A naive computation of torch's `varlen_attn`, for the settings with which it is called here."""
    assert window_size == (-1, 0)
    assert enable_gqa
    assert query.shape[-1] == key.shape[-1] == value.shape[-1]
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    assert max_q == cu_seq_q.diff().max()
    assert max_k == cu_seq_k.diff().max()
    out = torch.empty_like(query)
    queries, keys = (
        [slice(*ends) for ends in zip(places[:-1].tolist(), places[1:].tolist(), strict=True)]
        for places in (cu_seq_q, cu_seq_k)
    )
    for own, seen in zip(queries, keys, strict=True):
        for head in range(query.shape[1]):
            group = head * key.shape[1] // query.shape[1]
            scores = query[own, head] @ key[seen, group].T * (scale or query.shape[-1] ** -0.5)
            # "Query at position i will only attend to keys between [i + seqlen_k - seqlen_q - window_size[0],
            # i + seqlen_k - seqlen_q + window_size[1]]" (FlashAttention's flash_attn_varlen_func).
            later = torch.ones_like(scores, dtype=torch.bool).triu(1 + scores.shape[1] - scores.shape[0])
            out[own, head] = scores.masked_fill(later, -torch.inf).softmax(-1) @ value[seen, group]
    return out


@pytest.mark.parametrize("pieces", [SAMPLES, SHARING], ids=["samples", "a shared prompt"])
@pytest.mark.parametrize("way", ["kernel", "pieces"])
@pytest.mark.parametrize("value_width", [WIDTH, WIDTH - 3])
def test_a_row_is_attention_written_out(value_width: int, way: str, pieces: RowPieces) -> None:
    inputs = row(value_width=value_width)
    if way == "kernel":
        found = varlen_attention(*attended(inputs, pieces), 0.3, packed(pieces), kernel_as_documented)
    else:
        found, _ = packed_attention(nn.Identity(), *inputs, None, 0.3, pieces=packed(pieces))
    expected = written_out(*inputs, 0.3, pieces)
    upstream = torch.randn_like(expected)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(output, inputs, upstream) for output in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("pieces", [SAMPLES, SHARING], ids=["samples", "a shared prompt"])
@pytest.mark.parametrize("value_width", [WIDTH, WIDTH - 3])
def test_torch_kernel_accepts_inputs_and_has_a_backward(value_width: int, pieces: RowPieces) -> None:
    """As declared: nothing is computed, but the call, the shapes and the gradients' shapes are those of the kernel."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = row(torch.bfloat16, value_width)
        found = varlen_attention(*attended(inputs, pieces), 0.3, packed(pieces))
        assert found.shape == (1, sum(LENGTHS), HEADS, value_width)
        gradients = torch.autograd.grad(found.sum(), inputs)
        assert [gradient.shape for gradient in gradients] == [part.shape for part in inputs]


def test_a_row_on_the_cpu_is_cut_and_keeps_its_precision() -> None:
    inputs = row(torch.float32)
    found, weights = packed_attention(nn.Identity(), *inputs, None, 0.3, pieces=packed())
    assert weights is None
    assert found.is_contiguous()
    assert torch.equal(found, piecewise_attention(*inputs, 0.3, packed()))


@pytest.mark.parametrize("setting", ["sliding_window", "softcap", "s_aux", "position_bias"])
def test_attention_that_is_more_than_causal_is_refused(setting: str) -> None:
    more: dict[str, Any] = {setting: 8}
    with pytest.raises(ValueError, match=setting):
        packed_attention(nn.Identity(), *row(), None, pieces=packed(), **more)


def test_dropout_is_refused() -> None:
    with pytest.raises(ValueError, match="dropout"):
        packed_attention(nn.Identity(), *row(), None, dropout=0.1, pieces=packed())


def test_models_that_need_more_than_plain_causal_attention_keep_their_masks() -> None:
    assert attention_implementation("sdpa", Qwen2Config()) == PACKED
    assert attention_implementation("flash_attention_2", Qwen2Config()) == "flash_attention_2"
    windowed = Qwen2Config(use_sliding_window=True, sliding_window=8, max_window_layers=1)
    assert attention_implementation("sdpa", windowed) == "sdpa"
    assert attention_implementation("sdpa", MistralConfig(sliding_window=16)) == "sdpa"
    assert attention_implementation("sdpa", MistralConfig(sliding_window=None)) == PACKED


def test_gradients_of_a_shared_token_are_summed_in_float32() -> None:
    """256 gradients of 1 and 1/128: in bfloat16, whose numbers above 256 are even, the small ones would be lost."""
    values = torch.zeros(3, 2, dtype=torch.bfloat16, requires_grad=True)
    index = torch.tensor([1] * 512)
    gradient = torch.tensor([1.0, 1 / 128], dtype=torch.bfloat16).repeat(256)[:, None].expand(512, 2)
    gathered = gather_tokens(values, index, 0)
    assert torch.equal(gathered, values[index])
    gathered.backward(gradient)
    assert values.grad is not None
    assert values.grad.tolist() == [[0, 0], [258, 258], [0, 0]]
