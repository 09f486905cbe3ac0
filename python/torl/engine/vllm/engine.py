"""vLLM's asynchronous engine behind the `Engine` protocol: CUDA and CPU by the same code.

The engine runs in processes of its own (see `process_setup`); this one only sends requests and reads tokens. What runs
over there is `scheduler` (with `partial_blocks`) and `worker`.
"""

import asyncio
import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torl._core import StopCondition
from torl.engine.protocol import NO_POLICY, Engine, EngineMemoryPart, EngineSetup
from torl.engine.vllm.announcements import Listener
from torl.engine.vllm.directory import EngineDirectory
from torl.engine.vllm.failures import fail_calls_on_engine_death
from torl.engine.vllm.launch import Launch, LaunchPaths
from torl.engine.vllm.options import VllmOptions
from torl.engine.vllm.processes import EngineProcess, end_processes
from torl.engine.vllm.stall import StallWatch
from torl.engine.vllm.turns import encode_turn, sampled_turn, sampling_params
from torl.engine.vllm.weights import EngineWeights
from torl.errors import ConfigError, EngineDiedError, EngineError, EngineHungError, EngineUnusableError
from torl.runtime.processes.children import first_line, log_tail
from torl.runtime.processes.stacks import dump_stacks
from torl.types import SampledTurn, SamplingParameters
from torl.weights.rendezvous import Rendezvous

_SHUTDOWN_SECONDS = 10.0  # then vLLM kills what is left


class VllmEngine(Engine):
    """One vLLM engine, tensor parallel over its devices, and the policy version that it holds."""

    def __init__(self, setup: EngineSetup, options: VllmOptions, *, number: int = 0) -> None:
        """Describe the engine with this number, of those side by side; `start` starts it."""
        self._setup = setup
        self._options = options
        self._number = number
        self._log_path = setup.log_path
        if options.engines > 1:
            self._log_path = setup.log_path.with_stem(f"{setup.log_path.stem}_{number}")
        self._log_start = 0
        self._directory = EngineDirectory()
        self._stall_watch = StallWatch(options.stall_timeout_seconds)
        self._watching: list[asyncio.Task[None]] = []
        self._stalled: str | None = None
        self._listener = Listener(on_step=self._stall_watch.step)
        self._weights = EngineWeights(setup.policy_version if setup.load_weights else NO_POLICY, options)
        self._live = 0
        self._calls: list[str] = []  # what it is asked beside requests
        self._llm: Any = None
        self._processes: tuple[EngineProcess, ...] = ()
        self._on_cpu = False

    @property
    def policy_version(self) -> int:
        """The version that samples from now on."""
        return self._weights.version

    @property
    def live_requests(self) -> int:
        """Requests whose stream is open."""
        return self._live

    @property
    def processes(self) -> tuple[EngineProcess, ...]:
        """The engine's processes: its core first, then its workers if they are processes of their own."""
        return self._processes

    @property
    def processes_by_log(self) -> dict[Path, list[int]]:
        """All processes that live write to one log."""
        return {self._log_path: [process.pid for process in self._processes if process.is_alive]}

    async def start(self) -> None:
        """Start the engine's processes and load the model (some 15-30 s on a CPU).

        Raises:
            ConfigError: `engine.arguments` holds what vLLM does not know or torl sets itself.
            EngineError: with the end of the engine's log; nothing is left running.
        """
        if self._llm is not None:
            raise EngineError("the engine is already started")
        log = self._log_path
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = log.stat().st_size if log.exists() else 0
        try:
            directory = self._directory.open()
            place = LaunchPaths(self._number, directory, self._log_path, self._listener.open(directory))
            launch = Launch(self._setup, self._options, place)
            self._llm = await self._launched(launch)
            self._on_cpu = launch.on_cpu
            self._watching.append(asyncio.ensure_future(fail_calls_on_engine_death(self._llm)))
            with self._called("unlink its shared memory") as llm:
                await llm.collective_rpc("torl_unlink_shared_memory")
            pids = [worker["pid"] for worker in await self.describe_workers()]
            cores = [process.pid for process in self._llm.engine_core.resources.engine_manager.processes]
            self._processes = tuple(EngineProcess.from_pid(pid) for pid in dict.fromkeys([*cores, *pids]))
            self._watching.append(asyncio.ensure_future(self._end_when_stalled()))
        except BaseException:
            await self.close()
            raise

    async def _launched(self, launch: Launch) -> Any:
        try:
            return await launch.run()
        except ConfigError:
            raise
        except Exception as error:
            raise EngineError(f"the engine did not start: {first_line(error)}\n{self._log_tail()}") from error

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
        """Sample one turn."""
        from vllm.inputs.engine import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError

        await self._weights.wait_until_received()
        llm = self._running()
        if self.policy_version == NO_POLICY:
            raise EngineError("the engine has no weights: send it some first")
        if on_block is not None:
            self._listener.subscribe(request_id, on_block)
        stream = llm.generate(
            tokens_input(list(token_ids)),
            sampling_params(sampling, self._setup.stop_token_ids, encode_turn(end, at_line_start, request_id)),
            request_id,
            priority=episode,
        )
        self._live += 1
        finished = False
        try:
            async for output in stream:
                finished = True
                return sampled_turn(output, self._weights.spans)
            raise EngineError(f"the engine never ended request {request_id}")
        except EngineDeadError as error:
            raise self._death() from error
        except (EngineError, asyncio.CancelledError):
            raise
        except Exception as error:
            if llm.errored:
                raise self._death() from error
            raise EngineError(f"the engine refused request {request_id}: {first_line(error)}") from error
        finally:
            self._live -= 1
            self._listener.unsubscribe(request_id)
            await stream.aclose()
            if not finished and not llm.errored:
                await llm.abort(request_id)  # vLLM forgets to when it is cancelled while it takes the request

    async def count_receivers(self) -> int:
        """One receiver for each device."""
        return self._options.tensor_parallel

    @property
    def receiver_nodes(self) -> tuple[int, ...]:
        """All are on the controller's machine."""
        return (0,) * self._options.tensor_parallel

    async def receive_weights(self, rendezvous: Rendezvous, policy_version: int, *, first: int = 0) -> None:
        """Take new weights; what becomes of the turns being sampled, `VllmOptions.on_weight_update` says."""
        with self._called("take weights") as llm:
            try:
                live = self.live_requests > 0
                await self._weights.receive(llm, rendezvous, policy_version, first=first, live=live)
            except Exception as error:
                raise EngineUnusableError(f"{self._unusable()}: {first_line(error)}") from error

    async def weight_checksums(self) -> list[dict[str, str]]:
        """vLLM's checksums of what each worker holds: by the name that a parameter has in vLLM, fused and processed."""
        with self._called("compute_weight_checksums") as llm:
            checksums: list[dict[str, str]] = await llm.compute_weight_checksums()
        return checksums

    async def describe_workers(self) -> list[dict[str, Any]]:
        """What each worker is: "pid", "threads" (compute threads), "compiles" (whether torch.compile is on)."""
        with self._called("describe its workers") as llm:
            workers: list[dict[str, Any]] = await llm.collective_rpc("torl_describe")
        return workers

    async def sleep(self) -> None:
        """Drop weights and cache; on a CPU, whose memory nobody waits for, only sample nothing."""
        with self._called("sleep") as llm:
            await self._weights.sleep(llm, on_cpu=self._on_cpu)

    async def wake(self, part: EngineMemoryPart) -> None:
        """Take the GPU's memory back, first that of the weights."""
        with self._called("wake") as llm:
            await self._weights.wake(llm, part, on_cpu=self._on_cpu)

    def check(self) -> None:
        """Raise if the engine is dead, has stalled, or holds weights of two versions."""
        self._running()

    async def close(self) -> None:
        """End every process of the engine, by force if it does not end in time."""
        llm, self._llm = self._llm, None
        watching, self._watching = self._watching, []
        for task in watching:
            task.cancel()
        await asyncio.gather(*watching, return_exceptions=True)
        self._listener.close()
        if llm is not None:
            await asyncio.to_thread(llm.shutdown, _SHUTDOWN_SECONDS)
            # It lies in cycles, and its finalizer prints an error if it runs when the interpreter ends.
            llm = None
            gc.collect()
        # vLLM ends its processes; a worker whose core was killed may need another word.
        await asyncio.to_thread(end_processes, self._processes)
        self._processes = ()
        self._directory.close()

    async def _end_when_stalled(self) -> None:
        """End the processes of an engine that computes nothing, so that every request ends with an error."""
        self._stalled = await self._stall_watch.wait(self._awaited)
        await asyncio.to_thread(dump_stacks, self.processes_by_log)
        await asyncio.to_thread(end_processes, self._processes)

    def _awaited(self) -> str | None:
        if self._calls:
            return f"it was asked to {self._calls[0]}"
        return f"{self._live} requests are open" if self._live else None

    @contextlib.contextmanager
    def _called(self, what: str) -> Iterator[Any]:
        """The AsyncLLM, while it does what it is asked; what it raises because the engine died is its death."""
        llm = self._running()
        self._calls.append(what)
        try:
            yield llm
        except Exception as error:
            if llm.errored:
                raise self._death() from error
            raise
        finally:
            self._calls.remove(what)

    def _running(self) -> Any:
        if self._llm is None:
            raise EngineError("the engine is not running: start it first")
        if self._llm.errored or self._stalled is not None:
            raise self._death()
        if self._weights.unusable is not None:
            raise EngineUnusableError(self._unusable())
        return self._llm

    def _unusable(self) -> str:
        return f"the engine is not usable: {self._weights.unusable}"

    def _death(self) -> EngineError:
        log = f"the end of {self._log_path}:\n{self._log_tail()}"
        if self._stalled is None:
            return EngineDiedError(f"the engine died; {log}")
        return EngineHungError(f"the engine hung and was ended: {self._stalled} (engine.stall_timeout_seconds); {log}")

    def _log_tail(self) -> str:
        return log_tail(self._log_path, start=self._log_start)
