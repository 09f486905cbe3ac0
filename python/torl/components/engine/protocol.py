"""The base class of inference engines, which sample a turn after a prefix, with log-probabilities."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, TypeAlias

from torl._core import Vocabulary
from torl.base.errors import EngineError
from torl.base.options import PositiveInt, Precision, Section
from torl.base.runtime.cluster import Cluster, LocalCluster
from torl.base.types import SampledTurn, TurnRequest
from torl.components.engine.memory import EngineMemory
from torl.components.hub.shape import ModelShape
from torl.components.weights.rendezvous import Receivers, Rendezvous

NO_POLICY = -1
"""Policy version of an engine without weights."""
WATCH_SECONDS = 0.2
"""Polling interval of `Engine.watch`."""


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """The run that an engine belongs to.

    Attributes:
        model: Directory with config.json and safetensors.
        vocabulary: The bytes of the model's tokens, for the scanners that end turns.
        max_model_tokens: Maximum length of prompt and response together.
        stop_token_ids: The end-of-sequence tokens (`torl.components.text.tokenizer.stop_token_ids`).
        log_path: File for the output of the engine's processes.
        policy_version: Version of the weights in `model`.
        load_weights: Whether the engine loads these weights. Otherwise it samples nothing before it receives weights.
        seed: Random seed of the engine.
        head_dtype: Precision of the logits. Unset uses the precision of the weights.
        devices: Devices of each replica: GPUs as numbered in this process, or CPU cores on a machine without GPUs. If
            empty, the replicas share all devices.
        on_gpus: Whether `devices` are GPUs.
        cluster: Cluster in which the engines start.
        nodes: Node of each replica, on a remote cluster. `devices` are numbered per node.
        stall_timeout_seconds: Time without a new token while requests are pending, after which an engine counts as
            hung.
        max_restarts: Maximum number of restarts of each replica.
    """

    model: Path
    vocabulary: Vocabulary
    max_model_tokens: int
    stop_token_ids: tuple[int, ...]
    log_path: Path
    policy_version: int = 0
    load_weights: bool = True
    seed: int = 0
    head_dtype: Precision | None = None
    devices: tuple[tuple[int, ...], ...] = ()
    on_gpus: bool = False
    cluster: Cluster = field(default_factory=LocalCluster)
    nodes: tuple[int, ...] = ()
    stall_timeout_seconds: float = 900.0
    max_restarts: int = 3


EngineMemoryPart: TypeAlias = Literal["weights", "cache"]
"""A part of the device memory that a waking engine allocates."""


class EngineOptions(Section):
    """Options of every engine. Custom engines add their own in a subclass."""

    dtype: Precision = "bfloat16"
    """Precision of the engine's weights."""
    sleep_while_learning: bool | None = None
    """Free the engine's GPU memory while the learner trains. Unset does so if engine and learner share GPUs."""

    @property
    def keeps_stale_cache(self) -> bool:
        """Whether turns may continue on keys and values of an older policy, which makes logprobs inexact."""
        return False

    @property
    def rounds_below_dtype(self) -> bool:
        """Whether weights or cache are quantized, so that logprobs are less exact than `dtype`."""
        return False

    @property
    def overrides_model(self) -> bool:
        """Whether entries of the model's config.json are replaced, such as the length of its context."""
        return False


class LocalEngineOptions(EngineOptions):
    """Options of an engine on the devices of the run. Its subclass estimates the memory by which runs are placed."""

    tensor_parallel: PositiveInt = 1
    """Number of devices that share one replica's weights."""
    replicas: PositiveInt | None = None
    """Number of replicas, each with `tensor_parallel` devices. Unset uses all GPUs of the engines, or one replica on a
    CPU."""
    max_sequences: PositiveInt = 1024
    """Maximum number of sequences in a batch."""

    def divides(self, shape: ModelShape, workers: int) -> bool:
        """Whether the engine can divide a model among this number of devices."""
        return shape.heads % workers == 0

    @abstractmethod
    def memory(self, shape: ModelShape, gpu_bytes: int | None) -> EngineMemory:
        """Return the memory of one of the devices of an engine.

        Args:
            shape: Shape of the model.
            gpu_bytes: Bytes of the smallest GPU. None on cores.
        """

    def savings(self, *, on_gpus: bool) -> Iterator[tuple[str, Any, str]]:
        """Yield changes of options that save memory, the cheapest first: option, new value, and cost in words."""
        yield from ()


@dataclass(frozen=True, slots=True)
class Installation:
    """Whether an engine can be started on a machine.

    Attributes:
        text: Installed version, or the reason why the engine cannot start.
        remedy: Command that mends it. Empty if nothing is missing.
        works: Whether the engine starts without the remedy.
    """

    text: str
    remedy: str = ""
    works: bool = True


class Engine(ABC):
    '''An inference engine that holds one version of the policy at a time.

    Every method raises `EngineError`, with the cause, if the engine is dead, was never started or refuses a request.
    Example: an engine that queries a server. It cannot receive weights, so it samples and evaluates only.

        import asyncio
        import json
        from urllib.request import urlopen

        import torl
        from torl import EngineSetup, SampledTurn, Scanner

        class RemoteOptions(torl.EngineOptions):
            url: str
            """Address of the server."""

        class RemoteEngine(torl.Engine):
            def __init__(self, setup: EngineSetup, options: RemoteOptions) -> None:
                self.setup, self.url = setup, options.url

            async def sample(self, request, on_block=None) -> SampledTurn:
                sampling = request.sampling
                body = {"prompt": [*request.prefix], "max_tokens": sampling.max_tokens, "seed": sampling.seed}
                with await asyncio.to_thread(urlopen, f"{self.url}/sample", json.dumps(body).encode()) as reply:
                    sampled = json.load(reply)
                scanner = Scanner(self.setup.vocabulary, request.stop_condition, request.at_line_start)
                scan = scanner.feed(sampled["token_ids"])
                kept = slice(scan.consumed)  # tokens after the end of the turn are not part of it
                reason = sampled["finish_reason"] if scan.overshoot is None else "end"
                logprobs = tuple(sampled["logprobs"][kept])
                return SampledTurn(tuple(sampled["token_ids"][kept]), logprobs, ((0, 0),), reason, cached_tokens=0)

        [engine]
        name = "my_package.engines:RemoteEngine"
        url = "http://127.0.0.1:8000"

    Instead of `options`, its `__init__` may take single parameters after `setup`, which become its options.
    '''

    @classmethod
    def packages(cls) -> Sequence[str]:
        """Return the names of the packages that decide what the engine samples. A receipt has their versions."""
        return ()

    @classmethod
    def installation(cls, *, on_gpus: bool) -> Installation:
        """Return whether the engine can be started on the GPUs or cores of this machine, for `torl check`."""
        return Installation(cls.__name__)

    @property
    def policy_version(self) -> int:
        """Version of the weights that sample now: at first the version in its `EngineSetup`, or `NO_POLICY`."""
        return 0

    @property
    def replica_count(self) -> int:
        """Number of engines that this one consists of, each with its own copy of the weights."""
        return 1

    @property
    def is_serving(self) -> bool:
        """Whether turns are sampled now. Otherwise they wait."""
        return True

    @property
    def needs_weights(self) -> bool:
        """Whether a restarted part of the engine waits for the current weights."""
        return False

    @property
    def processes_by_log(self) -> Mapping[Path, Sequence[int]]:
        """The engine's processes that dump stacks on request (`torl.base.runtime.processes.hangs`), by log file."""
        return {}

    async def dump_remote_stacks(self) -> None:
        """Make the engine's processes on other nodes dump their stacks to their logs, which the run collects."""
        return

    @property
    def idle_seconds(self) -> float:
        """Total time without a pending request since the start."""
        return 0.0

    async def start(self) -> None:
        """Load the model and return once requests are served. If cancelled, it leaves nothing running."""
        return

    @abstractmethod
    async def sample(self, request: TurnRequest, on_block: Callable[[str], None] | None = None) -> SampledTurn:
        """Sample one turn. Cancelling the call aborts the request.

        Args:
            request: The turn to sample.
            on_block: Callback with the code of each block that closes while the turn continues. Calls may be late or
                missing.
        """

    def forget(self, episode: int) -> None:
        """Forget an episode that has ended."""
        return

    async def select_receivers(self) -> Receivers:
        """Choose the receivers of the next `receive_weights`."""
        return Receivers(1, changed=True)

    async def receive_weights(self, rendezvous: Rendezvous, policy_version: int, *, first: int = 0) -> None:
        """Receive the weights that a `WeightChannel` sends at `rendezvous`, and sample with them from then on.

        Turns in flight continue with the new weights, and record the version of each token. No turn starts during the
        transfer. Cached keys and values of the old policy are dropped. With `EngineOptions.keeps_stale_cache`, episodes
        that started before the transfer may use them, but later ones may not (`TurnRequest.start_version`).

        Args:
            rendezvous: Address of the channel.
            policy_version: Version of the new weights.
            first: Number of this engine's first receiver in the channel.
        """
        raise EngineError(f"{type(self).__name__} takes no new weights: it can sample and evaluate, but not train")

    async def sleep(self) -> None:
        """Drop the weights and free the device memory. Nothing is sampled until the engine is awake again.

        `wake("weights")`, `receive_weights` and `wake("cache")` follow, in this order.
        """
        return

    async def wake(self, part: EngineMemoryPart) -> None:
        """Allocate memory for the weights, uninitialized, then for the cache, and sample from then on."""
        return

    def check(self) -> None:
        """Raise if the engine is dead."""
        return

    async def watch(self) -> NoReturn:
        """Wait until the engine dies, then raise."""
        while True:
            self.check()
            await asyncio.sleep(WATCH_SECONDS)

    async def close(self) -> None:
        """Stop every process of the engine. Safe to call twice, and if the engine is dead or was never started."""
        return
