"""A causal language model that answers one question: the log-probability of given tokens at given places."""

from typing import Any

import torch
from torch import Tensor, nn

from torl.learner.model.attention import PACKED, PackedSamples
from torl.learner.model.head import EntropyMode, LogprobHead
from torl.learner.model.sequence_parallel import SequenceParallel

# Settings of a head that does more than one matrix product; models with them need more than `head(hidden)`.
_HEAD_SETTINGS = ("final_logit_softcapping", "logit_scale", "logits_scaling", "lm_head_multiplier")


class Policy(nn.Module):
    """Wraps a Hugging Face causal language model; its parameters are named `causal_lm.*`."""

    def __init__(
        self,
        causal_lm: Any,
        *,
        max_stored_logits: int,
        logits_dtype: torch.dtype | None = None,
        parallel: SequenceParallel | None = None,
    ) -> None:
        """Give the model a head that holds at most `max_stored_logits` logits from forward to backward.

        `logits_dtype`: what logits are rounded to; the precision of the weights when unset.
        `parallel`: the ranks that share each row; every one of them must call this with the same rows.
        """
        super().__init__()
        for setting in _HEAD_SETTINGS:
            if getattr(causal_lm.config, setting, None) not in (None, 1, 1.0):
                raise ValueError(
                    f"models with {setting} in their config are not supported: torl applies the plain head"
                )
        head = LogprobHead(causal_lm.get_output_embeddings(), max_stored_logits, logits_dtype)
        causal_lm.set_output_embeddings(head)
        self.causal_lm = causal_lm if parallel is None else parallel.share_attention(causal_lm)
        self.parallel = parallel

    def forward(
        self,
        token_ids_N: Tensor,
        position_ids_N: Tensor,
        predictor_K: Tensor,
        target_K: Tensor,
        temperature: float,
        sample_lengths: tuple[int, ...],
        entropy: EntropyMode = "watched",
    ) -> tuple[Tensor, Tensor]:
        """Log-probability of each target after `temperature`, and the entropy there, as `LogprobHead` has it.

        Both float32, shape (K,). K may not be 0.
        """
        head = self.causal_lm.get_output_embeddings()
        if self.parallel is None:
            hidden_ND = packed_hidden_states(self.causal_lm, token_ids_N, position_ids_N, sample_lengths)
            logprob_K, entropy_K = head(hidden_ND.index_select(0, predictor_K), target_K, temperature, entropy)
            return logprob_K, entropy_K
        own = self.parallel.slice(token_ids_N, position_ids_N, sample_lengths, predictor_K)
        hidden_ND = packed_hidden_states(self.causal_lm, own.token_ids, own.position_ids, own.sample_lengths)
        targets = target_K[own.first : own.first + len(own.predictors)]
        found = head(hidden_ND.index_select(0, own.predictors), targets, temperature, entropy)
        logprob_K, entropy_K = self.parallel.all_gather(torch.stack(found), own.counts).unbind()
        return logprob_K, entropy_K


def packed_hidden_states(
    causal_lm: Any, token_ids_N: Tensor, position_ids_N: Tensor, sample_lengths: tuple[int, ...]
) -> Tensor:
    """The last hidden states of a packed row, shape (N, D).

    Without `use_cache=False` transformers would not look for packed samples in the position ids.
    """
    attention_arguments: dict[str, Any] = {}
    if causal_lm.config._attn_implementation.startswith(PACKED):
        attention_arguments["samples"] = PackedSamples.from_lengths(sample_lengths, token_ids_N.device)
    hidden_states: Tensor = causal_lm.base_model(
        input_ids=token_ids_N[None],
        position_ids=position_ids_N[None],
        use_cache=False,
        **attention_arguments,
    ).last_hidden_state
    return hidden_states[0]
