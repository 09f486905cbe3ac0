"""Weights of an engine: in what order it pauses, takes and resumes, and which version sampled what."""

from collections.abc import Awaitable, Callable
from typing import Any

from torl.components.engine.vllm.arguments import EngineDevices
from torl.components.engine.vllm.options import VllmOptions
from torl.components.engine.vllm.weights import EngineWeights
from torl.components.weights.rendezvous import Rendezvous

RENDEZVOUS = Rendezvous("127.0.0.1", 1, receivers=1)
GPU = EngineDevices(on_cpu=False, ids=(0,))


class Calls:
    """Replaces vLLM's engine, and only takes down the requests."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def __getattr__(self, name: str) -> Callable[..., Awaitable[bool]]:
        async def called(*arguments: Any, **options: Any) -> bool:
            self.made.append(name)
            return True

        return called


async def test_weights_that_come_while_the_engine_sleeps_wake_no_turn_that_waits() -> None:
    """Its cache has no memory yet: anything sampled now would be written nowhere."""
    weights, calls = EngineWeights(3, VllmOptions()), Calls()
    await weights.sleep(calls, GPU)
    await weights.wake(calls, GPU, "weights")
    await weights.receive(calls, RENDEZVOUS, 4, first=1, live=True)
    assert calls.made == ["sleep", "wake_up", "collective_rpc", "reset_prefix_cache"]
    assert weights.version == 4
    await weights.wake(calls, GPU, "cache")
    assert weights.spans([(0, 0), (1, 7)]) == ((3, 0), (4, 7))


async def test_salt_of_kept_blocks_is_the_version_at_the_start_of_the_episode() -> None:
    """Otherwise new episodes and evaluations would read what older policies have computed."""
    weights = EngineWeights(3, VllmOptions(on_weight_update="keep"))
    assert (weights.cache_salt(None), weights.cache_salt(3)) == ("3", "3")
    await weights.receive(Calls(), RENDEZVOUS, 4, first=1, live=True)
    assert (weights.cache_salt(None), weights.cache_salt(3)) == ("4", "3")
    assert EngineWeights(3, VllmOptions()).cache_salt(3) is None


async def test_weights_that_come_between_turns_and_between_tokens_have_their_versions() -> None:
    weights, calls = EngineWeights(3, VllmOptions()), Calls()
    await weights.receive(calls, RENDEZVOUS, 4, first=1, live=False)
    assert weights.spans([(0, 0)]) == ((4, 0),)
    calls.made.clear()
    await weights.receive(calls, RENDEZVOUS, 5, first=1, live=True)
    assert calls.made[0] == "pause_generation"
    assert calls.made[-1] == "resume_generation"
    assert weights.spans([(0, 0), (1, 9)]) == ((4, 0), (5, 9))
