"""A critic: a causal language model whose head says one number, the reward that is still to come."""

from typing import Any

import torch
from torch import Tensor, nn

from torl.learner.model.policy import packed_hidden_states
from torl.learner.model.sequence_parallel import SequenceParallel


class Critic(nn.Module):
    """The trunk of a Hugging Face causal language model under a linear value head, which begins at zero.

    A critic that has learned nothing says 0, so that the first advantages are the plain returns.
    """

    def __init__(self, causal_lm: Any, *, parallel: SequenceParallel | None = None) -> None:
        """Take the model's trunk; its language head is let go. `parallel` is that of `Policy`."""
        super().__init__()
        embedding = causal_lm.get_input_embeddings()
        self.trunk = (causal_lm if parallel is None else parallel.share_attention(causal_lm)).base_model
        self.parallel = parallel
        self.value_head = nn.Linear(embedding.embedding_dim, 1, dtype=embedding.weight.dtype)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)

    def forward(
        self, token_ids_N: Tensor, position_ids_N: Tensor, predictor_K: Tensor, sample_lengths: tuple[int, ...]
    ) -> Tensor:
        """The value of the text up to each predictor, before its target is sampled: float32, shape (K,)."""
        if self.parallel is None:
            hidden_ND = packed_hidden_states(self.trunk, token_ids_N, position_ids_N, sample_lengths)
            return self._values(hidden_ND, predictor_K)
        own = self.parallel.slice(token_ids_N, position_ids_N, sample_lengths, predictor_K)
        hidden_ND = packed_hidden_states(self.trunk, own.token_ids, own.position_ids, own.sample_lengths)
        return self.parallel.all_gather(self._values(hidden_ND, own.predictors), own.counts)

    def _values(self, hidden_ND: Tensor, predictor_K: Tensor) -> Tensor:
        values: Tensor = self.value_head(hidden_ND.index_select(0, predictor_K)).squeeze(-1)
        return values.to(torch.float32)
