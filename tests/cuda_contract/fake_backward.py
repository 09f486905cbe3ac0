"""A backward pass in Python: autograd's own needs a thread for each GPU of a driver, even for tensors without data.

It runs the same graph in the same order: nodes with the highest sequence number first, and gradients of leaves at once,
before a module that was gathered for them is released.
"""

import heapq
from collections import Counter, defaultdict
from itertools import count
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction


def backward(loss: Tensor, *_: Any, **__: Any) -> None:
    """Accumulate the gradients of a scalar in the leaves of its graph, as `Tensor.backward` does.

    Raises:
        AssertionError: A gradient is on another device than its tensor.
    """
    root: Any = loss.grad_fn
    waiting = _count_edges(root)
    gradients: dict[Any, dict[int, Tensor]] = defaultdict(dict)
    gradients[root][loss.output_nr] = torch.ones_like(loss)
    numbers = count()
    ready = [(0, next(numbers), root)]
    with torch.no_grad():
        while ready:
            _, _, node = heapq.heappop(ready)
            for (target, index), gradient in zip(
                node.next_functions, _apply(node, gradients.pop(node, {})), strict=False
            ):
                if target is None:
                    continue
                if gradient is not None:
                    _add(gradients[target], index, gradient, target._input_metadata[index])
                waiting[target] -= 1
                if not waiting[target]:
                    heapq.heappush(ready, (-target._sequence_nr(), next(numbers), target))


def _count_edges(root: Any) -> Counter[Any]:
    """Return the number of edges to each node of a graph."""
    edges: Counter[Any] = Counter()
    found, todo = {root}, [root]
    while todo:
        for target, _ in todo.pop().next_functions:
            if target is not None:
                edges[target] += 1
                if target not in found:
                    found.add(target)
                    todo.append(target)
    return edges


def _apply(node: Any, received: dict[int, Tensor]) -> tuple[Tensor | None, ...]:
    """Return the gradients of a node's inputs. Its hooks run as well."""
    outputs = node._input_metadata
    if not received:
        return (None,) * len(node.next_functions)
    gradients: list[Tensor | None] = [received.get(index) for index in range(len(outputs))]
    if isinstance(node, BackwardCFunction):
        gradients = [
            torch.zeros(output.shape, dtype=output.dtype, device=output.device) if gradient is None else gradient
            for gradient, output in zip(gradients, outputs, strict=True)
        ]
        returned: Any = node.apply(*gradients)
    else:
        returned = node(*gradients)
    return returned if isinstance(returned, tuple) else (returned,)


def _add(gradients: dict[int, Tensor], index: int, gradient: Tensor, tensor: Any) -> None:
    assert gradient.device == tensor.device, f"a gradient on {gradient.device} of a tensor on {tensor.device}"
    if gradient.shape != tensor.shape:
        gradient = gradient.sum_to_size(tensor.shape)
    gradient = gradient.to(tensor.dtype)
    gradients[index] = gradients[index] + gradient if index in gradients else gradient
