"""Attention and head in bfloat16 on the GPU, against float64; and no question to the GPU in a layer."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn
from transformers import Qwen2Config, Qwen2ForCausalLM

from torl.learner.model.attention import PackedPieces, packed_attention
from torl.learner.model.head import LogprobHead
from torl.learner.model.loading import use_kernels
from torl.learner.rows import RowPieces
from torl.run.config import ModelConfig

LENGTHS = (700, 1, 33, 2048, 128)
VOCABULARY = 151_936


@pytest.fixture
def no_questions() -> Iterator[None]:
    """An error where the CPU waits for the GPU."""
    yield
    torch.cuda.set_sync_debug_mode("default")


def row(heads: int, groups: int, width: int) -> tuple[Tensor, ...]:
    generator = torch.Generator("cuda").manual_seed(0)
    return tuple(
        torch.randn(
            1, count, sum(LENGTHS), width, generator=generator, device="cuda", dtype=torch.bfloat16
        ).requires_grad_()
        for count in (heads, groups, groups)
    )


def distance(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize(("heads", "groups", "width"), [(12, 2, 128), (28, 4, 128), (14, 2, 64), (8, 8, 80)])
@pytest.mark.parametrize("sharing", [False, True])
def test_a_row_in_one_call_is_attention_piece_by_piece(
    heads: int, groups: int, width: int, sharing: bool, no_questions: None
) -> None:
    inputs = row(heads, groups, width)
    prompts = (None, *[0 if sharing else None] * (len(LENGTHS) - 1))
    pieces = PackedPieces.from_row(RowPieces(LENGTHS, prompts), torch.device("cuda"))
    exact_inputs = [part.detach().double().requires_grad_() for part in inputs]
    expected, _ = packed_attention(nn.Identity(), *exact_inputs, None, pieces=pieces)  # type: ignore[arg-type]
    upstream = torch.randn_like(expected)
    exact = torch.autograd.grad(expected, exact_inputs, upstream)
    torch.cuda.set_sync_debug_mode("error")
    found, _ = packed_attention(nn.Identity(), *inputs, None, pieces=pieces)
    gradients = torch.autograd.grad(found, inputs, upstream.bfloat16())
    torch.cuda.set_sync_debug_mode("default")
    assert distance(found, expected) < 0.01
    assert all(distance(one, other) < 0.01 for one, other in zip(gradients, exact, strict=True))


def test_liger_kernels_equal_torch() -> None:
    pytest.importorskip("liger_kernel")
    config = Qwen2Config(vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=2)
    config.num_attention_heads, config.num_key_value_heads = 4, 2
    config.initializer_range = 0.1
    torch.manual_seed(0)
    plain = Qwen2ForCausalLM(config).cuda()
    patched = Qwen2ForCausalLM(config).cuda()
    patched.load_state_dict(plain.state_dict())
    assert "Liger's" in use_kernels(patched, ModelConfig(path="m", kernels="liger"))
    ids = torch.randint(512, (1, 300), device="cuda")
    expected = plain(ids).logits.log_softmax(-1)
    torch.testing.assert_close(patched(ids).logits.log_softmax(-1), expected, atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("entropy", ["off", "train"])
def test_the_head_is_that_of_float64_and_never_holds_a_row_of_logits(entropy: str) -> None:
    tokens, width = 8192, 1536
    torch.manual_seed(0)
    linear = nn.Linear(width, VOCABULARY, bias=False, device="cuda", dtype=torch.bfloat16)
    hidden = torch.randn(tokens, width, device="cuda", dtype=torch.bfloat16).requires_grad_()
    target = torch.randint(VOCABULARY, (tokens,), device="cuda")
    upstream = torch.randn(tokens, device="cuda")
    head = LogprobHead(linear, 1 << 27)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    found = head(hidden, target, 0.7, entropy)
    outputs = [found[0]] if entropy == "off" else list(found)
    gradients = torch.autograd.grad(outputs, [hidden, linear.weight], [upstream] * len(outputs))
    assert torch.cuda.max_memory_allocated() - before < 2.5e9  # all logits in float32 are 5 GB
    part = slice(0, 256)
    exact = [hidden[part].detach().double().requires_grad_(), linear.weight.detach().double()]
    # Rounded to bfloat16 as an engine does; the gradient passes through the rounding.
    logits = exact[0] @ exact[1].T
    logits = logits + (logits.bfloat16().double() - logits).detach()
    distribution = torch.log_softmax(logits / 0.7, -1)
    values = [distribution.gather(-1, target[part, None]).squeeze(-1), -(distribution.exp() * distribution).sum(-1)]
    torch.testing.assert_close(found[0][part].double(), values[0], atol=0.05, rtol=0.01)
    (expected,) = torch.autograd.grad(values[: len(outputs)], exact[0], [upstream[part].double()] * len(outputs))
    assert distance(gradients[0][part], expected) < 0.02
