"""An engine that writes down what its workers hold, and what they should hold by a checkpoint. Chosen by its place."""

import hashlib
import json
from typing import TYPE_CHECKING, Any

from torl.components.engine import EngineSetup, VllmReplicas
from torl.components.engine.vllm.options import VllmOptions
from torl.components.weights.rendezvous import Rendezvous

if TYPE_CHECKING:
    from torch import Tensor

FILE = "held_weights.jsonl"


class WatchedReplicas(VllmReplicas):
    """vLLM engines; after weights arrived, vLLM's own checksums of every worker are written to the log directory."""

    def __init__(self, setup: EngineSetup, options: VllmOptions) -> None:
        super().__init__(setup, options)
        self._file = setup.log_path.with_name(FILE)

    async def receive_weights(self, rendezvous: Rendezvous, policy_version: int, *, first: int = 0) -> None:
        """See `Engine`."""
        await super().receive_weights(rendezvous, policy_version, first=first)
        engines: list[Any] = [await engine.weight_checksums() for engine in self.engines]  # type: ignore[attr-defined]
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"version": policy_version, "engines": engines}) + "\n")


def expected_checksums(weights: "dict[str, Tensor]", worker: int, workers: int) -> dict[str, str]:
    """vLLM's checksums of a worker that holds these weights of a model of transformers, by their names in vLLM.

    Of all that keeps its shape there: norms, and the worker's rows of the embedding. On a CPU vLLM keeps the weights of
    linear layers packed, where its checksums do not see them: logprobs say what those are.
    """
    found = {}
    for name, weight in weights.items():
        if name == "model.embed_tokens.weight":
            weight = weight.chunk(workers)[worker]
        elif "norm" not in name:
            continue
        found[f"dp0:pp0:pcp0:tp{worker}:{name}"] = hashlib.sha256(weight.contiguous().numpy().tobytes()).hexdigest()
    return found
