"""Bugs of the way of new weights to the engine."""

from collections.abc import Iterator
from typing import Any

from benchmarks.doctors.exhibits.catalog import exhibit

_PUBLISHER = "torl.learner.publishing:WeightPublisher.__init__"


@exhibit(
    _PUBLISHER,
    thread="huggingface/trl#5312",
    says="With vllm_enable_sleep_mode, vLLM sampled with old weights after the first synchronization.",
    truth=("stale-engine", "verify:logprobs"),
    side="learner",
)
def old_weights(original: Any) -> Any:
    """Send the weights of the first transfer each time."""

    def make(self: Any, weights: Any, *arguments: Any, **options: Any) -> None:
        kept: list[tuple[str, Any]] = []

        def first_weights() -> Iterator[tuple[str, Any]]:
            if not kept:
                kept.extend((name, tensor.clone()) for name, tensor in weights())
            yield from kept

        original(self, first_weights, *arguments, **options)

    return make


@exhibit(
    _PUBLISHER,
    thread="verl-project/verl#7495",
    says="The synchronization of weights sent the base model without its adapter: rollouts kept the initial policy.",
    truth=("stale-engine", "wrong-engine", "verify:logprobs"),
    side="learner",
    settings={"model.lora.rank": 16, "learner.learning_rate": 1e-3},
)
def missing_adapter(original: Any) -> Any:
    """Send the weights of the base model, without the adapters."""

    def make(self: Any, weights: Any, *arguments: Any, **options: Any) -> None:
        from torl.learner.model.lora import MergedWeight

        merged = MergedWeight.value

        def base(weight: MergedWeight) -> Any:
            return weight.base.detach()

        def base_weights() -> Iterator[tuple[str, Any]]:
            MergedWeight.value = base  # type: ignore[method-assign]
            try:
                yield from list(weights())
            finally:
                MergedWeight.value = merged  # type: ignore[method-assign]

        original(self, base_weights, *arguments, **options)

    return make


@exhibit(
    "torl.components.engine.vllm.weights:EngineWeights.receive",
    thread="vllm-project/vllm#9744",
    says="Cached prefixes were not updated with the weights, so that the new model ran with keys of the old one.",
    truth=("stale-engine", "numeric-gap", "wrong-engine", "verify:logprobs"),
    settings={
        "engine.arguments": "{ block_size = 32 }",
        "data.train": '{ name = "benchmarks.doctors.exhibits.data:few_problems" }',
    },
)
def old_prefixes(original: Any) -> Any:
    """Keep the cached prefixes of older weights."""

    class Llm:
        """vLLM without a reset of its prefix cache."""

        def __init__(self, llm: Any) -> None:
            self._llm = llm

        def __getattr__(self, name: str) -> Any:
            return getattr(self._llm, name)

        async def reset_prefix_cache(self, **options: Any) -> bool:
            """Reset nothing."""
            return True

    async def receive(self: Any, llm: Any, rendezvous: Any, version: int, **options: Any) -> None:
        await original(self, Llm(llm), rendezvous, version, **options)

    return receive
