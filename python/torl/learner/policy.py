"""A causal language model that answers one question: the log-probability of given tokens at given places.

Full-vocabulary logits of a long row do not fit in memory (4,096 tokens of a 150 k vocabulary are 2.5 GB in
float32, several times over in the backward pass). So the head runs only where a token was sampled, in chunks,
and each chunk is computed again in the backward pass instead of being kept.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from torl.learner.attention import PACKED_SDPA

CHUNK_LOGITS = 1 << 25  # logits computed at once: 128 MiB in float32

# Settings of a head that does more than one matrix product; models with them need more than `head(hidden)`.
_HEAD_SETTINGS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")


class Policy(nn.Module):
    """Wraps a Hugging Face causal language model; its parameters are named `causal_lm.*`."""

    def __init__(self, causal_lm: Any, *, chunk_logits: int = CHUNK_LOGITS) -> None:
        super().__init__()
        for setting in _HEAD_SETTINGS:
            if getattr(causal_lm.config, setting, None) not in (None, 1, 1.0):
                raise ValueError(
                    f"models with {setting} in their config are not supported: torl applies the plain head"
                )
        self.causal_lm = causal_lm
        self.chunk_logits = chunk_logits

    def forward(
        self,
        token_ids_N: Tensor,
        position_ids_N: Tensor,
        predictor_K: Tensor,
        target_K: Tensor,
        temperature: float,
        sample_lengths: tuple[int, ...],
        entropy_gradient: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Log-probability of each target after `temperature`, and the entropy there (with a gradient if asked for).

        Both float32, shape (K,). K may not be 0.
        """
        hidden_ND = packed_hidden_states(self.causal_lm, token_ids_N, position_ids_N, sample_lengths)
        hidden_KD = hidden_ND.index_select(0, predictor_K)
        head = self.causal_lm.get_output_embeddings()
        chunk = max(1, self.chunk_logits // self.causal_lm.config.vocab_size)
        logprobs, entropies = [], []
        for start in range(0, len(predictor_K), chunk):
            piece = hidden_KD[start : start + chunk]
            target = target_K[start : start + chunk]
            logprob, entropy = checkpoint(
                _chunk_logprobs,
                head,
                piece,
                target,
                temperature,
                entropy_gradient,
                use_reentrant=False,
                preserve_rng_state=False,
            )
            logprobs.append(logprob)
            entropies.append(entropy)
        return torch.cat(logprobs), torch.cat(entropies)


def packed_hidden_states(
    causal_lm: Any, token_ids_N: Tensor, position_ids_N: Tensor, sample_lengths: tuple[int, ...]
) -> Tensor:
    """The last hidden states of a packed row, shape (N, D).

    Without `use_cache=False` transformers would not look for packed samples in the position ids.
    """
    attention_arguments: dict[str, Any] = {}
    if causal_lm.config._attn_implementation == PACKED_SDPA:
        attention_arguments["sample_lengths"] = sample_lengths
    hidden_states: Tensor = causal_lm.base_model(
        input_ids=token_ids_N[None],
        position_ids=position_ids_N[None],
        use_cache=False,
        **attention_arguments,
    ).last_hidden_state
    return hidden_states[0]


def _chunk_logprobs(
    head: nn.Module, hidden_KD: Tensor, target_K: Tensor, temperature: float, entropy_gradient: bool
) -> tuple[Tensor, Tensor]:
    logits_KV = head(hidden_KD).float() / temperature
    normalizer_K = torch.logsumexp(logits_KV, dim=-1)
    logprob_K = logits_KV.gather(-1, target_K[:, None]).squeeze(-1) - normalizer_K
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        expected_logit_K = (torch.softmax(logits_KV, dim=-1) * logits_KV).sum(-1)
        entropy_K = normalizer_K - expected_logit_K
    return logprob_K, entropy_K
