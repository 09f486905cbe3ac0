"""vLLM's asynchronous engine behind the `Engine` protocol: CUDA and CPU by the same code.

The engine runs in processes of its own (see `engine_process`); this one only sends requests and reads tokens.
The only file that imports vLLM besides `vllm_scheduler` (with `vllm_partial_blocks`) and `vllm_worker`, which run over
there.
"""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from torl.config import EngineConfig
from torl.errors import ConfigError, EngineError
from torl.rollout.announcements import BlockListener
from torl.rollout.engine_process import ProcessSetup, log_to_file
from torl.rollout.turns import MARKER_STOP, TURN_SPANS, TurnEnd, encode_turn
from torl.settings import nearest
from torl.types import SampledTurn, SamplingParameters

if TYPE_CHECKING:
    from torl._core import Vocabulary
    from torl.weight_transfer import Rendezvous

_WORKER_EXTENSION = "torl.rollout.vllm_worker.WeightReceiver"
# On a CPU vLLM would put a lone worker into a process of its own (only to bind its threads, which is not done here) and
# then spin in the core while that works: a third of the start, and up to half of the CPU time of a token.
_IN_CORE_EXECUTOR = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
_CPU_BLOCK_SIZE = 32  # the CPU kernels take multiples of 32; a small one keeps short second turns cached
_CPU_BATCH_TOKENS = 4096
_LOG_TAIL_BYTES = 4096
_WATCH_SECONDS = 0.2
_SHUTDOWN_SECONDS = 10.0  # then vLLM kills what is left
# A launcher's variables describe the learner's process group; vLLM would take them for its own.
_LAUNCHER_VARIABLES = (
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "GROUP_RANK",
    "ROLE_RANK",
    "ROLE_WORLD_SIZE",
    "GROUP_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "TORCHELASTIC_USE_AGENT_STORE",
)
_environment_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class EngineProcess:
    """One process of a running engine; `started` tells it from a later process with the same id."""

    pid: int
    started: int


class VllmEngine:
    """One vLLM engine (tensor parallel over its devices) and the policy version it holds."""

    def __init__(
        self,
        model: Path,
        config: EngineConfig,
        *,
        vocabulary: "Vocabulary",
        max_model_tokens: int,
        stop_token_ids: Sequence[int],
        log_path: Path,
        policy_version: int = 0,
        seed: int = 0,
    ) -> None:
        """Describe the engine; `start` starts it.

        Args:
            model: directory with config.json and safetensors.
            vocabulary: what the model's tokens mean, for the scanners that end turns.
            max_model_tokens: longest prompt plus response.
            stop_token_ids: the end-of-sequence tokens (`torl.rollout.tokenizer.stop_token_ids`).
            log_path: where the engine's processes write what they would print.
            policy_version: version of the weights in `model`.
        """
        self._model = model
        self._config = config
        self._max_model_tokens = max_model_tokens
        self._stop_token_ids = list(stop_token_ids)
        self._log_path = log_path
        self._log_start = 0
        self._vocabulary = vocabulary
        self._blocks = BlockListener()
        self._versions = [policy_version]  # by how often the engine was paused and resumed
        self._seed = seed
        self._live = 0
        self._idle_seconds = 0.0
        self._idle_since: float | None = None  # when its last request ended; None while it holds any
        self._serving = asyncio.Event()  # cleared while weights arrive: no turn begins
        self._serving.set()
        self._llm: Any = None
        self._processes: tuple[EngineProcess, ...] = ()
        self._on_cpu = False
        self._unusable: str | None = None  # why no token may be sampled: the weights may be of two versions

    @property
    def policy_version(self) -> int:
        """Version of the weights that sample now."""
        return self._versions[-1]

    @property
    def live_requests(self) -> int:
        """Requests whose stream is open."""
        return self._live

    @property
    def idle_seconds(self) -> float:
        """See `Engine.idle_seconds`."""
        return self._idle_seconds + (0.0 if self._idle_since is None else time.perf_counter() - self._idle_since)

    @property
    def processes(self) -> tuple[EngineProcess, ...]:
        """The engine's processes: its core first, then its workers if they are processes of their own."""
        return self._processes

    async def start(self) -> None:
        """Start the engine's processes and load the model (some 15-30 s on a CPU).

        Raises:
            ConfigError: `engine.arguments` holds what vLLM does not know or torl sets itself.
            EngineError: with the end of the engine's log; nothing is left running.
        """
        if self._llm is not None:
            raise EngineError("the engine is already started")
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = self._log_path.stat().st_size if self._log_path.exists() else 0
        # In a thread, because vLLM blocks until its processes are up. Cancelled while it blocks, the start still has
        # to finish before it can be undone.
        starting = asyncio.ensure_future(asyncio.to_thread(self._start, self._blocks.open()))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                await starting
            await self.close()
            raise
        except ConfigError:
            self._blocks.close()
            raise
        except Exception as error:
            self._blocks.close()
            raise EngineError(f"the engine did not start: {_first_line(error)}\n{self._log_tail()}") from error
        try:
            llm = self._running()
            pids = [worker["pid"] for worker in await self.describe_workers()]
            cores = [process.pid for process in llm.engine_core.resources.engine_manager.processes]
            self._processes = tuple(_identify(pid) for pid in dict.fromkeys([*cores, *pids]))
            self._idle_since = time.perf_counter()
        except BaseException:
            await self.close()
            raise

    def _start(self, blocks_path: str) -> None:
        """Build the AsyncLLM; leave this process's environment as it was.

        vLLM writes to `os.environ` for the processes it will start. What it wrote goes to them by the
        `ProcessSetup`, and only to them.
        """
        log_to_file(self._log_path)  # before the import, which has something to say
        with _private_environment() as changes:
            from vllm.config.logging import LoggingConfig
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.platforms import current_platform
            from vllm.v1.engine.async_llm import AsyncLLM

            self._on_cpu = current_platform.is_cpu()
            own = self._arguments() | {"logging_config": LoggingConfig(configure_logging=False)}
            others = self._config.arguments
            _check_arguments(others, own, [field.name for field in fields(AsyncEngineArgs)])
            arguments = AsyncEngineArgs(**self._defaults() | others | own)
            config = arguments.create_engine_config()
            environment = {**changes(), **self._environment()}
            config.additional_config = ProcessSetup(
                str(self._log_path.resolve()), environment, self._vocabulary, blocks_path
            )
            scheduler = "AsyncTurnScheduler" if config.scheduler_config.async_scheduling else "TurnScheduler"
            config.scheduler_config.scheduler_cls = f"torl.rollout.vllm_scheduler.{scheduler}"
        # A fork of a process with threads and an event loop may deadlock, and nothing would be unpickled in it.
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
        self._llm = AsyncLLM.from_vllm_config(config, disable_log_stats=True)

    def _defaults(self) -> dict[str, Any]:
        """What `engine.arguments` may say otherwise."""
        if not self._on_cpu:
            return {}
        batch_tokens = max(_CPU_BATCH_TOKENS, self._max_model_tokens, self._config.max_sequences)
        return {"block_size": _CPU_BLOCK_SIZE, "max_num_batched_tokens": batch_tokens}

    def _arguments(self) -> dict[str, Any]:
        config = self._config
        arguments: dict[str, Any] = {
            "model": str(self._model),
            "skip_tokenizer_init": True,  # ids in, ids out
            "generation_config": "vllm",  # no sampling defaults from the model's directory
            "dtype": config.dtype,
            "seed": self._seed,
            "max_model_len": self._max_model_tokens,
            "max_num_seqs": config.max_sequences,
            "tensor_parallel_size": config.tensor_parallel,
            "data_parallel_size": config.data_parallel,
            "enable_prefix_caching": True,
            "scheduling_policy": "priority",  # an episode that goes on comes before one that begins
            "logprobs_mode": "processed_logprobs",  # after temperature, as the trainer computes them
            "max_logprobs": 1,
            "enforce_eager": config.enforce_eager or self._on_cpu,
            "worker_extension_cls": _WORKER_EXTENSION,
        }
        if self._on_cpu:
            arguments |= {
                "kv_cache_memory_bytes": config.cpu_cache_gib << 30,
                # A seeded request whose prompt is cut in two ends the CPU worker ("CPU Generator does not use offset").
                "enable_chunked_prefill": False,
            }
            if config.tensor_parallel == 1:
                arguments["distributed_executor_backend"] = _IN_CORE_EXECUTOR
        else:
            arguments |= {
                "gpu_memory_utilization": config.memory_share,
                "enable_sleep_mode": config.sleep_while_learning,
            }
        return arguments

    def _environment(self) -> dict[str, str | None]:
        environment: dict[str, str | None] = dict.fromkeys(_LAUNCHER_VARIABLES)
        environment |= {
            "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        if self._on_cpu:
            # Eager: compiling small kernels for a CPU costs more than it saves. Unbound and without busy waiting:
            # learner and sandbox share the cores.
            environment |= {
                "TORCHDYNAMO_DISABLE": "1",
                "VLLM_CPU_OMP_THREADS_BIND": "nobind",
                "OMP_WAIT_POLICY": "PASSIVE",
            }
            if self._config.cpu_threads is not None:
                environment["OMP_NUM_THREADS"] = str(self._config.cpu_threads)
        return environment

    async def sample(
        self,
        token_ids: Sequence[int],
        sampling: SamplingParameters,
        request_id: str,
        *,
        end: TurnEnd | None,
        episode: int = 0,
        on_block: Callable[[str], None] | None = None,
    ) -> SampledTurn:
        """See `Engine.sample`."""
        from vllm.inputs.engine import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError

        await self._serving.wait()
        llm = self._running()
        if on_block is not None:
            self._blocks.expect(request_id, on_block)
        stream = llm.generate(
            tokens_input(list(token_ids)),
            self._sampling(sampling, encode_turn(end, request_id)),
            request_id,
            priority=episode,
            data_parallel_rank=episode % self._config.data_parallel if self._config.data_parallel > 1 else None,
        )
        self._idle_seconds, self._idle_since = self.idle_seconds, None
        self._live += 1
        finished = False
        try:
            async for output in stream:
                finished = True
                return self._turn(output, request_id)
            raise EngineError(f"the engine never ended request {request_id}")
        except EngineDeadError as error:
            raise self._death() from error
        except (EngineError, asyncio.CancelledError):
            raise
        except Exception as error:
            if llm.errored:
                raise self._death() from error
            raise EngineError(f"the engine refused request {request_id}: {_first_line(error)}") from error
        finally:
            self._live -= 1
            if self._live == 0:
                self._idle_since = time.perf_counter()
            self._blocks.forget(request_id)
            await stream.aclose()
            if not finished and not llm.errored:
                await llm.abort(request_id)  # vLLM forgets to when it is cancelled while it takes the request

    def _turn(self, output: Any, request_id: str) -> SampledTurn:
        found = output.outputs[0]
        reason = "end" if found.stop_reason == MARKER_STOP else found.finish_reason
        if reason not in ("stop", "length", "end"):
            raise EngineError(f"the engine ended request {request_id} with {reason!r}")
        return SampledTurn(
            token_ids=tuple(found.token_ids),
            logprobs=tuple(found.logprobs.logprobs),
            policy_versions=tuple(
                (self._versions[resumed], first) for resumed, first in output.kv_transfer_params[TURN_SPANS]
            ),
            finish_reason=reason,
            cached_tokens=output.num_cached_tokens or 0,
        )

    def _sampling(self, sampling: SamplingParameters, turn: dict[str, Any]) -> Any:
        from vllm.sampling_params import RequestOutputKind, SamplingParams

        return SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            seed=sampling.seed,
            stop_token_ids=self._stop_token_ids,
            logprobs=0,  # the sampled token's own
            flat_logprobs=True,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
            extra_args=turn,
            skip_clone=True,
        )

    async def receive_weights(self, rendezvous: "Rendezvous", policy_version: int) -> None:
        """See `Engine.receive_weights`."""
        llm = self._running()
        # What vLLM is sent must be plain: its messages turn a dataclass into a dictionary.
        where = (rendezvous.host, rendezvous.port, rendezvous.world_size, rendezvous.backend)
        keep = self._config.live_turns == "keep"
        self._serving.clear()
        try:
            if paused := self._live > 0:
                mode = "wait" if self._config.live_turns == "drain" else "keep"
                await llm.pause_generation(mode=mode, clear_cache=False)
            await llm.collective_rpc("torl_receive_weights", args=where)
            if not (paused and keep) and not await llm.reset_prefix_cache(reset_running_requests=True):
                raise EngineError("cached prefixes of the old policy are still in use")
            if paused:
                self._versions.append(policy_version)
                await llm.resume_generation()
            else:
                self._versions[-1] = policy_version
        except BaseException as error:  # cancelled in the middle it holds weights of two versions as well
            self._unusable = f"it did not take the weights of version {policy_version}"
            if not isinstance(error, Exception):
                raise
            if llm.errored:
                raise self._death() from error
            raise EngineError(f"the engine is not usable: {self._unusable}: {_first_line(error)}") from error
        finally:
            self._serving.set()

    async def describe_workers(self) -> list[dict[str, Any]]:
        """What each worker is: "pid", "threads" (compute threads), "compiles" (whether torch.compile is on)."""
        workers: list[dict[str, Any]] = await self._running().collective_rpc("torl_describe")
        return workers

    async def sleep(self) -> None:
        """See `Engine.sleep`. Weights wait in CPU memory."""
        if self._config.sleep_while_learning and not self._on_cpu:
            await self._running().sleep(level=1)

    async def wake(self) -> None:
        """See `Engine.wake`."""
        if self._config.sleep_while_learning and not self._on_cpu:
            await self._running().wake_up()

    def check(self) -> None:
        """See `Engine.check`."""
        self._running()

    async def watch(self) -> NoReturn:
        """See `Engine.watch`."""
        while True:
            self.check()
            await asyncio.sleep(_WATCH_SECONDS)

    async def close(self) -> None:
        """See `Engine.close`."""
        llm, self._llm = self._llm, None
        self._blocks.close()
        if llm is not None:
            await asyncio.to_thread(llm.shutdown, _SHUTDOWN_SECONDS)
        # vLLM ends its processes; a worker whose core was killed may need another word.
        await asyncio.to_thread(_end, self._processes)
        self._processes = ()

    def _running(self) -> Any:
        if self._llm is None:
            raise EngineError("the engine is not running: start it first")
        if self._llm.errored:
            raise self._death()
        if self._unusable is not None:
            raise EngineError(f"the engine is not usable: {self._unusable}")
        return self._llm

    def _death(self) -> EngineError:
        return EngineError(f"the engine died; the end of {self._log_path}:\n{self._log_tail()}")

    def _log_tail(self) -> str:
        try:
            with self._log_path.open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(self._log_start, log.tell() - _LOG_TAIL_BYTES))
                return log.read().decode(errors="replace").strip()
        except OSError as error:
            return f"(no log: {error.strerror})"


@contextlib.contextmanager
def _private_environment() -> Iterator[Any]:
    """Put `os.environ` back at the end; yields a function that tells what has changed since the beginning."""
    with _environment_lock:
        before = dict(os.environ)

        def changes() -> dict[str, str | None]:
            names = before.keys() | os.environ.keys()
            return {name: os.environ.get(name) for name in names if os.environ.get(name) != before.get(name)}

        try:
            yield changes
        finally:
            for name, value in changes().items():
                if name in before:
                    os.environ[name] = before[name]
                elif value is not None:
                    del os.environ[name]


def _check_arguments(others: Mapping[str, Any], own: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuse engine arguments that vLLM does not have, and those that torl sets itself or takes its own place by."""
    for name in others:
        if name in own or name in ("scheduler_cls", "additional_config"):
            raise ConfigError(f"engine.arguments.{name}: torl sets it itself")
        if name not in known:
            raise ConfigError(f"engine.arguments.{name}: vLLM has no such argument{nearest(name, known)}")


def _identify(pid: int) -> EngineProcess:
    status = _status(pid)
    return EngineProcess(pid, 0 if status is None else int(status[19]))


def _end(processes: Sequence[EngineProcess]) -> None:
    """Kill what is left, and wait until it is gone: a process that holds much memory takes a moment to die."""
    for process in processes:
        if _is_alive(process):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
    deadline = time.monotonic() + _SHUTDOWN_SECONDS
    while any(map(_is_alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.01)


def _is_alive(process: EngineProcess) -> bool:
    """Whether it runs; one that is dead and not yet reaped does not, and a later one with its id is another."""
    status = _status(process.pid)
    return status is not None and status[0] != "Z" and int(status[19]) == process.started


def _status(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat from the state on; the twentieth is when the process started. None if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0] or type(error).__name__
