"""Packed attention: both ways against attention written out, and the kernel's call against torch's own declaration."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from transformers import MistralConfig, Qwen2Config

from torl.learner.model.attention import (
    PACKED,
    PackedSamples,
    attention_implementation,
    packed_attention,
    per_sample_attention,
    varlen_attention,
)

LENGTHS = (5, 1, 9, 3)
HEADS, GROUPS, WIDTH = 6, 2, 8


def row(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Query, key and value of a row, as transformers gives them."""
    generator = torch.Generator().manual_seed(0)

    def part(heads: int) -> Tensor:
        return torch.randn(1, heads, sum(LENGTHS), WIDTH, generator=generator, dtype=dtype).requires_grad_()

    return part(HEADS), part(GROUPS), part(GROUPS)


def samples() -> PackedSamples:
    return PackedSamples.from_lengths(LENGTHS, torch.device("cpu"))


def written_out(query: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    """One matrix of scores for the whole row: -inf between samples and on what comes later."""
    sample = torch.repeat_interleave(torch.arange(len(LENGTHS)), torch.tensor(LENGTHS))
    place = torch.arange(len(sample))
    allowed = (sample[:, None] == sample) & (place[:, None] >= place)
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
    assert cu_seq_q.dtype == cu_seq_k.dtype == torch.int32
    lengths = cu_seq_q.diff().tolist()
    assert lengths == cu_seq_k.diff().tolist()
    assert max_q == max_k == max(lengths)
    out = torch.empty_like(query)
    for start, stop in zip(cu_seq_q[:-1].tolist(), cu_seq_q[1:].tolist(), strict=True):
        for head in range(query.shape[1]):
            group = head * key.shape[1] // query.shape[1]
            scores = query[start:stop, head] @ key[start:stop, group].T * (scale or query.shape[-1] ** -0.5)
            later = torch.ones_like(scores, dtype=torch.bool).triu(1)
            out[start:stop, head] = scores.masked_fill(later, -torch.inf).softmax(-1) @ value[start:stop, group]
    return out


@pytest.mark.parametrize("way", ["kernel", "pieces"])
def test_a_row_is_attention_written_out(way: str) -> None:
    inputs = row()
    if way == "kernel":
        found = varlen_attention(*inputs, 0.3, samples(), kernel_as_documented)
    else:
        found = per_sample_attention(*inputs, 0.3, samples())
    expected = written_out(*inputs, 0.3)
    upstream = torch.randn_like(expected)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(output, inputs, upstream) for output in (found, expected)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)


def test_torch_kernel_accepts_inputs_and_has_a_backward() -> None:
    """As declared: nothing is computed, but the call, the shapes and the gradients' shapes are those of the kernel."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        inputs = row(torch.bfloat16)
        found = varlen_attention(*inputs, 0.3, samples())
        assert found.shape == (1, sum(LENGTHS), HEADS, WIDTH)
        gradients = torch.autograd.grad(found.sum(), inputs)
        assert [gradient.shape for gradient in gradients] == [part.shape for part in inputs]


def test_a_row_on_the_cpu_is_cut_and_keeps_its_precision() -> None:
    inputs = row(torch.float32)
    found, weights = packed_attention(nn.Identity(), *inputs, None, 0.3, samples=samples())
    assert weights is None
    assert found.is_contiguous()
    assert torch.equal(found, per_sample_attention(*inputs, 0.3, samples()))


@pytest.mark.parametrize("setting", ["sliding_window", "softcap", "s_aux", "position_bias"])
def test_attention_that_is_more_than_causal_is_refused(setting: str) -> None:
    more: dict[str, Any] = {setting: 8}
    with pytest.raises(ValueError, match=setting):
        packed_attention(nn.Identity(), *row(), None, samples=samples(), **more)


def test_dropout_is_refused() -> None:
    with pytest.raises(ValueError, match="dropout"):
        packed_attention(nn.Identity(), *row(), None, dropout=0.1, samples=samples())


def test_models_that_need_more_than_plain_causal_attention_keep_their_masks() -> None:
    assert attention_implementation("sdpa", Qwen2Config()) == PACKED
    assert attention_implementation("flash_attention_2", Qwen2Config()) == "flash_attention_2"
    windowed = Qwen2Config(use_sliding_window=True, sliding_window=8, max_window_layers=1)
    assert attention_implementation("sdpa", windowed) == "sdpa"
    assert attention_implementation("sdpa", MistralConfig(sliding_window=16)) == "sdpa"
    assert attention_implementation("sdpa", MistralConfig(sliding_window=None)) == PACKED
