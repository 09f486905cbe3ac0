"""The head against plain torch: values and gradients, in pieces of any size and in either precision."""

import pytest
import torch
from torch import Tensor, nn

from torl.learner.model.head import LogprobHead, _parts

VOCABULARY, WIDTH, TOKENS = 57, 16, 23


def plain(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, temperature: float
) -> tuple[Tensor, Tensor]:
    """Log-probabilities and entropies with all logits in memory."""
    distribution = torch.log_softmax(nn.functional.linear(hidden, weight, bias) / temperature, -1)
    entropy = -(distribution.exp() * distribution).sum(-1)
    return distribution.gather(-1, target[:, None]).squeeze(-1), entropy


def inputs(dtype: torch.dtype = torch.float32, tokens: int = TOKENS) -> tuple[Tensor, nn.Linear, Tensor, Tensor]:
    """Hidden states, a head, targets, and the gradient by the log-probabilities."""
    generator = torch.Generator().manual_seed(0)
    head = nn.Linear(WIDTH, VOCABULARY).to(dtype)
    for parameter in head.parameters():
        nn.init.normal_(parameter, generator=generator)
    hidden = torch.randn(tokens, WIDTH, generator=generator).to(dtype).requires_grad_()
    target = torch.randint(VOCABULARY, (tokens,), generator=generator)
    return hidden, head, target, torch.randn(tokens, generator=generator)


@pytest.mark.parametrize("max_stored_logits", [1, 3 * TOKENS, 20 * TOKENS, 1 << 20])
@pytest.mark.parametrize("temperature", [1.0, 0.6])
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients_are_those_of_plain_torch(max_stored_logits: int, temperature: float, bias: bool) -> None:
    hidden, linear, target, upstream = inputs()
    if not bias:
        linear.register_parameter("bias", None)
    head = LogprobHead(linear, max_stored_logits)
    found = head(hidden, target, temperature, "train")
    own = [hidden, *head.parameters()]
    gradients = torch.autograd.grad([found[0], found[1]], own, [upstream, upstream.flip(0)])
    exact = [each.detach().double().requires_grad_() for each in own]
    expected = plain(exact[0], exact[1], exact[2] if bias else None, target, temperature)
    exact_gradients = torch.autograd.grad(expected, exact, [upstream.double(), upstream.flip(0).double()])
    for one, other in zip([*found, *gradients], [*expected, *exact_gradients], strict=True):
        # A sum of float32 is as exact as its largest terms allow, however small it is itself.
        torch.testing.assert_close(one.double(), other, atol=1e-5 * other.detach().abs().max().item(), rtol=0.0)


def test_an_entropy_that_is_only_watched_has_no_gradient() -> None:
    hidden, linear, target, _ = inputs()
    logprob, entropy = LogprobHead(linear, VOCABULARY)(hidden, target)
    assert logprob.requires_grad
    assert not entropy.requires_grad
    torch.testing.assert_close(entropy, plain(hidden, linear.weight, linear.bias, target, 1.0)[1], atol=1e-5, rtol=1e-5)


def test_entropy_that_is_off_is_nan() -> None:
    hidden, linear, target, _ = inputs()
    logprob, entropy = LogprobHead(linear, VOCABULARY)(hidden, target, 0.6, "off")
    assert torch.isnan(entropy).all()
    torch.testing.assert_close(logprob, LogprobHead(linear, VOCABULARY)(hidden, target, 0.6)[0])


def test_second_backward_equals_the_first() -> None:
    """Logits that were kept are worked on in place."""
    hidden, linear, target, upstream = inputs()
    logprob, _ = LogprobHead(linear, 10 * VOCABULARY)(hidden, target)
    first, second = (torch.autograd.grad(logprob, hidden, upstream, retain_graph=True)[0] for _ in range(2))
    torch.testing.assert_close(first, second)


def test_logits_far_from_zero_are_summed_without_overflow() -> None:
    hidden, linear, target, _ = inputs()
    with torch.no_grad():
        linear.weight *= 200
    logprob, entropy = LogprobHead(linear, 3 * TOKENS)(hidden, target)
    exact = [each.detach().double().requires_grad_() for each in (hidden, linear.weight, linear.bias)]
    expected = plain(*exact, target, 1.0)
    assert float(expected[0].detach().min()) < -1000
    torch.testing.assert_close(logprob.double(), expected[0], atol=1e-3, rtol=1e-5)
    torch.testing.assert_close(entropy.double(), expected[1], atol=1e-3, rtol=1e-5)


@pytest.mark.parametrize("max_stored_logits", [1, 20 * TOKENS, 1 << 20])
def test_impossible_tokens_have_no_probability_and_no_gradient(max_stored_logits: int) -> None:
    """A complete part of them at the beginning, and single ones."""
    hidden, linear, target, upstream = inputs()
    possible = torch.arange(VOCABULARY) >= 20
    possible[40] = False
    target = 20 + target % 20
    with torch.no_grad():
        linear.bias[~possible] = -torch.inf
    found = LogprobHead(linear, max_stored_logits)(hidden, target, 0.6, "train")
    own = [hidden, *linear.parameters()]
    gradients = torch.autograd.grad(list(found), own, [upstream, upstream.flip(0)])
    kept = [hidden.detach(), linear.weight.detach()[possible], linear.bias.detach()[possible]]
    exact = [each.double().requires_grad_() for each in kept]
    index = possible.cumsum(0) - 1  # of a possible token among them
    expected = plain(exact[0], exact[1], exact[2], index[target], 0.6)
    exact_gradients = list(torch.autograd.grad(expected, exact, [upstream.double(), upstream.flip(0).double()]))
    for number in (1, 2):
        whole = torch.zeros_like(gradients[number], dtype=torch.float64)
        whole[possible] = exact_gradients[number]
        exact_gradients[number] = whole
    for one, other in zip([*found, *gradients], [*expected, *exact_gradients], strict=True):
        torch.testing.assert_close(one.double(), other, atol=1e-5 * other.detach().abs().max().item(), rtol=0.0)


def test_frozen_head_passes_gradients() -> None:
    hidden, linear, target, upstream = inputs()
    head = LogprobHead(linear.requires_grad_(False), VOCABULARY)
    head(hidden, target)[0].backward(upstream)
    expected = torch.autograd.grad(plain(hidden, linear.weight, linear.bias, target, 1.0)[0], hidden, upstream)[0]
    torch.testing.assert_close(hidden.grad, expected, atol=1e-5, rtol=1e-5)
    assert linear.weight.grad is None


def test_a_gradient_in_bfloat16_is_a_sum_in_float32() -> None:
    """A product of 2,000 pieces: torch's own would be rounded to 8 bits after each of them."""
    hidden, linear, target, upstream = inputs(torch.bfloat16, tokens=2000)
    LogprobHead(linear, 1)(hidden, target)[0].backward(upstream)
    whole = linear.weight.grad
    assert whole is not None
    assert whole.dtype == torch.bfloat16
    exact = linear.weight.detach().double().requires_grad_()
    logprob, _ = plain(hidden.detach().double(), exact, linear.bias.detach().double(), target, 1.0)
    logprob.backward(upstream.double())
    assert exact.grad is not None
    error = float((whole.double() - exact.grad).norm() / exact.grad.norm())
    assert error < 0.006  # logits and the gradient by them are rounded to bfloat16, each to 2 ** -9

    linear.weight.grad = None
    for part in range(2000):
        piece = slice(part, part + 1)
        plain(hidden[piece], linear.weight, linear.bias, target[piece], 1.0)[0].backward(upstream[piece])
    rounded = linear.weight.grad
    assert rounded is not None
    assert float((rounded.double() - exact.grad).norm() / exact.grad.norm()) > 3 * error


@pytest.mark.parametrize("max_stored_logits", [1, 1 << 20])
def test_logits_in_float32_are_as_exact_as_the_products(max_stored_logits: int) -> None:
    """Weights and hidden states in bfloat16, as an engine with such a head has them."""
    hidden, linear, target, upstream = inputs(torch.bfloat16)
    exact = [each.detach().double().requires_grad_() for each in (hidden, linear.weight, linear.bias)]
    expected = plain(*exact, target, 0.6)
    expected[0].backward(upstream.double())

    def error(logits_dtype: torch.dtype | None) -> float:
        found = LogprobHead(linear, max_stored_logits, logits_dtype)(hidden, target, 0.6)
        hidden.grad = None
        found[0].backward(upstream)
        assert hidden.grad is not None
        torch.testing.assert_close(hidden.grad.double(), exact[0].grad, atol=0.03, rtol=0.03)
        return float((found[0].double() - expected[0]).detach().abs().max())

    assert error(torch.float32) < 1e-5
    assert error(None) > 1e-3


def test_parts_of_a_row_are_aligned_and_cover_the_vocabulary() -> None:
    """A GPU multiplies matrices of other widths at half the speed."""
    for tokens, vocabulary in [(12_345, 151_936), (999, 32_001), (7, 300), (1 << 20, 40)]:
        weight = torch.empty(vocabulary, 1)
        parts = list(_parts(torch.empty(tokens, 0), weight, 1 << 24))
        assert torch.cat([torch.arange(vocabulary)[part] for part in parts]).equal(torch.arange(vocabulary))
        sizes = [part.stop - part.start for part in parts]
        assert max(sizes) * tokens <= 1 << 24
        assert tokens == 1 << 20 or len(sizes) == 1 or sizes[0] % 128 == 0


def test_no_tokens_have_no_values_and_zero_gradients() -> None:
    """The slice of a rank that shares a row may contain no sampled token."""
    _, linear, _, _ = inputs()
    hidden = torch.empty(0, WIDTH, requires_grad=True)
    found = LogprobHead(linear, 1 << 20)(hidden, torch.empty(0, dtype=torch.int64), 0.6, "train")
    assert [each.shape for each in found] == [(0,), (0,)]
    gradients = torch.autograd.grad(found[0].sum() + found[1].sum(), [hidden, *linear.parameters()])
    assert all(not gradient.any() for gradient in gradients)


def test_without_targets_it_is_the_head_it_was() -> None:
    hidden, linear, _, _ = inputs()
    assert torch.equal(LogprobHead(linear, 1)(hidden), linear(hidden))
