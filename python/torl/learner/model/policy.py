"""Policies and critics: a causal language model with log-probabilities of given tokens, or with a value head."""

from typing import Any

import torch
from torch import Tensor, nn

from torl.components.hub.models import untrainable_reason
from torl.learner.model.attention import PACKED, PackedPieces, can_share_prompts, gather_tokens
from torl.learner.model.head import EntropyMode, LogprobHead
from torl.learner.model.sequence_parallel import SequenceParallel
from torl.learner.rows import RowPieces


class Policy(nn.Module):
    """A wrapper of a Hugging Face causal language model, whose parameters are named `causal_lm.*`."""

    def __init__(
        self,
        causal_lm: Any,
        *,
        max_stored_logits: int,
        logits_dtype: torch.dtype | None = None,
        parallel: SequenceParallel | None = None,
    ) -> None:
        """Wrap a model and replace its head.

        Args:
            causal_lm: Model.
            max_stored_logits: Maximum number of logits that the head stores for the backward pass.
            logits_dtype: Precision that logits are rounded to. Defaults to the precision of the weights.
            parallel: Ranks that share each row. All of them must call this model with the same rows.
        """
        super().__init__()
        if reason := untrainable_reason(causal_lm.config):
            raise ValueError(f"a {causal_lm.config.model_type} model cannot be trained: {reason}")
        head = LogprobHead(causal_lm.get_output_embeddings(), max_stored_logits, logits_dtype)
        causal_lm.set_output_embeddings(head)
        self.causal_lm = causal_lm if parallel is None else parallel.share_attention(causal_lm)
        self.parallel = parallel

    @property
    def shares_prompts(self) -> bool:
        """Whether the samples of a row can share a prompt: other attention separates them by their positions."""
        return can_share_prompts(self.causal_lm)

    def forward(
        self,
        token_ids_N: Tensor,
        position_ids_N: Tensor,
        predictor_K: Tensor,
        target_K: Tensor,
        temperature: float,
        pieces: RowPieces,
        entropy: EntropyMode = "log",
    ) -> tuple[Tensor, Tensor]:
        """Return the log-probability of each target and the entropy of its distribution, float32, shape (K,).

        Args:
            token_ids_N: Tokens of the row.
            position_ids_N: Positions in the samples.
            predictor_K: Index in the row of the token that predicts each target. K must not be 0.
            target_K: Token ids.
            temperature: Temperature by which logits are divided.
            pieces: Pieces of the row.
            entropy: Computation of the entropy; see `LogprobHead`.
        """
        head = self.causal_lm.get_output_embeddings()
        if self.parallel is None:
            hidden_ND = packed_hidden_states(self.causal_lm, token_ids_N, position_ids_N, pieces)
            logprob_K, entropy_K = head(_at(hidden_ND, predictor_K, pieces), target_K, temperature, entropy)
            return logprob_K, entropy_K
        part = self.parallel.slice(token_ids_N, position_ids_N, pieces, predictor_K)
        hidden_ND = packed_hidden_states(self.causal_lm, part.token_ids, part.position_ids, part.pieces)
        targets = target_K[part.first : part.first + len(part.predictors)]
        outputs = head(_at(hidden_ND, part.predictors, part.pieces), targets, temperature, entropy)
        logprob_K, entropy_K = self.parallel.all_gather(torch.stack(outputs), part.counts).unbind()
        return logprob_K, entropy_K


def packed_hidden_states(causal_lm: Any, token_ids_N: Tensor, position_ids_N: Tensor, pieces: RowPieces) -> Tensor:
    """Return the last hidden states of a packed row, shape (N, D)."""
    attention_arguments: dict[str, Any] = {}
    if causal_lm.config._attn_implementation.startswith(PACKED):
        attention_arguments["pieces"] = PackedPieces.from_row(pieces, token_ids_N.device)
    hidden_states: Tensor = causal_lm.base_model(
        input_ids=token_ids_N[None],
        position_ids=position_ids_N[None],
        use_cache=False,  # otherwise transformers does not detect packed samples by their position ids
        **attention_arguments,
    ).last_hidden_state
    return hidden_states[0]


def _at(hidden_ND: Tensor, predictor_K: Tensor, pieces: RowPieces) -> Tensor:
    """Return the hidden states at the predictors. The last token of a shared prompt predicts several targets."""
    return gather_tokens(hidden_ND, predictor_K, 0) if pieces.share_prompts else hidden_ND.index_select(0, predictor_K)


class Critic(nn.Module):
    """The trunk of a Hugging Face causal language model with a linear value head, which is initialized to 0.

    An untrained critic predicts 0, so that the first advantages are the returns.
    """

    def __init__(self, causal_lm: Any, *, parallel: SequenceParallel | None = None) -> None:
        """Use the trunk of a model. Its language head is dropped. `parallel` is the same as for `Policy`."""
        super().__init__()
        embedding = causal_lm.get_input_embeddings()
        self.trunk = (causal_lm if parallel is None else parallel.share_attention(causal_lm)).base_model
        self.parallel = parallel
        weight = embedding.weight
        self.value_head = nn.Linear(embedding.embedding_dim, 1, dtype=weight.dtype, device=weight.device)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)

    @property
    def shares_prompts(self) -> bool:
        """Whether the samples of a row can share a prompt; see `Policy.shares_prompts`."""
        return can_share_prompts(self.trunk)

    def forward(self, token_ids_N: Tensor, position_ids_N: Tensor, predictor_K: Tensor, pieces: RowPieces) -> Tensor:
        """Return the value before each target is sampled, float32, shape (K,). For arguments, see `Policy.forward`."""
        if self.parallel is None:
            hidden_ND = packed_hidden_states(self.trunk, token_ids_N, position_ids_N, pieces)
            return self._values(_at(hidden_ND, predictor_K, pieces))
        part = self.parallel.slice(token_ids_N, position_ids_N, pieces, predictor_K)
        hidden_ND = packed_hidden_states(self.trunk, part.token_ids, part.position_ids, part.pieces)
        return self.parallel.all_gather(self._values(_at(hidden_ND, part.predictors, part.pieces)), part.counts)

    def _values(self, hidden_KD: Tensor) -> Tensor:
        values: Tensor = self.value_head(hidden_KD).squeeze(-1)
        return values.to(torch.float32)
