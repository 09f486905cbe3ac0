"""Names of models and data sets, found in a cache as the hub's own library lays it out, without a network."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from torl.data import load_problems
from torl.errors import DataError
from torl.hub import pinned_model, resolve_dataset, resolve_model

COMMIT = "0123456789abcdef0123456789abcdef01234567"

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


def test_without_a_network_the_error_says_what_to_download(repository: Repository) -> None:
    with pytest.raises(DataError) as error:
        resolve_model("Qwen/Absent@v2")
    assert "`hf download Qwen/Absent --revision v2 --local-dir Absent`" in str(error.value)
    assert "--model.path" in str(error.value)
    with pytest.raises(DataError) as error:
        load_problems("hf:GAIR/Absent")
    assert "`hf download GAIR/Absent --repo-type dataset --local-dir Absent`" in str(error.value)
    with pytest.raises(DataError, match="a data set of the hub is hf:owner/name"):
        load_problems("hf:absent")


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
    with pytest.raises(DataError, match=r"no files of the split 'validation'.*data/test-00000"):
        load_problems("hf:GAIR/Sums", split="validation")


def test_a_data_set_without_splits_is_one(repository: Repository) -> None:
    files = repository("dataset", "me/one")
    (files / "problems.jsonl").write_text("{}")
    assert resolve_dataset("hf:me/one", "train") == [files / "problems.jsonl"]
    (files / "more.parquet").write_text("")
    with pytest.raises(DataError, match="in several formats"):
        resolve_dataset("hf:me/one", "train")


def test_columns_of_other_names(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"uid": 7, "prompt": {"text": "1 + 1?"}, "gold": ["2", "3"], "level": 5}) + "\n")
    (problem,) = load_problems(path, columns={"id": "uid", "problem": "prompt.text", "answer": "gold"})
    assert (problem.id, problem.question, problem.answer, problem.metadata["level"]) == ("7", "1 + 1?", "2, 3", 5)
    with pytest.raises(DataError, match=r"line 1: the column 'prompt\.txt' is missing; the fields are: gold, level"):
        load_problems(path, columns={"problem": "prompt.txt", "answer": "gold"})
