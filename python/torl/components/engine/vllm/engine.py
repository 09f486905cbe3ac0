"""vLLM's asynchronous engine as an `Engine`, with the same code for CUDA and CPU.

The engine runs in separate processes (see `process_setup`), with `scheduler` and `worker`. This process only
sends requests and reads tokens.
"""

import asyncio
import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from torl.base.errors import ConfigError, EngineDiedError, EngineError, EngineHungError, EngineUnusableError, TorlError
from torl.base.runtime.processes.children import describe_exit, first_line, log_tail
from torl.base.runtime.processes.hangs import dump_stacks
from torl.base.types import SampledTurn, TurnRequest
from torl.components.engine.protocol import NO_POLICY, WATCH_SECONDS, Engine, EngineMemoryPart, EngineSetup
from torl.components.engine.vllm.arguments import EngineDevices
from torl.components.engine.vllm.launch import Launch, LaunchPaths
from torl.components.engine.vllm.messages import Listener, sampled_turn, sampling_params
from torl.components.engine.vllm.options import VllmOptions
from torl.components.engine.vllm.processes import (
    EngineDirectory,
    EngineProcess,
    StallWatch,
    end_processes,
    fail_calls_on_engine_death,
)
from torl.components.engine.vllm.weights import EngineWeights
from torl.components.weights.rendezvous import Receivers, Rendezvous

_SHUTDOWN_TIMEOUT_SECONDS = 10.0  # then vLLM kills its processes
_EXIT_TIMEOUT_SECONDS = 120.0  # of a core that has aborted its requests, on a busy machine


class VllmEngine(Engine):
    """One vLLM engine, tensor parallel over its devices."""

    def __init__(self, setup: EngineSetup, options: VllmOptions, *, number: int = 0) -> None:
        """Describe the replica with this number; `start` starts it."""
        self._setup = setup
        self._options = options
        self._number = number
        self._log_path = setup.log_path
        if options.engines > 1:
            self._log_path = setup.log_path.with_stem(f"{setup.log_path.stem}_{number}")
        self._log_start = 0
        self._directory = EngineDirectory()
        self._stall_watch = StallWatch(setup.stall_timeout_seconds)
        self._watchers: list[asyncio.Task[None]] = []
        self._stall: str | None = None
        self._listener = Listener(on_step=self._stall_watch.step)
        self._weights = EngineWeights(setup.policy_version if setup.load_weights else NO_POLICY, options)
        self._live = 0
        self._calls: list[str] = []  # pending calls other than requests
        self._llm: Any = None
        self._cores: Sequence[BaseProcess] = ()
        self._processes: tuple[EngineProcess, ...] = ()
        self._devices = EngineDevices(on_cpu=False, ids=())  # until the start

    @property
    def policy_version(self) -> int:
        return self._weights.version

    @property
    def live_requests(self) -> int:
        """Number of pending requests."""
        return self._live

    @property
    def processes(self) -> tuple[EngineProcess, ...]:
        """The engine's processes: its core first, then its workers if they are separate processes."""
        return self._processes

    @property
    def processes_by_log(self) -> dict[Path, list[int]]:
        return {self._log_path: [process.pid for process in self._processes if process.is_alive]}

    async def start(self) -> None:
        """Start the engine's processes and load the model (about 15-30 s on a CPU).

        Raises:
            ConfigError: `engine.arguments` contains an argument that vLLM does not have or torl sets.
            EngineError: The engine did not start. The message contains the end of its log; nothing is left running.
        """
        if self._llm is not None:
            raise EngineError("the engine is already started")
        log = self._log_path
        log.parent.mkdir(parents=True, exist_ok=True)
        self._log_start = log.stat().st_size if log.exists() else 0
        try:
            directory = self._directory.open()
            paths = LaunchPaths(self._number, directory, self._log_path, self._listener.open(directory))
            self._llm, self._devices = await self._run(Launch(self._setup, self._options, paths))
            self._watchers.append(asyncio.ensure_future(fail_calls_on_engine_death(self._llm)))
            with self._calling("free what its start needed") as llm:
                await llm.collective_rpc("torl_unlink_shared_memory")
                await llm.collective_rpc("torl_free_loading_memory")
            pids = [worker["pid"] for worker in await self.describe_workers()]
            self._cores = self._llm.engine_core.resources.engine_manager.processes
            cores = [core.pid for core in self._cores]
            self._processes = tuple(EngineProcess.from_pid(pid) for pid in dict.fromkeys([*cores, *pids]))
            self._watchers.append(asyncio.ensure_future(self._end_when_stalled()))
        except BaseException:
            await self.close()
            raise

    async def _run(self, launch: Launch) -> tuple[Any, EngineDevices]:
        try:
            return await launch.run()
        except ConfigError:
            raise
        except Exception as error:
            raise EngineError(f"the engine did not start: {first_line(error)}\n{self._log_tail()}") from error

    async def sample(self, request: TurnRequest, on_block: Callable[[str], None] | None = None) -> SampledTurn:
        from vllm.inputs.engine import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError

        await self._weights.wait_until_received()
        llm = self._running()
        if self.policy_version == NO_POLICY:
            raise EngineError("the engine has no weights: send weights first")
        if on_block is not None:
            self._listener.subscribe(request.id, on_block)
        stream = llm.generate(
            tokens_input(list(request.prefix), cache_salt=self._weights.cache_salt(request.start_version)),
            sampling_params(request, self._setup.stop_token_ids),
            request.id,
            priority=request.episode,
        )
        self._live += 1
        finished = False
        try:
            async for output in stream:
                finished = True
                if output.outputs[0].finish_reason == "abort":
                    await self._raise_death_of_stopped(llm)
                return sampled_turn(output, self._weights.spans)
            raise EngineError(f"the engine never ended request {request.id}")
        except EngineDeadError as error:
            raise self._death() from error
        except (EngineError, asyncio.CancelledError):
            raise
        except Exception as error:
            if llm.errored:
                raise self._death() from error
            raise EngineError(f"the engine refused request {request.id}: {first_line(error)}") from error
        finally:
            self._live -= 1
            self._listener.unsubscribe(request.id)
            await stream.aclose()
            if not finished and not llm.errored:
                await llm.abort(request.id)  # vLLM does not if it is cancelled while it accepts the request

    async def select_receivers(self) -> Receivers:
        count = self._options.tensor_parallel
        return Receivers(count, nodes=(0,) * count, changed=True)

    async def receive_weights(self, rendezvous: Rendezvous, policy_version: int, *, first: int = 0) -> None:
        """Receive new weights. `VllmOptions.on_weight_update` defines the handling of turns in flight."""
        with self._calling("take weights") as llm:
            try:
                live = self.live_requests > 0
                await self._weights.receive(llm, rendezvous, policy_version, first=first, live=live)
            except Exception as error:
                raise EngineUnusableError(f"{self._unusable()}: {first_line(error)}") from error

    async def weight_checksums(self) -> list[dict[str, str]]:
        """vLLM's checksums of each worker's parameters, by their names in vLLM, fused and processed."""
        with self._calling("compute checksums of its weights") as llm:
            checksums: list[dict[str, str]] = await llm.compute_weight_checksums()
        return checksums

    async def describe_workers(self) -> list[dict[str, Any]]:
        """Properties of each worker: "pid", "threads" (compute threads), "compiles" (whether torch.compile is on)."""
        with self._calling("describe its workers") as llm:
            workers: list[dict[str, Any]] = await llm.collective_rpc("torl_describe")
        return workers

    async def sleep(self) -> None:
        """Drop the weights and the cache. On a CPU, only stop sampling."""
        with self._calling("sleep") as llm:
            await self._weights.sleep(llm, self._devices)

    async def wake(self, part: EngineMemoryPart) -> None:
        with self._calling("wake") as llm:
            await self._weights.wake(llm, self._devices, part)

    def check(self) -> None:
        """Raise if the engine is dead, hangs, or holds weights of two versions."""
        self._running()

    async def close(self) -> None:
        """Stop every process of the engine; kill processes that take too long."""
        llm, self._llm = self._llm, None
        watchers, self._watchers = self._watchers, []
        for task in watchers:
            task.cancel()
        await asyncio.gather(*watchers, return_exceptions=True)
        self._listener.close()
        if llm is not None:
            await asyncio.to_thread(llm.shutdown, _SHUTDOWN_TIMEOUT_SECONDS)
            # It is part of reference cycles, and its finalizer prints an error if it runs at interpreter exit.
            llm = None
            gc.collect()
        # vLLM ends its processes, but not always a worker whose core was killed.
        await asyncio.to_thread(end_processes, self._processes)
        self._processes, self._cores = (), ()
        self._directory.close()

    async def _end_when_stalled(self) -> None:
        """Kill the processes of an engine that hangs, so that every request fails."""
        self._stall = await self._stall_watch.wait(self._pending_work)
        await asyncio.to_thread(dump_stacks, self.processes_by_log)
        await asyncio.to_thread(end_processes, self._processes)

    def _pending_work(self) -> str | None:
        if self._calls:
            return f"it was asked to {self._calls[0]}"
        return f"{self._live} requests are pending" if self._live else None

    @contextlib.contextmanager
    def _calling(self, call: str) -> Iterator[Any]:
        """Yield the AsyncLLM for a call, described by an infinitive. If the engine dies, its death is raised.

        A core that loses a worker may fail the call before the AsyncLLM knows of it.
        """
        llm = self._running()
        self._calls.append(call)
        try:
            yield llm
        except Exception as error:
            if llm.errored:
                raise self._death() from error
            if isinstance(error, TorlError):
                raise
            raise EngineError(f"the engine failed to {call}: {error}") from error
        finally:
            self._calls.remove(call)

    def _running(self) -> Any:
        if self._llm is None:
            raise EngineError("the engine is not running: start it first")
        if self._llm.errored or self._stall is not None:
            raise self._death()
        if self._weights.unusable is not None:
            raise EngineUnusableError(self._unusable())
        return self._llm

    def _unusable(self) -> str:
        return f"the engine is not usable: {self._weights.unusable}"

    def _death(self) -> EngineError:
        log = f"the end of {self._log_path}:\n{self._log_tail()}"
        if self._stall is None:
            status = next((core.exitcode for core in self._cores if core.exitcode), None)
            return EngineDiedError(f"the engine {'died' if status is None else describe_exit(status)}\n{log}")
        return EngineHungError(
            f"the engine hung and was killed: {self._stall} (half of rollout.stall_timeout_seconds)\n{log}"
        )

    async def _raise_death_of_stopped(self, llm: Any) -> None:
        """Raise the death of a core that ends by a signal: it aborts its requests before it exits."""
        for _ in range(round(_EXIT_TIMEOUT_SECONDS / WATCH_SECONDS)):
            if llm.errored:
                raise self._death()
            if self._llm is not llm:  # it was closed
                return
            await asyncio.sleep(WATCH_SECONDS)

    def _log_tail(self) -> str:
        return log_tail(self._log_path, start=self._log_start)
