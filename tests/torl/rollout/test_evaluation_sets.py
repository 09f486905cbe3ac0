"""Problem sets of an evaluation: suites, public sets, files, and files that hold several sets."""

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from torl.base.errors import ConfigError, DataError
from torl.components.data.layout import Layout
from torl.rollout.evaluation import split_by_source
from torl_lab.evaluation.sets import SUITES, find_locations, make_set


def test_a_suite_is_found_by_the_names_of_its_sets(tmp_path: Path) -> None:
    for name in SUITES["torl"][1:]:
        (tmp_path / f"{name}.jsonl").write_text("")
    wanted = ["torl", "aime25", "mine/own.csv", "custom_components:multiples", "hf:GAIR/LIMO@abc", "held=a/b.jsonl"]
    assert find_locations(["math500@fed"], tmp_path / "none") == {"math500": "math500@fed"}
    locations = find_locations([*wanted, "torl_test=c/test.parquet"], tmp_path)
    assert list(locations) == [*SUITES["torl"], "own", "multiples", "LIMO", "held", "torl_test"]
    assert locations["aime24"] == "aime24"  # on the Hub
    assert locations["aime25"] == str(tmp_path / "aime25.jsonl")
    assert locations["held"] == "a/b.jsonl"
    assert locations["torl_test"] == "torl_test=c/test.parquet"
    sets = {label: make_set(location, Layout()) for label, location in locations.items()}
    assert sets["aime24"].dump() == {"name": "file", "path": "aime24"}
    assert sets["LIMO"].dump() == {"name": "file", "path": "hf:GAIR/LIMO@abc"}
    assert sets["multiples"].name == "custom_components:multiples"
    layout = Layout({"answer": "final"}, where={"level": ("5",)}, split="test", files=("main/test*",))
    assert make_set("a.jsonl", layout).dump() == {
        "name": "file",
        "path": "a.jsonl",
        "columns": {"answer": "final"},
        "where": {"level": ["5"]},
        "split": "test",
        "files": ["main/test*"],
    }


def test_missing_suite_file_fails_immediately(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"lacks hmmt_feb24\.jsonl, and torl knows no address.*--sets-directory"):
        find_locations(["zerotir"], tmp_path)
    with pytest.raises(DataError, match="did you mean aime2"):
        find_locations(["aime42"], tmp_path)
    with pytest.raises(ConfigError, match="two sets are called 'x'"):
        find_locations(["a/x.jsonl", "b/x.jsonl"], tmp_path)
    with pytest.raises(ConfigError, match="custom_components has no sums"):
        make_set("custom_components:sums", Layout())
    with pytest.raises(ConfigError, match="columns"):
        make_set("custom_components:multiples", Layout({"answer": "x"}))


def test_file_of_several_sources_is_several_sets(tmp_path: Path) -> None:
    """As ToRL's and Search-R1's test files; copies of a problem are not evaluated twice."""
    rows = [
        {
            "data_source": source,
            "prompt": [{"role": "user", "content": f"{source}?"}],
            "reward_model": {"ground_truth": "1"},
            "extra_info": {"index": source},
        }
        for source in ["aime24", "aime24", "lighteval/MATH", "held"]
    ]
    for name in ("several", "one"):
        pyarrow.parquet.write_table(
            pyarrow.Table.from_pylist(rows if name == "several" else rows[:2]), tmp_path / f"{name}.parquet"
        )
    (tmp_path / "held.jsonl").write_text(json.dumps({"problem": "p", "answer": "1"}))
    files = {"held": "held.jsonl", "test": "several.parquet", "one": "one.parquet"}
    sets = split_by_source({name: make_set(str(tmp_path / file), Layout()) for name, file in files.items()})
    assert list(sets) == ["held", "aime24", "lighteval-MATH", "test-held", "one"]
    assert {name: [problem.id for problem in choice.bind()()] for name, choice in sets.items()} == {
        "held": ["line-1"],
        "aime24": ["aime24"],
        "lighteval-MATH": ["lighteval/MATH"],
        "test-held": ["held"],
        "one": ["aime24"],
    }
    assert split_by_source(sets) == sets


def test_sources_with_reserved_names_have_others(tmp_path: Path) -> None:
    rows = [{"data_source": source, "problem": source, "answer": "1"} for source in ("training", "held.greedy", "x")]
    (tmp_path / "several.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sets = split_by_source({"test": make_set(str(tmp_path / "several.jsonl"), Layout())})
    assert list(sets) == ["test-training", "held-greedy", "x"]


def test_sources_with_names_that_differ_in_a_sign_are_all_evaluated(tmp_path: Path) -> None:
    sources = ["math 500", "math/500", "math:500", "math?500"]
    rows = [{"data_source": source, "problem": source, "answer": "1"} for source in sources]
    (tmp_path / "several.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sets = split_by_source({"test": make_set(str(tmp_path / "several.jsonl"), Layout())})
    assert list(sets) == ["math-500", "test-math-500", "test-math-500-2", "test-math-500-3"]
    assert [[problem.question for problem in choice.bind()()] for choice in sets.values()] == [[s] for s in sources]
