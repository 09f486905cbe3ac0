"""Sequence parallelism (Ulysses, arXiv 2309.14509): several ranks share a row that is too long for one of them.

Each rank has a slice of the row's tokens in everything but attention. There DeepSpeed's exchange gives each rank all
tokens for a part of the heads, and back. What is said of sampled tokens is put together at the end, so that each of the
ranks has the whole row's numbers and computes the same loss; backwards each takes the gradient of its own slice.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from torl.errors import DataError
from torl.learner.model.attention import PACKED, packed_attention


@dataclass(frozen=True, slots=True)
class RowSlice:
    """What one rank has of a row, which has been filled up to a multiple of the ranks by a sample of its own."""

    token_ids: Tensor
    position_ids: Tensor
    sample_lengths: tuple[int, ...]  # of the whole row, the filling included
    counts: list[int]  # how many of the row's predictors, which ascend, lie with each rank
    first: int  # index of this rank's first
    predictors: Tensor  # this rank's, as places in the slice


class SequenceParallel:
    """The ranks that share rows with this one: neighbors, `size` of them."""

    def __init__(self, size: int) -> None:
        """Make the groups. Every rank must come here together; `size` divides their number."""
        self.size = size
        rank = dist.get_rank()
        for first in range(0, dist.get_world_size(), size):
            group = dist.new_group(list(range(first, first + size)))
            if first <= rank < first + size:
                self.group = group
        self.rank = rank % size

    def share_attention(self, causal_lm: Any) -> Any:
        """Let a model exchange tokens for heads in its attention.

        Raises:
            DataError: its heads cannot be divided by the ranks, or its attention is not plain and packed.
        """
        from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF
        from transformers import AttentionInterface

        config = causal_lm.config
        if config._attn_implementation != PACKED:
            raise DataError("learner.sequence_parallel needs model.attention = 'sdpa' and a model without windows")
        heads = config.num_attention_heads
        width = getattr(config, "head_dim", None) or config.hidden_size // heads
        try:
            attention = UlyssesSPAttentionHF(
                packed_attention,
                batch_size=1,
                attn_head_count=heads,
                attn_head_size=width,
                kv_head_count=config.num_key_value_heads,
                num_hidden_layers=config.num_hidden_layers,
                process_group=self.group,
                seq_length_is_variable=True,
            )
        except ValueError as error:
            raise DataError(f"learner.sequence_parallel = {self.size} does not fit this model: {error}") from error
        name = f"{PACKED}_{heads}_{config.num_key_value_heads}_{width}"
        AttentionInterface.register(name, attention)
        causal_lm.set_attn_implementation(name)
        return causal_lm

    def slice(
        self, token_ids_N: Tensor, position_ids_N: Tensor, sample_lengths: tuple[int, ...], predictor_K: Tensor
    ) -> RowSlice:
        """This rank's part of a row."""
        filling = -len(token_ids_N) % self.size
        if filling:
            token_ids_N = torch.cat([token_ids_N, token_ids_N.new_zeros(filling)])
            position_ids_N = torch.cat([position_ids_N, torch.arange(filling, device=position_ids_N.device)])
            sample_lengths = (*sample_lengths, filling)
        own = len(token_ids_N) // self.size
        start, stop = self.rank * own, (self.rank + 1) * own
        counts = torch.bincount(predictor_K // own, minlength=self.size).tolist()
        first = sum(counts[: self.rank])
        predictors = predictor_K[first : first + counts[self.rank]] - start
        ids, positions = token_ids_N[start:stop], position_ids_N[start:stop]
        return RowSlice(ids, positions, sample_lengths, counts, first, predictors)

    def all_gather(self, own: Tensor, counts: list[int]) -> Tensor:
        """From numbers (..., own count) of this rank to those of the row (..., K), on every rank.

        Every rank must compute the same loss from them: backwards each takes its own part, and nothing is exchanged.
        """
        whole: Tensor = _Whole.apply(own, counts, self)  # type: ignore[no-untyped-call]
        return whole


class _Whole(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, own: Tensor, counts: list[int], parallel: SequenceParallel) -> Tensor:
        ctx.first, ctx.count = sum(counts[: parallel.rank]), counts[parallel.rank]
        filled = torch.nn.functional.pad(own, (0, max(counts) - own.shape[-1])).contiguous()
        parts = [torch.empty_like(filled) for _ in counts]
        dist.all_gather(parts, filled, group=parallel.group)
        return torch.cat([part[..., :count] for part, count in zip(parts, counts, strict=True)], dim=-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient[..., ctx.first : ctx.first + ctx.count].contiguous(), None, None
