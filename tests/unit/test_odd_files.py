"""Named pipes, directories and the like in place of a run's files: each command names them, and never waits."""

import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType

import pytest

from sick_runs import Case
from torl.__main__ import run as run_command
from torl.apps.audit.checks import Check
from torl.apps.audit.history import read_file as read_file_of_run
from torl.apps.view.columns import IndexReader
from torl.apps.view.indexing import Indexer
from torl.apps.view.sources import INDEX_FILE, Target
from torl.data.problems import load_problems
from torl.errors import DataError, RecordError
from torl.inputs import open_file, read_file
from torl.records.exchange import read_foreign
from torl.records.files import trajectory_file
from torl.records.receipt import Receipt
from torl.records.rows import encode_row, encode_trajectory
from torl.records.run_directory import write_config
from torl.records.tokens import write_token_numbers

SECONDS = 20


def named_pipe(path: Path) -> None:
    os.mkfifo(path)


def unix_socket(path: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the path of a socket has at most 108 characters
    try:
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path.name)
    finally:
        os.chdir(here)


# By kind: the function that makes it, and the reason in messages.
KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "named pipe": (named_pipe, "it is a named pipe, not a file"),
    "socket": (unix_socket, "it is a socket, not a file"),
    "device": (lambda path: path.symlink_to("/dev/null"), "it is a device, not a file"),
    "directory": (Path.mkdir, "it is a directory, not a file"),
    "symlink loop": (lambda path: path.symlink_to(path.name), "Too many levels of symbolic links"),
    "vanished": (lambda path: path.symlink_to("nothing"), "No such file or directory"),
    "unreadable": (lambda path: path.symlink_to("/proc/self/mem"), "Input/output error"),
}
STEP = "trajectories/step_000003.jsonl"
# By record: the commands that read it.
RECORDS = {
    "config.toml": ("report", "doctor", "verify", "diff", "export"),
    "config.1.toml": ("verify",),
    "metrics.jsonl": ("report", "doctor", "diff", "receipt"),
    STEP: ("report", "doctor", "diff", "receipt", "view", "convert"),
    "tokens/step_000001.npz": ("doctor", "receipt"),
    "receipt.jsonl": ("receipt",),
    "summary.json": ("receipt",),
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of some steps, as far as the commands read it before they need a model."""
    directory = tmp_path_factory.mktemp("odd") / "whole"
    (directory / "trajectories").mkdir(parents=True)
    case = Case()
    write_config(directory, case.config)
    (directory / "config.1.toml").write_text(f"# The configuration from step 0 on.\n{case.config}", encoding="utf-8")
    receipt = Receipt.start(directory, None, {})
    for step in case.steps():
        path = trajectory_file(directory, step.number)
        path.write_bytes(b"".join(encode_row(encode_trajectory(record)) for record in step.records))
        tokens = write_token_numbers(directory, step.number, step.numbers)
        with (directory / "metrics.jsonl").open("ab") as file:
            file.write(encode_row({"step": step.number, "time": 1.0 + step.number, **step.metrics}))
        receipt.append("row", step.number, [path, tokens], row="")
        if step.number == 3:
            break
    (directory / "summary.json").write_text("{}\n", encoding="utf-8")
    receipt.append("end", 4, [directory / "summary.json"])
    return directory


@contextmanager
def limited() -> Iterator[None]:
    """Interrupt a block that waits."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("record", RECORDS)
def test_every_command_names_the_file_and_the_reason(
    whole: Path, tmp_path: Path, record: str, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    make, reason = KINDS[kind]
    odd = shutil.copytree(whole, tmp_path / "odd")
    (odd / record).unlink()
    make(odd / record)
    commands = {
        "report": ["report", str(odd)],
        "doctor": ["doctor", str(odd)],
        "verify": ["verify", str(odd), "--logprob-samples", "0"],
        "receipt": ["verify", str(odd), "--receipt"],
        "diff": ["diff", str(whole), str(odd)],
        "export": ["export", str(odd), str(tmp_path / "model")],
        "view": ["view", "--index-only", str(odd)],
        "convert": ["convert", str(odd / record), str(tmp_path / "converted.jsonl")],
    }
    for name in RECORDS[record]:
        if name == "view" and kind == "unreadable":
            continue  # it has 0 bytes, so the viewer reads none
        with limited():
            status = run_command(commands[name][0], commands[name][1:])
        output = "".join(capfd.readouterr())
        assert Path(record).name in output, (name, output)
        assert reason in output, (name, output)
        assert status == 0 if name == "view" else status in (1, 2), name


@pytest.mark.parametrize("kind", KINDS)
def test_the_audit_counts_the_file_as_a_mismatch(tmp_path: Path, kind: str) -> None:
    make, reason = KINDS[kind]
    make(tmp_path / "step_000001.jsonl")
    check = Check("files")
    with limited():
        assert read_file_of_run(tmp_path / "step_000001.jsonl", check, "16 trajectories") is None
    assert (check.compared, check.wrong) == (1, 1)
    assert reason in check.examples[0]


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"unreadable"}))  # which has 0 bytes, so the viewer reads none
def test_the_viewer_leaves_out_only_the_file_and_reads_it_when_it_is_one(
    whole: Path, tmp_path: Path, kind: str
) -> None:
    odd = shutil.copytree(whole, tmp_path / "odd")
    target = Target("odd", odd)
    with closing(Indexer(target, odd / INDEX_FILE)) as indexer:

        def rows() -> int:
            with limited():
                indexer.update()
            with closing(IndexReader(target, odd / INDEX_FILE)) as reader:
                reader.refresh()
                return len(reader.columns())

        assert (rows(), indexer.unreadable) == (64, [])
        (odd / STEP).unlink()
        KINDS[kind][0](odd / STEP)
        assert (rows(), indexer.unreadable) == (48, [f"{odd / STEP}: cannot be read: {KINDS[kind][1]}"])
        if kind == "directory":
            (odd / STEP).rmdir()
        else:
            (odd / STEP).unlink()
        assert (rows(), indexer.unreadable) == (48, [])
        shutil.copy(whole / STEP, odd / STEP)
        assert (rows(), indexer.unreadable) == (64, [])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("suffix", [".jsonl", ".json", ".csv", ".parquet", ".arrow", ".eval", ".pt"])
def test_readers_of_other_files_name_the_reason(tmp_path: Path, kind: str, suffix: str) -> None:
    path = tmp_path / f"train{suffix}"
    KINDS[kind][0](path)
    with limited(), pytest.raises(RecordError, match=r"train"):
        list(read_foreign(path))
    if suffix in (".eval", ".pt"):
        return
    for named in (path, tmp_path):  # the file, and the directory of a dataset
        with limited(), pytest.raises(DataError, match=r"train"):
            load_problems(named)


@pytest.mark.parametrize("kind", KINDS)
def test_only_regular_files_are_opened(tmp_path: Path, kind: str) -> None:
    make, reason = KINDS[kind]
    make(tmp_path / "file")
    with limited(), pytest.raises(OSError, match=reason):
        read_file(tmp_path / "file")
    (tmp_path / "whole").write_bytes(b"text")
    with open_file(tmp_path / "whole") as file:
        assert file.read() == b"text"
