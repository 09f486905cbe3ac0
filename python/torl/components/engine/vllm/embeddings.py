"""Embeddings and output heads of a model in vLLM's worker: the largest tensors of many models, in one copy each."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn


def load_embeddings_in_place(model: "nn.Module") -> None:
    """Take embeddings and heads out of a layerwise reload that has begun: they are loaded into the tensors in use.

    vLLM would load them into new tensors and copy these. Only `pack_heads` processes them.
    """
    from vllm.model_executor.model_loader.reload.layerwise import _place_kernel_tensors, get_layerwise_info

    for module in _embeddings(model):
        info = get_layerwise_info(module)
        _place_kernel_tensors(module, info)
        info.reset()


def pack_heads(model: "nn.Module") -> None:
    """Pack the output heads of a model on a CPU again, from their present weights.

    vLLM keeps a packed copy of every embedding for matrix products, which only heads compute.
    """
    from torch.nn.functional import linear
    from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    modules = list(_embeddings(model))
    heads = [module for module in modules if isinstance(module, ParallelLMHead)] or modules
    for module in modules:
        module.cpu_linear = linear  # frees the copy
    for head in heads:
        head.quant_method.process_weights_after_loading(head)


def _embeddings(model: "nn.Module") -> "Iterator[Any]":
    """Yield the embeddings and heads with plain weights."""
    from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod, VocabParallelEmbedding

    for module in model.modules():
        if isinstance(module, VocabParallelEmbedding) and type(module.quant_method) is UnquantizedEmbeddingMethod:
            yield module
