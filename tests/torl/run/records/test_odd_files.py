"""Named pipes, devices, deep nesting and bombs in place of files: each command names them, and never waits."""

import json
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType

import pyarrow
import pytest
from safetensors import safe_open

from builders import write_config
from planted_runs import Case
from torl.__main__ import main
from torl.base.errors import CheckpointError, DataError, RecordError, TorlError
from torl.base.inputs import open_file, read_file
from torl.base.paths import resolve_path
from torl.components.data.problems import load_problems
from torl.components.hub import require_trainable, resolve_model, resolve_model_config
from torl.components.hub.shape import ModelShape
from torl.components.text.tokenizer import load_tokenizer, stop_token_ids
from torl.components.tools.search_index import Corpus
from torl.learner.checkpoint.shards import ShardIndex, read_facts
from torl.rollout.model_directory import context_window
from torl.run.records.files import trajectory_file
from torl.run.records.receipt import Receipt
from torl.run.records.rows import encode_row, encode_trajectory
from torl.run.records.tokens import write_token_numbers
from torl.training.policy_versions import load_model
from torl_lab.audit.checks import Check
from torl_lab.audit.history import read_file as read_file_of_run
from torl_lab.exchange import read_foreign
from torl_lab.view.columns import IndexReader
from torl_lab.view.indexing import Indexer
from torl_lab.view.sources import INDEX_FILE, Target

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


def words_of(command: str, whole: Path, odd: Path, record: str) -> list[str]:
    """Return the words of a command that reads the run `odd`."""
    out = odd.parent / "out"
    suite = ["--suite", "torl:demo/problems/heldout.jsonl", "--output", str(out)]
    words = {
        "receipt": ["verify", str(odd), "--receipt"],
        "verify": ["verify", str(odd), "--logprob-samples", "0"],
        "diff": ["diff", str(whole), str(odd)],
        "diff of the odd run": ["diff", str(odd), str(whole)],
        "report of two": ["report", str(whole), str(odd), "--output", str(out)],
        "export": ["export", str(odd), str(out)],
        "view": ["view", "--index-only", str(odd)],
        "convert": ["convert", str(odd / record), str(out)],
        "replay": ["replay", str(odd), "--step", "1"],
        "evaluate": ["evaluate", str(odd), *suite],
        "evaluate with it": ["evaluate", "torl:demo/base_model", *suite, "--config", str(odd)],
        "extend it": ["plan", str(odd.parent / "extending.toml")],
    }
    return words.get(command, [command, str(odd)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("record", RECORDS)
def test_every_command_names_the_file_and_the_reason(
    whole: Path, tmp_path: Path, record: str, kind: str, capfd: pytest.CaptureFixture[str]
) -> None:
    make, reason = KINDS[kind]
    odd = shutil.copytree(whole, tmp_path / "odd")
    (odd / record).unlink()
    make(odd / record)
    for name in RECORDS[record]:
        if name == "view" and kind == "unreadable":
            continue  # it has 0 bytes, so the viewer reads none
        command, *arguments = words_of(name, whole, odd, record)
        with limited():
            status = main([command, *arguments])
        output = "".join(capfd.readouterr())
        assert Path(record).name in output, (name, output)
        assert reason in output, (name, output)
        assert status == 0 if name == "view" else status in (1, 2), name


@pytest.mark.parametrize("record", [record for record in RECORDS if not record.startswith("tokens")])
def test_every_command_names_a_file_that_is_nested_too_deeply(
    whole: Path, tmp_path: Path, record: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """Python's parsers raise a RecursionError, not a ValueError."""
    odd = shutil.copytree(whole, tmp_path / "odd")
    (odd / record).write_text("x = " + 5_000 * "[" if record.endswith("toml") else 200_000 * "[" + "\n")
    (tmp_path / "extending.toml").write_text('extends = "odd"\n')
    more = ("diff of the odd run", "report of two", "replay", "evaluate", "evaluate with it", "sample", "plan", "train")
    for name in RECORDS[record] + ((*more, "finetune", "extend it") if record == "config.toml" else ()):
        command, *arguments = words_of(name, whole, odd, record)
        with limited():
            status = main([command, *arguments])
        output = "".join(capfd.readouterr())
        if name == "receipt" and record != "receipt.jsonl":
            assert "has changed since it was written" in output, output  # it compares bytes
        elif name == "view":
            assert (status, "Traceback" in output) == (0, False), output  # the row is shown as damaged
            continue
        else:
            assert f"{Path(record).name}" in output, (name, output)
            assert "nested too deeply" in output, (name, output)
        assert status in (1, 2), name


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


MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "additional_chat_templates/default.jinja",
    "model.safetensors",
    "../shard.safetensors",
)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model whose weights are in a file that its index names."""
    directory = shutil.copytree(resolve_path("torl:demo/base_model"), tmp_path / "model")
    (directory / "additional_chat_templates").mkdir()
    (directory / "model.safetensors").rename(tmp_path / "shard.safetensors")
    with safe_open(tmp_path / "shard.safetensors", framework="pt") as weights:
        index = {"metadata": {}, "weight_map": dict.fromkeys(weights.keys(), "../shard.safetensors")}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory


@pytest.mark.parametrize("kind", ["named pipe", "socket", "device"])
@pytest.mark.parametrize("name", MODEL_FILES)
def test_the_files_of_a_model_are_regular(model: Path, name: str, kind: str) -> None:
    make, reason = KINDS[kind]
    (model / name).unlink(missing_ok=True)
    make(model / name)
    for read in (resolve_model, resolve_model_config, lambda path: load_model(Path(path))):
        with limited(), pytest.raises(DataError, match=f"{Path(name).name}.*{reason}"):
            read(str(model))


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_deeply_nested_file_of_a_model_is_an_error_of_one_line(model: Path, name: str) -> None:
    (model / name).write_text(200_000 * "[")
    readers: dict[str, tuple[Callable[[Path], object], ...]] = {
        "config.json": (load_model, context_window, require_trainable, ModelShape.read),
        "generation_config.json": (lambda path: stop_token_ids(path, load_tokenizer(path)),),
    }
    for read in readers.get(name, (load_tokenizer,)):
        with limited(), pytest.raises(TorlError, match=r"\A[^\n]*\Z"):
            read(model)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"vanished"}))
def test_the_shards_of_a_checkpoint_are_regular(tmp_path: Path, kind: str) -> None:
    KINDS[kind][0](tmp_path / "policy_rank_00000.safetensors")
    with limited(), pytest.raises(CheckpointError, match=r"policy_rank_00000"):
        ShardIndex(tmp_path, "policy")
    with limited(), pytest.raises(CheckpointError, match=r"policy_rank_00000"):
        read_facts(tmp_path / "policy_rank_00000.safetensors")


@pytest.mark.parametrize("kind", KINDS)
def test_a_corpus_is_a_regular_file(tmp_path: Path, kind: str) -> None:
    KINDS[kind][0](tmp_path / "corpus.jsonl")
    with limited(), pytest.raises(DataError, match=r"corpus\.jsonl: cannot be read"):
        Corpus(tmp_path / "corpus.jsonl")


@pytest.mark.parametrize("codec", ["gz", "zst"])
@pytest.mark.parametrize("suffix", ["jsonl", "json", "csv"])
@pytest.mark.parametrize("rest", [1024 * b" ", 1023 * b" " + b"\n"], ids=["one line", "many lines"])
def test_a_compressed_file_is_not_read_far_beyond_its_size(
    tmp_path: Path, suffix: str, codec: str, rest: bytes
) -> None:
    path = tmp_path / f"train.{suffix}.{codec}"
    with pyarrow.CompressedOutputStream(str(path), {"gz": "gzip", "zst": "zstd"}[codec]) as file:
        file.write(b"question,answer\n1,1\n" if suffix == "csv" else b'{"question": "1", "answer": "1"}\n')
        for _ in range(300):
            file.write(1024 * rest)
    assert path.stat().st_size < 1 << 20
    with limited(), pytest.raises(DataError, match=r"more than 200 times its size"):
        load_problems(path)


def test_a_compressed_file_of_problems_is_read(tmp_path: Path) -> None:
    """Small files may expand as far as they like."""
    path = tmp_path / "train.jsonl.zst"
    with pyarrow.CompressedOutputStream(str(path), "zstd") as file:
        for number in range(100_000):
            file.write(b'{"question": "%d", "answer": "1"}\n' % number)
    assert len(load_problems(path)) == 100_000
