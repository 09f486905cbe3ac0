"""Names of models and datasets, found in a cache as the hub's own library lays it out, without a network."""

import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from hub_server import COMMIT, serving, using_hub
from tokenizers_for_tests import byte_level_bpe
from torl.base.errors import ConfigError, DataError
from torl.base.types import Problem
from torl.components.data import load_problems, stream_problems
from torl.components.data.public_sets import pinned_problems
from torl.components.hub import pinned_dataset, pinned_model, resolve_dataset, resolve_model, resolve_model_config
from torl.components.hub.datasets import select_files
from torl.run.config import TrainConfig
from torl.run.config.loading import find_config, load_config
from torl.run.display.console import Console
from torl.training.hub_commits import pin_commits
from torl.training.run import train

Repository = Callable[[str, str], Path]


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """Makes a repository in the cache, with a branch "main" at `COMMIT`; returns the directory of its files."""
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.chdir(tmp_path)

    def make(kind: str, name: str) -> Path:
        root = tmp_path / "cache" / f"{kind}s--{name.replace('/', '--')}"
        (root / "refs").mkdir(parents=True)
        (root / "refs" / "main").write_text(COMMIT)
        files = root / "snapshots" / COMMIT
        files.mkdir(parents=True)
        return files

    return make


def test_a_model_is_found_by_its_name_and_pinned(repository: Repository) -> None:
    files = repository("model", "Qwen/Tiny-0.5")
    (files / "config.json").write_text("{}")
    assert resolve_model("Qwen/Tiny-0.5") == files
    assert resolve_model(f"Qwen/Tiny-0.5@{COMMIT}") == files
    assert pinned_model("Qwen/Tiny-0.5") == f"Qwen/Tiny-0.5@{COMMIT}"
    assert pinned_model(f"Qwen/Tiny-0.5@{COMMIT}") == f"Qwen/Tiny-0.5@{COMMIT}"


def test_a_directory_that_exists_comes_before_the_hub(repository: Repository, tmp_path: Path) -> None:
    repository("model", "models/tiny")
    (tmp_path / "models/tiny").mkdir(parents=True)
    assert resolve_model("models/tiny") == Path("models/tiny")
    assert pinned_model("models/tiny") == "models/tiny"
    assert pinned_model("torl:demo/base_model") == "torl:demo/base_model"
    with pytest.raises(DataError, match="no such file"):  # a path that is misspelled
        resolve_model("models/tyni")


def test_error_without_network_names_download(repository: Repository) -> None:
    with pytest.raises(DataError) as error:
        resolve_model("Qwen/Absent@v2")
    assert "`hf download Qwen/Absent --revision v2 --local-dir Absent`" in str(error.value)
    assert "--model.path" in str(error.value)
    assert ". On a machine with a network" in str(error.value)
    with pytest.raises(DataError) as error:
        load_problems("hf:GAIR/Absent")
    assert "`hf download GAIR/Absent --repo-type dataset --local-dir Absent`" in str(error.value)
    for read in (load_problems, pinned_problems):
        with pytest.raises(DataError, match=r"hf download HuggingFaceH4/MATH-500 .*, as math500=DIRECTORY"):
            read("math500")
    with pytest.raises(DataError, match="a dataset of the Hub is hf:owner/name"):
        load_problems("hf:absent")
    with pytest.raises(DataError, match=r"no such file .*; the dataset of that name on the Hub is hf:GAIR/Absent"):
        load_problems("GAIR/Absent")
    with pytest.raises(DataError, match=r"no such file \(.*\)$"):
        load_problems("GAIR/absent.jsonl")


async def test_run_lists_downloads_for_all_missing_files(repository: Repository) -> None:
    names = {"model.path": "Qwen/Absent", "data.train": "hf:GAIR/Absent", "run.directory": "run"}
    names |= {"algorithm.estimator": "ppo", "critic.path": "Qwen/Critic"}
    config = load_config(TrainConfig, find_config("demo"), names | {"data.evaluation": {"held": "hf:GAIR/Other"}})
    with pytest.raises(DataError) as error, Console(io.StringIO()) as console:
        await train(config, console)
    ways_out = re.findall(r"^(\S+): .*hf download (\S+)", str(error.value), re.MULTILINE)
    assert sorted(ways_out) == [
        ("critic.path", "Qwen/Critic"),
        ("data.evaluation.held", "GAIR/Other"),
        ("data.train", "GAIR/Absent"),
        ("model.path", "Qwen/Absent"),
    ]
    assert not Path("run").exists()


async def test_run_names_the_settings_of_all_missing_files(tmp_path: Path) -> None:
    settings = {"model.path": "./absent", "data.train": "math500=absent.jsonl", "algorithm.kl.reference": "./other"}
    settings |= {"data.evaluation.absent": "absent.jsonl", "run.directory": str(tmp_path / "run")}
    config = load_config(TrainConfig, find_config("demo"), settings | {"algorithm.kl.coefficient": 0.1})
    with pytest.raises(DataError) as error, Console(io.StringIO()) as console:
        await train(config, console)
    assert [line.partition(" (")[0] for line in str(error.value).splitlines()] == [
        "model.path: ./absent: no such file",
        "algorithm.kl.reference: ./other: no such file",
        "data.evaluation.absent: absent.jsonl: no such file",
        "data.train: absent.jsonl: no such file",
    ]
    assert not (tmp_path / "run").exists()


def problems_of(path: str) -> list[Problem]:
    """A source whose path is not one of a file."""
    return [Problem(path, "1 + 1", "2")]


def test_path_of_a_custom_source_need_not_be_a_file() -> None:
    source = {"name": f"{__name__}:problems_of", "path": "a table"}
    config = load_config(TrainConfig, find_config("demo"), {"data.train": source})
    assert pin_commits(config).data.train.options.path == "a table"


@pytest.mark.parametrize("path", ["google/Gemma", "local"])
async def test_run_refuses_a_model_by_its_config_alone(repository: Repository, tmp_path: Path, path: str) -> None:
    """Neither weights nor a tokenizer were downloaded."""
    files = repository("model", path) if path != "local" else tmp_path / "local"
    files.mkdir(exist_ok=True)
    (files / "config.json").write_text(json.dumps({"model_type": "gemma2"}))
    config = load_config(TrainConfig, find_config("demo"), {"model.path": path, "run.directory": "run"})
    with pytest.raises(DataError, match="its config sets final_logit_softcapping"), Console(io.StringIO()) as console:
        await train(config, console)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model_type": "gemma2"}, r"critic\.path = .*: a gemma2 model cannot be trained: its config sets final_logit"),
        ({"model_type": "qwen2"}, r"critic\.path = .*: \d+ tokens of .* are missing or have other ids"),
    ],
)
async def test_run_refuses_a_critic_that_cannot_value_its_tokens(
    settings: dict[str, str], message: str, tmp_path: Path
) -> None:
    byte_level_bpe(300).save_pretrained(tmp_path / "critic")
    (tmp_path / "critic" / "config.json").write_text(json.dumps(settings))
    (tmp_path / "critic" / "model.safetensors").touch()
    changes = {
        "algorithm.estimator": "ppo",
        "critic.path": str(tmp_path / "critic"),
        "run.directory": str(tmp_path / "run"),
    }
    config = load_config(TrainConfig, find_config("demo"), changes)
    with pytest.raises((ConfigError, DataError), match=message), Console(io.StringIO()) as console:
        await train(config, console)


def test_downloaded_repository_is_read_in_the_hubs_layout(tmp_path: Path) -> None:
    """The way out that the error tells."""
    (tmp_path / "README.md").write_text("a data set")
    (tmp_path / "data").mkdir()
    for name, question in (("train", "trained?"), ("test", "tested?")):
        (tmp_path / f"data/{name}-00000-of-00001.jsonl").write_text(json.dumps({"problem": question, "answer": 1}))
    assert [problem.question for problem in load_problems(tmp_path)] == ["trained?"]
    assert [problem.question for problem in stream_problems(tmp_path, split="test")] == ["tested?"]
    with pytest.raises(DataError, match="has no readable files of the split 'validation'"):
        load_problems(tmp_path, split="validation")


def test_a_plan_needs_no_weights(repository: Repository) -> None:
    files = repository("model", "Qwen/Planned")
    (files / "config.json").write_text("{}")
    assert resolve_model_config("Qwen/Planned") == files
    assert resolve_model_config("torl:demo/base_model").name == "base_model"


def test_a_split_is_read_from_all_of_its_files(repository: Repository) -> None:
    files = repository("dataset", "GAIR/Sums")
    (files / "data").mkdir()
    for number in range(2):
        rows = [{"question": f"{number} + {other}?", "answer": str(number + other)} for other in range(3)]
        name = f"train-0000{number}-of-00002.parquet"
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), files / "data" / name)
    (files / "data/test-00000-of-00001.jsonl").write_text(json.dumps({"problem": "9?", "answer": 9}) + "\n")
    problems = load_problems("hf:GAIR/Sums")
    assert [problem.question for problem in problems] == [f"{a} + {b}?" for a in range(2) for b in range(3)]
    assert [problem.id for problem in problems] == [f"row-{number}" for number in range(1, 7)]
    (tested,) = load_problems("hf:GAIR/Sums", split="test")
    assert (tested.question, tested.answer) == ("9?", "9")
    with pytest.raises(DataError, match=r"no readable files of the split 'validation'.*data/test-00000"):
        load_problems("hf:GAIR/Sums", split="validation")


@pytest.mark.parametrize(
    ("names", "read"),
    [
        (("train.jsonl", "train.jsonl.gz"), "train.jsonl"),
        (("train.parquet", "train.json.zst"), "train.parquet"),
        (("train.csv", "train.arrow"), "train.csv"),
        (("train.arrow", "cache-train.arrow"), "train.arrow"),
        (("cache-train.jsonl",), "cache-train.jsonl"),
    ],
)
def test_copies_of_a_split_in_rarer_formats_are_not_read(names: tuple[str, ...], read: str) -> None:
    assert select_files("d", "train", [], names) == [read]


def test_a_data_set_without_splits_is_one(repository: Repository) -> None:
    files = repository("dataset", "me/one")
    (files / "problems.jsonl").write_text("{}")
    assert resolve_dataset("hf:me/one", "train") == [files / "problems.jsonl"]
    (files / "more.parquet").write_text("")
    with pytest.raises(DataError, match="in several formats"):
        resolve_dataset("hf:me/one", "train")


def write_rows(folder: Path, *names: str) -> None:
    """Write files with one problem each, whose question is the name of the file."""
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps({"problem": name, "answer": 1}) + "\n")


@pytest.mark.parametrize("read", [load_problems, stream_problems])
def test_configurations_are_not_mixed(repository: Repository, read: Callable[..., Iterable[Problem]]) -> None:
    """The layout of openai/gsm8k, of whose configurations each has all questions."""
    files = [f"{each}/{split}-00000-of-00001.jsonl" for each in ("main", "socratic") for split in ("test", "train")]
    write_rows(repository("dataset", "openai/gsm8k"), *files)
    with pytest.raises(
        DataError, match=r"hf:openai/gsm8k: .*'test' .*: main/test\*, socratic/test\*; .* --files \"main/test\*\"$"
    ):
        list(read("hf:openai/gsm8k", split="test"))
    for chosen in ("main/test*", ["main/test*"], "main/test-00000-of-00001.jsonl"):
        assert [problem.question for problem in read("hf:openai/gsm8k", files=chosen)] == [files[0]]
    assert len(list(read("hf:openai/gsm8k", files=["main/test*", "socratic/*"]))) == 3


@pytest.mark.parametrize(
    ("names", "split", "selected"),
    [
        (["data/train_sft-00000-of-00001", "data/train_gen-00000-of-00001"], "train_sft", [0]),
        (["data/train-00000-of-00001-a09b74b3ef9c3b56", "data/train_sft-00000-of-00001"], "train", [0]),
        (["test.clean-00000-of-00001", "test.other-00000-of-00001"], "test.clean", [0]),
        (["Train_1", "Train_2", "Train"], "train", [2, 0, 1]),
        (["test_1", "test_12"], "test_1", [0]),
        (["train/a", "train/b", "constrained"], "train", [0, 1]),
        (["math_train", "math_test"], "train", [0]),
        (["a", "b"], "train", [0, 1]),
    ],
)
def test_split_has_the_files_of_its_name(tmp_path: Path, names: list[str], split: str, selected: list[int]) -> None:
    write_rows(tmp_path, *(f"{name}.jsonl" for name in names))
    expected = [f"{names[index]}.jsonl" for index in selected]
    assert [problem.question for problem in load_problems(tmp_path, split=split)] == expected


@pytest.mark.parametrize(
    ("names", "patterns"),
    [
        (["data/train_sft-00000-of-00001", "data/train_gen-00000-of-00001"], "data/train_gen*, data/train_sft*"),
        (["algebra/train-00000-of-00001", "geometry/train_1", "train"], "algebra/train*, geometry/train*, train*"),
        (["math_train", "code_train"], "code_train*, math_train*"),
        (["train/a/1", "train/b/1"], "train/a/*, train/b/*"),
        (["a/train", "a/train_1", "b/train"], "a/train*, b/train*"),
        (["algebra/1", "geometry/1"], "algebra/*, geometry/*"),
    ],
)
def test_ambiguous_split_lists_patterns(tmp_path: Path, names: list[str], patterns: str) -> None:
    write_rows(tmp_path, *(f"{name}.jsonl" for name in names))
    with pytest.raises(DataError, match=rf"splits: {re.escape(patterns)}; "):
        load_problems(tmp_path)
    each = [problem.question for pattern in patterns.split(", ") for problem in load_problems(tmp_path, files=pattern)]
    assert sorted(each) == sorted(f"{name}.jsonl" for name in names)


def test_suffix_of_a_compression_is_no_part_of_a_name(tmp_path: Path) -> None:
    names = ["en/train-00000-of-00002.json.gz", "en/train-00001-of-00002.json.gz", "de/train-1.json.gz"]
    write_rows(tmp_path, *names)
    with pytest.raises(DataError, match=r"splits: de/train\*, en/train\*; "):
        load_problems(tmp_path)
    (tmp_path / names[1]).unlink()
    with pytest.raises(DataError, match="a shard of the split 'train' is missing: en/train-00001-of-00002"):
        load_problems(tmp_path, files="en/*")


def test_pattern_of_a_split_with_a_number_keeps_it(tmp_path: Path) -> None:
    write_rows(tmp_path, "a/aime2024.jsonl", "a/aime2025.jsonl", "b/aime2024.jsonl")
    with pytest.raises(DataError, match=r"splits: a/aime2024\*, b/aime2024\*; "):
        load_problems(tmp_path, split="aime2024")


def test_columns_of_other_names(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"uid": 7, "prompt": {"text": "1 + 1?"}, "gold": ["2", "3"], "level": 5}) + "\n")
    (problem,) = load_problems(path, columns={"id": "uid", "problem": "prompt.text", "answer": "gold"})
    assert (problem.id, problem.question, problem.answer, problem.metadata["level"]) == ("7", "1 + 1?", "2, 3", 5)
    with pytest.raises(DataError, match=r"line 1: the column 'prompt\.txt' is missing; the columns are: gold, level"):
        load_problems(path, columns={"problem": "prompt.txt", "answer": "gold"})


def test_a_part_that_the_cache_lacks_is_not_left_out(repository: Repository) -> None:
    files = repository("dataset", "GAIR/Half")
    (files / "train-00000-of-00002.jsonl").write_text('{"problem": "1?", "answer": "1"}')
    with pytest.raises(DataError, match="a shard of the split 'train' is missing: train-00001-of-00002"):
        load_problems("hf:GAIR/Half")


# --- over the network, without storing it ----------------------------------------------------------------------------


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[Path, list[int]]]:
    """A hub with one dataset, "GAIR/Far": the directory of its files, and the sizes of the files it has sent."""
    folder = tmp_path / "far"
    folder.mkdir()
    with serving({"GAIR/Far": folder}) as (address, sent), using_hub(address, tmp_path / "cache"):
        yield folder, sent


def test_stream_reads_only_needed_bytes_over_network(hub: tuple[Path, list[int]], tmp_path: Path) -> None:
    folder, sent = hub
    for part in range(2):
        rows = [{"problem": f"{part}, {number}?" + "x" * 1000, "answer": str(number)} for number in range(3000)]
        (folder / f"train-0000{part}-of-00002.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    reading = stream_problems("hf:GAIR/Far")
    assert [next(reading).answer for _ in range(3)] == ["0", "1", "2"]
    assert 0 < sum(sent) < 3_000_000  # of six million bytes
    rest = [problem.answer for problem in reading]
    assert rest == [str(number) for number in range(3, 3000)] + [str(number) for number in range(3000)]
    assert not list((tmp_path / "cache").rglob("*.jsonl"))


def test_dataset_is_pinned_to_revision_of_hub_or_cache(
    hub: tuple[Path, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    assert pinned_dataset("hf:GAIR/Far") == pinned_dataset("hf:GAIR/Far@main") == f"hf:GAIR/Far@{COMMIT}"
    assert pinned_dataset("data/train.jsonl") == "data/train.jsonl"
    with pytest.raises(DataError, match=r"could not be downloaded from the Hub: .*404"):
        pinned_dataset("hf:GAIR/Absent")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DataError, match="hf download GAIR/Far --repo-type dataset"):
        pinned_dataset("hf:GAIR/Far")
    cached = tmp_path / "cache/datasets--GAIR--Far"
    (cached / "snapshots" / COMMIT).mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text(COMMIT)
    assert pinned_dataset("hf:GAIR/Far") == f"hf:GAIR/Far@{COMMIT}"


def test_problems_are_prepared_from_a_data_set_that_is_not_stored(hub: tuple[Path, list[int]], tmp_path: Path) -> None:
    from torl_lab.curation.command import main

    (hub[0] / "train.jsonl").write_text('{"problem": "How many legs has a spider?", "answer": "8"}\n')
    assert main(["prepare", "hf:GAIR/Far", "--stream", "--output", str(tmp_path / "out")]) == 0
    assert [problem.answer for problem in load_problems(tmp_path / "out/problems.jsonl")] == ["8"]
    assert not list((tmp_path / "cache").rglob("*.jsonl"))


def test_a_stream_of_parquet_reads_the_same_rows(hub: tuple[Path, list[int]]) -> None:
    rows = [{"problem": f"{number}?", "answer": str(number)} for number in range(5)]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), hub[0] / "test.parquet")
    assert [problem.answer for problem in stream_problems("hf:GAIR/Far", split="test")] == list("01234")
    with pytest.raises(DataError, match="has no readable files of the split 'train'"):
        next(stream_problems("hf:GAIR/Far"))


def test_a_stream_prefers_a_cache_that_has_all_of_the_split(hub: tuple[Path, list[int]], tmp_path: Path) -> None:
    folder, sent = hub
    (folder / "train.jsonl").write_text('{"problem": "far?", "answer": "1"}\n')
    files = tmp_path / "cache/datasets--GAIR--Far/snapshots" / COMMIT
    files.mkdir(parents=True)
    assert [problem.question for problem in stream_problems("hf:GAIR/Far")] == ["far?"]
    (files / "train.jsonl").write_text('{"problem": "near?", "answer": "1"}\n')
    sent.clear()
    assert [problem.question for problem in stream_problems("hf:GAIR/Far")] == ["near?"]
    assert not sent


def test_stream_without_network_uses_cache_or_names_download(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")  # no server listens there
    (repository("dataset", "GAIR/Near") / "train.jsonl").write_text('{"problem": "near?", "answer": "1"}\n')
    for offline in (True, False):
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", offline)
        assert [problem.question for problem in stream_problems("hf:GAIR/Near")] == ["near?"]
        with pytest.raises(DataError, match=r"`hf download GAIR/Absent --repo-type dataset --local-dir Absent`"):
            next(stream_problems("hf:GAIR/Absent"))
