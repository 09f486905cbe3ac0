"""A critic: a causal language model whose head says one number, the reward that is still to come."""

from typing import Any

import torch
from torch import Tensor, nn

from torl.learner.policy import packed_hidden_states


class Critic(nn.Module):
    """The trunk of a Hugging Face causal language model under a linear value head, which begins at zero.

    A critic that has learned nothing says 0, so that the first advantages are the plain returns.
    """

    def __init__(self, causal_lm: Any) -> None:
        """Take the model's trunk; its language head is let go."""
        super().__init__()
        embedding = causal_lm.get_input_embeddings()
        self.trunk = causal_lm.base_model
        self.value_head = nn.Linear(embedding.embedding_dim, 1, dtype=embedding.weight.dtype)
        nn.init.zeros_(self.value_head.weight)
        nn.init.zeros_(self.value_head.bias)

    def forward(
        self, token_ids_N: Tensor, position_ids_N: Tensor, predictor_K: Tensor, sample_lengths: tuple[int, ...]
    ) -> Tensor:
        """The value of the text up to each predictor, before its target is sampled: float32, shape (K,)."""
        hidden_ND = packed_hidden_states(self.trunk, token_ids_N, position_ids_N, sample_lengths)
        values: Tensor = self.value_head(hidden_ND.index_select(0, predictor_K)).squeeze(-1)
        return values.to(torch.float32)
