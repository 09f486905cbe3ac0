"""CPU time that vLLM's front ends add to the controller's: eight of them, in its process.

    python -m benchmarks.rollout.front_ends [--prompts 128] [--samples 16] [--engines 8] [--rounds 3]

A step is played as in `step_budget.py`, by engines that cost nothing ("free") and by real `VllmEngine`s with vLLM's own
`AsyncLLM` ("vllm"), whose cores are one stub process: it gives prepared turns over vLLM's sockets, after a delay
(`front_ends_core.py`). CPU time is that of the controller's process with all its threads, without its children. The
last line is JSON, with the best round of each.
"""

import argparse
import asyncio
import json
import pickle
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.rollout import front_ends_core, step_budget
from benchmarks.rollout.step_budget import MODEL, Meter, play
from torl.base.paths import resolve_path
from torl.base.runtime.processes.resources import exclude_from_collection
from torl.base.types import SampledTurn
from torl.components.engine import EngineSetup, VllmEngine
from torl.components.engine.protocol import Engine
from torl.components.engine.vllm.arguments import EngineDevices, engine_arguments
from torl.components.engine.vllm.options import VllmOptions
from torl.components.engine.vllm.process_setup import log_to_file
from torl.components.text.tokenizer import load_tokenizer
from torl.components.text.vocabulary import build_vocabulary

MAX_TOKENS = 8192
KINDS = ("free", "vllm")


class FrontEnd(VllmEngine):
    """vLLM's front end, connected to a stub core through sockets in a directory."""

    def __init__(self, setup: EngineSetup, directory: Path) -> None:
        super().__init__(setup, VllmOptions())
        self._sockets = directory

    async def start(self) -> None:
        log_to_file(self._log_path)
        self._listener.open(self._sockets)
        self._llm = await asyncio.to_thread(self._build)

    def _build(self) -> Any:
        from vllm.config.logging import LoggingConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
        from vllm.v1.engine.async_llm import AsyncLLM

        known = list(AsyncEngineArgs.__dataclass_fields__)
        arguments = engine_arguments(self._setup, self._options, EngineDevices(on_cpu=True, ids=()), known)
        logging = LoggingConfig(configure_logging=False)
        config = AsyncEngineArgs(**arguments, logging_config=logging).create_engine_config()
        exclude_from_collection()
        addresses = {f"{way}_address": f"ipc://{self._sockets / way}" for way in ("input", "output")}
        return AsyncLLM.from_vllm_config(config, disable_log_stats=True, client_addresses=addresses)


class StubbedEngines:
    """Makes the engines of a round; the first one starts the process with all their cores."""

    def __init__(self, engines: int, directory: Path) -> None:
        self._engines = engines
        self._directory = directory
        self._made = 0
        self._core = ExitStack()
        model = copy_model(directory / "model")
        tokenizer = load_tokenizer(model)
        self._setup = EngineSetup(
            model=model,
            vocabulary=build_vocabulary(tokenizer),
            max_model_tokens=MAX_TOKENS,
            stop_token_ids=(tokenizer.eos_token_id,),
            log_path=directory / "engine.log",
        )

    def __call__(self, first: list[SampledTurn], last: list[SampledTurn], prompt_tokens: int) -> Engine:
        if self._made == 0:
            self._start_core((first, last, prompt_tokens))
        number, self._made = self._made, self._made + 1
        return FrontEnd(self._setup, self._directory / str(number))

    def _start_core(self, turns: tuple[list[SampledTurn], list[SampledTurn], int]) -> None:
        for number in range(self._engines):
            (self._directory / str(number)).mkdir()
        file = self._directory / "turns.pickle"
        file.write_bytes(pickle.dumps(turns))
        command = [sys.executable, "-m", front_ends_core.__name__, str(file), str(self._directory), str(self._engines)]
        process = self._core.enter_context(subprocess.Popen(command))
        self._core.callback(process.kill)

    def close(self) -> None:
        """End the cores."""
        self._core.close()


def copy_model(directory: Path) -> Path:
    """The demo's model, with a context that is long enough."""
    shutil.copytree(resolve_path(MODEL), directory)
    config = json.loads((directory / "config.json").read_text()) | {"max_position_embeddings": MAX_TOKENS}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def measure(kind: str, size: Any) -> Meter:
    """One step with engines of this kind."""
    with TemporaryDirectory(prefix="torl-front-ends-") as path:
        run = Path(path, "run")
        run.mkdir()
        if kind == "free":
            return asyncio.run(play(size, run, None))
        engines = StubbedEngines(size.engines, Path(path))
        try:
            return asyncio.run(play(size, run, None, engine=engines))
        finally:
            engines.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=128)
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--engines", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    size = parser.parse_args(namespace=argparse.Namespace(calls=1))
    step_budget.SECONDS = front_ends_core.SECONDS
    episodes = size.prompts * size.samples
    milliseconds: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(size.rounds):
        for kind in KINDS:
            milliseconds[kind].append(1000 * measure(kind, size).seconds["play"] / episodes)
            print(f"{kind:6}{milliseconds[kind][-1]:6.2f} ms of rollouts an episode", flush=True)
    free, vllm = (min(milliseconds[kind]) for kind in KINDS)
    result = {
        "episodes": episodes,
        "engines": size.engines,
    }
    result |= {"free_ms": round(free, 3), "vllm_ms": round(vllm, 3), "front_end_ms": round(vllm - free, 3)}
    print(json.dumps(result))


if __name__ == "__main__":
    main()
