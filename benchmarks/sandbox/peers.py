"""Peers of the sandbox for `benchmarks/sandbox/speed.py`. Each engine times its own runs, one lane for each core."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from torl_sandbox import SandboxPool

# One thread for each run: the cores are for other runs.
ENVIRONMENT = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
PEERS = ("sympy==1.14.0", "numpy", "scipy")  # the newest that PYTHON has wheels for
ERYX = "pyeryx==0.11.0"
MONTY = "pydantic-monty==1.4.0"
PROGRAM = Path(__file__).with_name("peer_program.py")


class UnavailableError(Exception):
    """The peer does not run here; says why."""


@dataclass(frozen=True)
class Runs:
    """Some runs of one snippet: how long each took as its caller saw it, and what the last one wrote."""

    seconds: list[float]
    text: str


class Engine(Protocol):
    """Runs snippets, each in a fresh state."""

    name: str
    about: str

    def run(self, code: str, repeat: int, lane: int = 0) -> Runs:
        """Run `code` `repeat` times, one after the other; lanes may be used at once."""
        ...

    def rate(self, code: str, count: int) -> float:
        """Runs in a second with all cores busy."""
        ...


def timed(run: Callable[[], str], repeat: int) -> Runs:
    seconds, text = [], ""
    for _ in range(repeat):
        started = time.perf_counter()
        text = run()
        seconds.append(time.perf_counter() - started)
    return Runs(seconds, text)


class Lanes:
    """An engine whose lanes are used by one thread each."""

    lanes: int

    def run(self, code: str, repeat: int, lane: int = 0) -> Runs:
        raise NotImplementedError

    def rate(self, code: str, count: int) -> float:
        each = max(1, count // self.lanes)
        with ThreadPoolExecutor(self.lanes) as threads:
            started = time.perf_counter()
            list(threads.map(lambda lane: self.run(code, each, lane), range(self.lanes)))
            return each * self.lanes / (time.perf_counter() - started)


class Torl:
    """The sandbox, with nothing answered from memory."""

    def __init__(self, name: str, about: str, **settings: Any) -> None:
        self.name, self.about = name, about
        self.pool = SandboxPool(result_cache_bytes=0, **settings)

    def run(self, code: str, repeat: int, lane: int = 0) -> Runs:
        def once() -> str:
            outcome = self.pool.run(code)
            return outcome.stdout + outcome.stderr

        return timed(once, repeat)

    def rate(self, code: str, count: int) -> float:
        started = time.perf_counter()
        self.pool.run_batch([code] * count)
        return count / (time.perf_counter() - started)


class FreshProcess(Lanes):
    """`python -c`."""

    name = "python -c"

    def __init__(self, python: str, lanes: int) -> None:
        self.command, self.lanes = [python, "-c"], lanes
        version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.split()[1]
        self.about = f"CPython {version}, a new process for each run"

    def run(self, code: str, repeat: int, lane: int = 0) -> Runs:
        def once() -> str:
            done = subprocess.run([*self.command, code], capture_output=True, text=True, env=ENVIRONMENT)
            return done.stdout + done.stderr

        return timed(once, repeat)


class Program(Lanes):
    """One of the peers in `peer_program.py`, a process for each lane."""

    def __init__(self, kind: str, name: str, python: str, directory: Path, lanes: int) -> None:
        self.name, self.lanes = name, lanes
        command = [python, str(PROGRAM), kind, str(directory)]
        self.processes: list[subprocess.Popen[str]] = []
        for _ in range(lanes):  # one after the other: the first may prepare what the others load
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT
            )
            self.processes.append(process)
            greeting = self._answer(process)
            if "about" not in greeting:
                self.close()
                raise UnavailableError(greeting["error"])
            self.about = greeting["about"]

    def run(self, code: str, repeat: int, lane: int = 0) -> Runs:
        answer = self.ask(code, repeat, lane)
        return Runs(answer["seconds"], answer["text"])

    def ask(self, code: str, repeat: int, lane: int = 0) -> dict[str, Any]:
        process = self.processes[lane]
        assert process.stdin is not None
        process.stdin.write(json.dumps({"code": code, "repeat": repeat}) + "\n")
        process.stdin.flush()
        return self._answer(process)

    def _answer(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise UnavailableError(f"its process ended with status {process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def close(self) -> None:
        for process in self.processes:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(10)


class SandboxFusion(Lanes):
    """Its own server, started on the loopback interface, asked as verl asks it."""

    name = "SandboxFusion"

    def __init__(self, source: Path, directory: Path, runtime: str, lanes: int) -> None:
        self.lanes = lanes
        home = directory / "sandboxfusion"
        self._prepare(source, home, runtime)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = [str(home / "server" / "bin" / "python"), "-m", "uvicorn", "sandbox.server.server:app"]
        with open(home / "server.log", "w") as log:
            self.process = subprocess.Popen(
                [*command, "--host", "127.0.0.1", "--port", str(self.port), "--timeout-keep-alive", "3600"],
                cwd=home / "source",
                env=ENVIRONMENT,
                stdout=log,
                stderr=log,
            )
        deadline = time.monotonic() + 90
        while True:
            try:
                self.connections = [http.client.HTTPConnection("127.0.0.1", self.port) for _ in range(lanes)]
                self.run("print(1)", 1)
                break
            except (OSError, UnavailableError) as error:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    self.close()
                    raise UnavailableError(f"its server did not start ({error}): see {home / 'server.log'}") from error
                time.sleep(0.5)
        self.about = f"its own server, one process, isolation none (its default), runs {runtime}"

    @staticmethod
    def _prepare(source: Path, home: Path, runtime: str) -> None:
        """The environments of its Dockerfile: a server in a conda root with an environment for the runs."""
        if not (source / "sandbox" / "server" / "server.py").is_file():
            raise UnavailableError(f"{source} is not a checkout of it")
        shutil.copytree(source, home / "source", dirs_exist_ok=True, ignore=shutil.ignore_patterns(".git"))
        (home / "source" / "docs" / "build").mkdir(parents=True, exist_ok=True)
        (home / "condabin").mkdir(exist_ok=True)
        (home / "bin").mkdir(exist_ok=True)
        (home / "bin" / "activate").write_text(f'export PATH="{Path(runtime).parent}:$PATH"\n')
        if not (home / "server" / "installed").exists():
            make_environment(home / "server", sys.executable, SANDBOX_FUSION_NEEDS)
            (home / "server" / "installed").touch()

    def run(self, code: str, repeat: int, lane: int = 0) -> Runs:
        connection = self.connections[lane]
        body = json.dumps(
            {
                "code": code,
                "language": "python",
                "stdin": None,
                "compile_timeout": 30,
                "run_timeout": 30,
                "memory_limit_MB": -1,
                "files": {},
                "fetch_files": [],
            }
        )

        def once() -> str:
            connection.request("POST", "/run_code", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer = json.loads(response.read())
            result = answer.get("run_result")
            if response.status != 200 or result is None:
                raise UnavailableError(f"it answered {response.status} {answer.get('message') or answer}")
            return str(result["stdout"]) + str(result["stderr"])

        return timed(once, repeat)

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(20)


SANDBOX_FUSION_NEEDS = (
    "pydantic>=2.4,<2.7",
    "fastapi>=0.103.1,<0.104",
    "uvicorn[standard]==0.25.0",
    "structlog>=23.1,<24",
    "psutil>=5.9.8,<6",
    "aiofiles>=23.2.1,<24",
    "aiohttp>=3.9.5,<4",
    "tenacity>=8.4.2,<9",
    "databases[aiomysql,aiosqlite]>=0.9,<0.10",
    "transformers>=4.44,<5",
    "numpy<3",
)


def make_environment(directory: Path, python: str, packages: tuple[str, ...]) -> None:
    """A virtual environment with `packages`, wheels alone."""
    subprocess.run([python, "-m", "venv", "--clear", str(directory)], check=True)
    install(directory, packages)


def install(directory: Path, packages: tuple[str, ...]) -> None:
    command = [str(directory / "bin" / "python"), "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
    done = subprocess.run([*command, *packages], stdout=sys.stderr, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise UnavailableError(f"cannot install {' '.join(packages)}: {done.stderr.strip().splitlines()[-1]}")


@contextmanager
def engines(
    directory: Path, python: str, sandbox_fusion: Path | None, lanes: int
) -> Iterator[tuple[list[Engine], dict[str, str]]]:
    """Every peer that runs here, and why the others do not. Ends them afterwards."""
    runtime = str(directory / "environment" / "bin" / "python")
    if not (directory / "environment" / "installed").exists():
        directory.mkdir(parents=True, exist_ok=True)
        make_environment(directory / "environment", python, PEERS)
        try:
            install(directory / "environment", (ERYX,))
        except UnavailableError as error:  # it has wheels for CPython 3.12 and later
            print(error, file=sys.stderr)
        (directory / "environment" / "installed").touch()

    def fusion() -> Engine:
        if sandbox_fusion is None:
            raise UnavailableError("its source was not given (--sandboxfusion)")
        return SandboxFusion(sandbox_fusion, directory, runtime, lanes)

    def monty() -> Engine:
        own = directory / "monty"
        if not (own / "installed").exists():
            make_environment(own, python, (MONTY,))
            (own / "installed").touch()
        return Program("monty", "pydantic-monty", str(own / "bin" / "python"), directory, lanes)

    makers: dict[str, Callable[[], Engine]] = {
        "python -c": lambda: FreshProcess(runtime, lanes),
        "fork": lambda: Program("fork", "fork", runtime, directory, lanes),
        "pyeryx": lambda: Program("pyeryx", "pyeryx", runtime, directory, lanes),
        "pydantic-monty": monty,
        "SandboxFusion": fusion,
    }
    running: list[Engine] = []
    missing: dict[str, str] = {}
    try:
        for name, make in makers.items():
            try:
                running.append(make())
            except UnavailableError as error:
                missing[name] = str(error)
        yield running, missing
    finally:
        for engine in running:
            if isinstance(engine, Program | SandboxFusion):
                engine.close()
