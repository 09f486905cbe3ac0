"""Sequence parallelism (Ulysses, arXiv 2309.14509): several ranks share a row that is too long for one of them.

Each rank has a slice of the row's tokens in all layers but attention. There, DeepSpeed's all-to-all gives each rank all
tokens for a part of the heads, and the reverse. The outputs for sampled tokens are gathered at the end, so that all
ranks compute the same loss of the complete row; in the backward pass, each takes the gradient of its slice.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.autograd.function import once_differentiable

from torl.base.errors import DataError
from torl.learner.model.attention import PACKED, packed_attention
from torl.learner.rows import RowPieces


@dataclass(frozen=True, slots=True)
class RowSlice:
    """A rank's slice of a row that is padded to a multiple of the number of ranks. The padding is a separate sample."""

    token_ids: Tensor
    position_ids: Tensor
    pieces: RowPieces
    """Pieces of the complete row, including the padding."""
    counts: list[int]
    """Number of predictors in the slice of each rank."""
    first: int
    """Index in the row's predictors, which ascend, of the first one in this slice."""
    predictors: Tensor
    """Indices of this rank's predictors in the slice."""


class SequenceParallel:
    """The neighboring ranks that share rows with this one."""

    def __init__(self, size: int) -> None:
        """Create groups of `size` ranks, a divisor of their number. All ranks must call this together."""
        self.size = size
        rank = dist.get_rank()
        for first in range(0, dist.get_world_size(), size):
            group = dist.new_group(list(range(first, first + size)))
            if first <= rank < first + size:
                self.group = group
        self.rank = rank % size

    def share_attention(self, causal_lm: Any) -> Any:
        """Make a model exchange tokens for heads in its attention, and return it.

        Raises:
            DataError: The number of heads is not divisible by the number of ranks, or the model does not use packed
                attention.
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

    def slice(self, token_ids_N: Tensor, position_ids_N: Tensor, pieces: RowPieces, predictor_K: Tensor) -> RowSlice:
        """Return this rank's slice of a row. For arguments, see `Policy.forward`."""
        padding = -len(token_ids_N) % self.size
        if padding:
            token_ids_N = torch.cat([token_ids_N, token_ids_N.new_zeros(padding)])
            position_ids_N = torch.cat([position_ids_N, torch.arange(padding, device=position_ids_N.device)])
        length = len(token_ids_N) // self.size
        start, stop = self.rank * length, (self.rank + 1) * length
        counts = torch.bincount(predictor_K // length, minlength=self.size).tolist()
        first = sum(counts[: self.rank])
        predictors = predictor_K[first : first + counts[self.rank]] - start
        ids, positions = token_ids_N[start:stop], position_ids_N[start:stop]
        return RowSlice(ids, positions, pieces.with_padding(padding), counts, first, predictors)

    def all_gather(self, part: Tensor, counts: list[int]) -> Tensor:
        """Gather the outputs of all ranks for a row, on every rank.

        All ranks must compute the same loss from them. In the backward pass, each takes its part of the gradient
        without communication.

        Args:
            part: Outputs of this rank, shape (..., number of its predictors).
            counts: Number of predictors of each rank.

        Returns:
            Outputs of the row, shape (..., K).
        """
        gathered: Tensor = _AllGather.apply(part, counts, self)  # type: ignore[no-untyped-call]
        return gathered


class _AllGather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, part: Tensor, counts: list[int], parallel: SequenceParallel) -> Tensor:
        ctx.first, ctx.count = sum(counts[: parallel.rank]), counts[parallel.rank]
        padded = torch.nn.functional.pad(part, (0, max(counts) - part.shape[-1])).contiguous()
        parts = [torch.empty_like(padded) for _ in counts]
        dist.all_gather(parts, padded, group=parallel.group)
        return torch.cat([part[..., :count] for part, count in zip(parts, counts, strict=True)], dim=-1)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return gradient[..., ctx.first : ctx.first + ctx.count].contiguous(), None, None
