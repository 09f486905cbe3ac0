"""Output of processes on nodes is found in the run's directory: logs, stacks, and the names of logs in errors."""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from clusters import NodesInOneProcess
from scripted_engine import ScriptedEngine
from torl.base.errors import EngineError
from torl.base.runtime.cluster.logs import LogFolder, gather_logs
from torl.components.engine.protocol import EngineMemoryPart
from torl.components.engine.remote import RemoteEngine

PROCESS = """
from torl.base.runtime.processes.hangs import enable_stack_dumps
import time
enable_stack_dumps()
print("ready", flush=True)
time.sleep(600)
"""


class EngineWithProcess(ScriptedEngine):
    """Its process writes to a log file, and its stacks when it is asked."""

    def __init__(self, log: Path) -> None:
        super().__init__(lambda _: [5])
        self.log = log

    async def start(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen([sys.executable, "-c", PROCESS], stdout=output, stderr=output)

    @property
    def processes_by_log(self) -> Mapping[Path, Sequence[int]]:
        return {self.log: [self.process.pid]}

    async def wake(self, part: EngineMemoryPart) -> None:
        raise EngineError(f"no {part}; the end of {self.log}: ...")

    async def close(self) -> None:
        self.process.kill()
        self.process.wait()
        with self.log.open("a") as log:
            log.write("the last word")


async def until_written(log: Path, text: str) -> None:
    while not log.exists() or text not in log.read_text():
        await asyncio.sleep(0.01)


async def test_the_log_and_the_stacks_of_an_engine_on_a_node_come_while_it_runs(tmp_path: Path) -> None:
    log, engines = tmp_path / "logs" / "engine_0.log", list[EngineWithProcess]()

    def make(there: Path) -> EngineWithProcess:
        engines.append(EngineWithProcess(there))
        return engines[-1]

    placed = RemoteEngine(NodesInOneProcess(1), make, node=0, name="engine 0", log=log, policy_version=0, receivers=1)
    await placed.start()
    await until_written(log, "ready")
    await placed.dump_remote_stacks()
    await until_written(log, 'File "<string>", line 6')
    with pytest.raises(EngineError, match=f"no cache; the end of {log}"):
        await placed.wake("cache")
    await placed.close()
    there = engines[0].log
    assert log.read_text().endswith("the last word")
    assert there.name == log.name
    assert not there.parent.exists()  # nothing is left on the node


class Writer:
    """Has a folder with logs."""

    def __init__(self) -> None:
        self.folder = LogFolder()
        self.logs = self.folder.tail


async def test_logs_append_to_earlier_attempts_and_survive_a_loss(tmp_path: Path) -> None:
    cluster = NodesInOneProcess(1)
    (tmp_path / "a.log").write_text("earlier\n")
    writer = Writer()
    role = await cluster.start_actor(0, lambda: writer, name="the writer")
    gathering = asyncio.create_task(gather_logs(role, tmp_path))
    large = "x" * (3 << 20)
    for name, text in [("a.log", "now\n"), ("b.log", large), ("a.log", "and on\n")]:
        with (writer.folder.path / name).open("a") as log:
            log.write(text)
        await until_written(tmp_path / name, text)
    await cluster.lose(0)
    await gathering
    assert (tmp_path / "a.log").read_text() == "earlier\nnow\nand on\n"
    assert (tmp_path / "b.log").read_text() == large


def test_a_folder_of_a_killed_actor_is_removed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "import os; from torl.base.runtime.cluster.logs import LogFolder; LogFolder(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(tmp_path)}, check=False)
    (abandoned,) = tmp_path.iterdir()
    folders = [LogFolder(), LogFolder()]
    assert not abandoned.exists()
    assert {*tmp_path.iterdir()} == {folder.path for folder in folders}
