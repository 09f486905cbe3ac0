"""What an episode needs of an inference engine: a prefix in, a turn of token ids with log-probabilities out."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NoReturn, Protocol, TypeAlias

from torl._core import StopCondition, Vocabulary
from torl.errors import EngineError
from torl.options import Precision, Section
from torl.runtime.cluster import Cluster, LocalCluster
from torl.types import SampledTurn, SamplingParameters
from torl.weights.rendezvous import Rendezvous

NO_POLICY = -1
"""Version of the weights of an engine that holds none yet."""
WATCH_SECONDS = 0.2
"""How often `Engine.watch` looks."""


@dataclass(frozen=True, slots=True)
class EngineSetup:
    """What torl tells an engine of the run that it is part of."""

    model: Path
    """Directory with config.json and safetensors."""
    vocabulary: Vocabulary
    """What the model's tokens mean, for the scanners that end turns."""
    max_model_tokens: int
    """Longest prompt plus response."""
    stop_token_ids: tuple[int, ...]
    """The end-of-sequence tokens (`torl.text.tokenizer.stop_token_ids`)."""
    log_path: Path
    """Where the engine's processes write what they would print."""
    policy_version: int = 0
    """Version of the weights in `model`."""
    load_weights: bool = True
    """Whether the engine begins with those; where not, it samples nothing before it is sent others."""
    seed: int = 0
    head_dtype: Precision | None = None
    """Precision of the logits; that of the weights when unset."""
    devices: tuple[tuple[int, ...], ...] = ()
    """What each of the engines side by side computes on: GPUs as this process counts them, or cores, where there are
    none. Where nothing is said they share out what there is."""
    cluster: Cluster = field(default_factory=LocalCluster)
    """Where the engines are started."""
    nodes: tuple[int, ...] = ()
    """The node of each of them, on a cluster that is apart; the devices of each are counted there."""


EngineMemoryPart: TypeAlias = Literal["weights", "cache"]
"""What an engine that wakes takes memory for."""


class EngineOptions(Section):
    """What the options of every engine have; those of one's own engine are added in a subclass."""

    dtype: Precision = "bfloat16"
    """Precision of the engine's weights."""
    sleep_while_learning: bool | None = None
    """Free the engine's GPU memory while the learner trains; where they share GPUs when unset."""

    @property
    def keeps_stale_cache(self) -> bool:
        """Whether a turn may continue on keys and values of an older policy, so that logprobs are not exact."""
        return False


class Engine(Protocol):
    '''An inference engine that holds one version of the policy at a time.

    Every method raises `EngineError` when the engine is dead, was never started or refuses what is asked of it; the
    message names the cause. A whole engine, which asks a server and takes no weights, so that it samples and evaluates:

        import asyncio
        import json
        from urllib.request import urlopen

        import torl
        from torl import EngineSetup, SampledTurn
        from torl._core import Scanner

        class RemoteOptions(torl.EngineOptions):
            url: str
            """Where the server listens."""

        class RemoteEngine(torl.Engine):
            def __init__(self, setup: EngineSetup, options: RemoteOptions) -> None:
                self.setup, self.url = setup, options.url

            async def sample(self, token_ids, sampling, request_id, *, end, at_line_start, **hints) -> SampledTurn:
                request = {"prompt": [*token_ids], "max_tokens": sampling.max_tokens, "seed": sampling.seed}
                with await asyncio.to_thread(urlopen, f"{self.url}/sample", json.dumps(request).encode()) as answer:
                    sampled = json.load(answer)
                scan = Scanner(self.setup.vocabulary, end, at_line_start).feed(sampled["token_ids"])
                kept = slice(scan.consumed)  # what was sampled after the end of the turn is no part of it
                reason = sampled["finish_reason"] if scan.overshoot is None else "end"
                logprobs = tuple(sampled["logprobs"][kept])
                return SampledTurn(tuple(sampled["token_ids"][kept]), logprobs, ((0, 0),), reason, cached_tokens=0)

        [engine]
        name = "my_package.engines:RemoteEngine"
        url = "http://127.0.0.1:8000"

    Instead of `options`, its `__init__` may take single parameters after `setup`; they are its options then.
    '''

    @property
    def policy_version(self) -> int:
        """Version of the weights that sample now: at first that of its `EngineSetup`, or `NO_POLICY`."""
        return 0

    @property
    def is_serving(self) -> bool:
        """Whether turns are sampled now; where not, they wait."""
        return True

    @property
    def needs_weights(self) -> bool:
        """Whether a part of it was started again and samples nothing before it is sent the current weights."""
        return False

    @property
    def processes_by_log(self) -> Mapping[Path, Sequence[int]]:
        """The engine's processes that dump stacks on request (`torl.runtime.processes.stacks`), by log file."""
        return {}

    async def dump_remote_stacks(self) -> None:
        """Have its processes on the nodes of a cluster write theirs, to logs that are gathered beside those."""
        return

    @property
    def idle_seconds(self) -> float:
        """How long it has held no request since it was started."""
        return 0.0

    async def start(self) -> None:
        """Load the model and return once requests are served. Cancelled, it leaves nothing running."""
        return

    async def sample(
        self,
        token_ids: Sequence[int],
        sampling: SamplingParameters,
        request_id: str,
        *,
        end: StopCondition,
        at_line_start: bool,
        episode: int = 0,
        group: str = "",
        on_block: Callable[[str], None] | None = None,
    ) -> SampledTurn:
        """Sample one turn after the prefix `token_ids`. Cancelling the call aborts the request.

        Args:
            token_ids: the whole prefix, prompt included.
            sampling: how.
            request_id: differs between the requests that are open.
            end: what ends the turn, beside an end-of-sequence token and `sampling.max_tokens`.
            at_line_start: whether the text before the turn ends with a newline, or there is none.
            episode: numbers the episode that the turn belongs to: those with lower numbers are served first where not
                all can be, and all turns of one are sampled where its prefix is cached.
            group: names the episodes that begin with the same prompt, which is best computed once.
            on_block: called with the code of a block that closes while the turn continues; it is a hint, which may come
                late or never.
        """
        ...

    def forget(self, episode: int) -> None:
        """The episode has ended: no turn of it comes any more."""
        return

    async def count_receivers(self) -> int:
        """How many receivers come to the channel that the next `receive_weights` is told of; one for each device."""
        return 1

    @property
    def receivers_changed(self) -> bool:
        """Whether those that `expect_weights` has counted are others than those that came to the channel before."""
        return True

    @property
    def receiver_nodes(self) -> tuple[int, ...]:
        """The node of a cluster that each of those is on; empty if that is unknown."""
        return ()

    async def receive_weights(self, rendezvous: Rendezvous, policy_version: int, *, first: int = 0) -> None:
        """Take the weights that a `WeightChannel` sends at `rendezvous`: version `policy_version` from then on.

        `first` is the number of its first receiver; another engine may have those before.

        Turns that are being sampled continue with the new weights, and say which of their tokens are whose; none begins
        meanwhile. Cached keys and values are the old policy's: they are forgotten, unless the engine was told to keep
        them (`EngineOptions.keeps_stale_cache`).
        """
        raise EngineError(f"{type(self).__name__} takes no new weights: it can sample and evaluate, but not train")

    async def sleep(self) -> None:
        """Give the device's memory to someone else: nothing is sampled until it is taken back.

        The weights are dropped. `wake("weights")`, `receive_weights`, `wake("cache")` come next, in this order.
        """
        return

    async def wake(self, part: EngineMemoryPart) -> None:
        """Take memory back: first for weights, which hold nothing yet, then for the cache, and sample from then on."""
        return

    def check(self) -> None:
        """Raise if the engine is dead."""
        return

    async def watch(self) -> NoReturn:
        """Wait until the engine dies, then raise. Cancel it when it is no longer of interest."""
        while True:
            self.check()
            await asyncio.sleep(WATCH_SECONDS)

    async def close(self) -> None:
        """End every process of the engine. Safe to call twice, and on an engine that never started or is dead."""
        return
