"""Runs of torl's own commands, watched from outside: output, exit, and the files and processes they leave."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
DEMO = str(ROOT / "python" / "torl" / "presets" / "demo.toml")
_MARK = "TORL_TEST_RUN"


class Command:
    """A command with all its descendants, found by a mark in their environment."""

    def __init__(self, module: str, *arguments: str, log: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.log = log
        command = [sys.executable, "-m", module, *arguments]
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, env={**os.environ, _MARK: self.mark}, cwd=ROOT
            )

    def output(self) -> str:
        return self.log.read_text(errors="replace")

    def last_json(self) -> dict[str, Any]:
        """The last line that was printed."""
        loaded: dict[str, Any] = json.loads(self.output().strip().splitlines()[-1])
        return loaded

    def processes(self, containing: str = "") -> list[int]:
        """The living processes of the run, without the command itself, whose command line contains a text."""
        found = []
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit() or int(entry.name) == self.process.pid:
                continue
            with contextlib.suppress(OSError):
                if f"{_MARK}={self.mark}".encode() not in (entry / "environ").read_bytes():
                    continue
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                if containing in line and " Z " not in (entry / "stat").read_text():
                    found.append(int(entry.name))
        return found

    def wait(self, seconds: float = 240) -> int:
        """The exit status; fails if the command does not end."""
        return self.process.wait(timeout=seconds)

    def wait_for(self, path: Path, text: str = "", seconds: float = 240) -> None:
        """Until a file holds a text."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if path.exists() and text in path.read_text(errors="replace"):
                return
            assert self.process.poll() is None, f"ended before {path.name} held {text!r}:\n{self.output()}"
            time.sleep(0.05)
        raise AssertionError(f"{path.name} does not hold {text!r} after {seconds} s:\n{self.output()}")

    def assert_nothing_left(self, seconds: float = 15) -> None:
        """Check that every process that the command started exits within moments."""
        deadline = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.1)
        lines = [Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ")[:200] for pid in left]
        assert not left, lines

    def close(self) -> None:
        """End what is left, so that a failing test leaves a clean machine."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


@contextlib.contextmanager
def running(module: str, *arguments: str, log: Path) -> Iterator[Command]:
    """Start a command and make sure that it is over afterwards."""
    command = Command(module, *arguments, log=log)
    try:
        yield command
    finally:
        command.close()


def training(settings: Mapping[str, str], *, log: Path) -> AbstractContextManager[Command]:
    """Start `torl train` on the demo with these settings by dotted name, as `running` does."""
    return running("torl.train", *training_words(settings), log=log)


def training_words(settings: Mapping[str, str]) -> list[str]:
    """The demo with these settings by dotted name, as words after `torl train`."""
    settings = {"engine.cpu_kv_cache_gib": "0.25", **settings}  # the system takes up to a second for 1 GiB
    return [DEMO, *(word for name, value in settings.items() for word in (f"--{name}", value))]
