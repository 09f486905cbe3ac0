"""The viewer's index: it follows files that grow, are replaced and disappear, and equals one that is built anew."""

import json
import os
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from torl.run.records.behaviors import recovers
from torl.run.records.rows import check_row, decode_trajectory, encode_row
from torl_lab.view import sources
from torl_lab.view.columns import IndexReader
from torl_lab.view.facets import DAMAGED, FACETS, FINISHES, Flag, IndexedRow, facts_of, status_names
from torl_lab.view.indexing import Indexer, facts_of_line
from torl_lab.view.rows import find_place, summaries
from torl_lab.view.sources import INDEX_FILE, Target
from viewed_runs import CALLING, indexed, lines, row, varied, write_run

# --- parts of a row ---------------------------------------------------------------------------------------------------

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=40, deadline=None)
@given(st.dictionaries(st.text(), JSON, max_size=6), st.booleans())
@example({"a": [1, "]"], "b": [1, [2], {"c": 3}], "d": 4, "e": float("nan")}, False)
def test_other_members_do_not_change_the_facts_of_a_row(others: dict[str, Any], has_blanks: bool) -> None:
    line = json.dumps({**others, **row(), "later": others}, indent=1 if has_blanks else None).encode()
    assert repr(facts_of_line(line)) == repr(facts_of(check_row(row(), IndexedRow)))


@pytest.mark.parametrize(
    ("part", "damage"),
    [
        ('"sample": 0', '"sample" 0'),
        ('"sample": 0', '"sample": "0"'),
        ('"sample": 0', '"sample": -1'),
        ('"sample": 0', '"sample": 0,'),
        ('"seconds"', '"secs": [1, 2, "seconds"'),
        ('"token_ids": [', '"token_ids": ['.replace("[", "[[")),
        ('"token_numbers": {}}', '"token_numbers": {}}x'),
        ('"token_numbers": {}}', '"token_numbers": {}'),
        ('"turns": [', '"turned": ['),
        ('"observation": "', '"observation": "é'),
    ],
)
def test_a_damaged_line_has_no_facts(part: str, damage: str) -> None:
    line = encode_row(row()).decode()
    assert line.count(part) == 1
    assert facts_of_line(line.encode()) is not DAMAGED
    assert facts_of_line(line.replace(part, damage).encode("latin-1")) is DAMAGED


def test_a_list_shows_the_end_of_a_long_response_and_nothing_of_a_damaged_line(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", {"step_000000": [row(text="y" * 20_000 + " the end"), {"step": 1}]})
    with (directory / "trajectories" / "step_000000.jsonl").open("ab") as file:
        file.write(b'{"question": "?", "text": "cut\n')
    with closing(indexed(directory)) as reader:
        long, _, cut = summaries([find_place(reader, "step_000000", line) for line in range(3)])
    assert (long["end"][-9:], long["answer"], long["reference"]) == ("y the end", "1", "1")
    assert (cut["question"], cut["end"]) == (None, None)


# --- facets -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", range(0, 60, 7))
def test_facets_equal_those_of_the_typed_record(number: int) -> None:
    written = varied(step=3, sample=2, number=number)
    record = decode_trajectory(written)
    played, graded = record.trajectory, record.grade
    facets = facts_of(check_row(written, IndexedRow)).facets
    sampled = played.policy_versions_T[played.loss_mask_T]
    ran = [each for each in played.tool_calls if each.ran]
    expected = {
        "step": 3,
        "sample": 2,
        "reward": graded.total,
        "calls": len(played.tool_calls),
        "failed": sum(not each.outcome.ok for each in ran),
        "tokens": len(played),
        "sampled": int(played.loss_mask_T.sum()),
        "turns": len(played.turns),
        "finish": FINISHES.index(played.finish_reason.value),
        "oldest": int(sampled.min()),
        "newest": int(sampled.max()),
    }
    assert {name: facets[name] for name in expected} == expected
    assert set(status_names(int(facets["statuses"]))) == {each.outcome.status.value for each in ran}
    flags = Flag(int(facets["flags"]))
    assert (Flag.CORRECT in flags, Flag.RECOVERED in flags) == (graded.correct, recovers(played, graded))
    assert (Flag.TRAINED in flags) == (record.advantage is not None)


def test_call_without_a_run_has_its_own_outcome() -> None:
    refused = row()
    refused["tool_calls"][0] |= {"tool": None, "arguments": None, "status": "error"}
    facets = facts_of(check_row(refused, IndexedRow)).facets
    assert (facets["failed"], status_names(int(facets["statuses"]))) == (0, ["not_executed"])


@pytest.mark.parametrize(
    ("turn", "stop_reason", "is_invented"),
    [
        (CALLING, "call", False),
        (f"{CALLING}\n7\n```\nSo 7.", "stop", True),
        (f"{CALLING}\n7", "length", True),
        ("no code", "stop", False),
    ],
)
def test_result_that_the_model_wrote_is_flagged(turn: str, stop_reason: str, is_invented: bool) -> None:
    changed = row()
    changed["turns"] = [changed["turns"][0] | {"text": turn, "stop_reason": stop_reason}]
    flags = Flag(int(facts_of(check_row(changed, IndexedRow)).facets["flags"]))
    assert (Flag.INVENTED in flags) == is_invented


# --- files that change ------------------------------------------------------------------------------------------------


def content(reader: IndexReader) -> list[tuple[Any, ...]]:
    """All rows as (file, line, facets without numbers of the index), sorted."""
    columns = reader.columns()
    names = [name for name in FACETS.names or () if name not in ("file", "set", "problem", "advantage")]
    problems = reader.problems(sorted({int(number) for number in columns["problem"]}))
    return sorted(
        (
            columns.files[int(columns["file"][index])],
            int(columns["line"][index]),
            columns.sets[int(columns["set"][index])],
            problems[number].name if (number := int(columns["problem"][index])) in problems else "",
            f"{columns['advantage'][index]:.4f}",
            *(columns[name][index].item() for name in names),
        )
        for index in range(len(columns))
    )


def naive(directory: Path) -> list[tuple[str, int, str, int]]:
    """The complete lines of all files: file, line, problem and step, or "" and 0 for a damaged one."""
    found = []
    for path in sorted(directory.glob("trajectories/*.jsonl")):
        for number, line in enumerate(path.read_bytes().split(b"\n")[:-1]):
            try:
                parsed = json.loads(line)
                found.append((path.stem, number, parsed["problem"], parsed["step"]))
            except (ValueError, KeyError, TypeError):
                found.append((path.stem, number, "", 0))
    return found


OPERATION = st.tuples(
    st.sampled_from(["append", "append", "append", "replace", "rewrite", "remove", "damage"]),
    st.integers(0, 2),
    st.integers(0, 40),
    st.floats(0, 1),
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(operations=st.lists(OPERATION, min_size=1, max_size=8))
def test_index_follows_any_changes_of_the_files(
    tmp_path_factory: pytest.TempPathFactory, operations: list[tuple[str, int, int, float]]
) -> None:
    directory = write_run(tmp_path_factory.mktemp("view") / "run", {})
    target = Target("run", directory)
    path = target.index_path(None)
    reader = IndexReader(target, path)
    with closing(Indexer(target, path)) as indexer:
        for kind, step, number, share in operations:
            file = directory / "trajectories" / f"step_{step:06d}.jsonl"
            data = lines(varied(step, sample, number + sample) for sample in range(3))
            change_file(file, kind, data, share)
            indexer.update()
            reader.refresh()
        followed = content(reader)
    with closing(reader):
        assert [(name, line, problem, step) for name, line, _, problem, _, _, _, step, *_ in shown(followed)] == naive(
            directory
        )
        os.unlink(path)
        with closing(indexed(directory)) as anew:
            assert followed == content(anew)


def shown(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows in the order (file, line, set, problem, advantage, line, offset and length, step, ...)."""
    return [(*each[:5], each[5], each[6:8], each[8], *each[9:]) for each in rows]


def change_file(file: Path, kind: str, data: bytes, share: float) -> None:
    """Change a file as a writer does; `share` of an appended part arrives, so that its last line may be cut."""
    match kind:
        case "append":
            with file.open("ab") as opened:
                opened.write(data[: int(share * len(data)) + 1] if share < 0.9 else data)
        case "replace":  # as `atomic_write` does
            temporary = file.with_name(".temporary")
            temporary.write_bytes(data)
            temporary.replace(file)
        case "rewrite" if file.exists():  # the same inode and, perhaps, the same size
            file.write_bytes(data[::-1].replace(b"\n", b"") + b"\n" if share < 0.3 else data)
        case "remove":
            file.unlink(missing_ok=True)
        case "damage":
            with file.open("ab") as opened:
                opened.write(b'{"step": \xff}\nnull\n[]\n{"step": 1}\n')
        case _:
            pass


def test_cut_line_is_indexed_once_it_is_complete(tmp_path: Path) -> None:
    data = lines([row(sample=0), row(sample=1)])
    directory = write_run(tmp_path / "run", {})
    file = directory / "trajectories" / "step_000000.jsonl"
    file.write_bytes(data[:-40])
    assert len(indexed(directory).columns()) == 1
    with file.open("ab") as opened:
        opened.write(data[-40:])
    assert len(indexed(directory).columns()) == 2


def test_line_that_is_changed_in_place_is_indexed_again(tmp_path: Path) -> None:
    """Far from the end of a file of the same size."""
    rows = [row(sample=each, text="x" * 1000) for each in range(16)]
    directory = write_run(tmp_path / "run", {"step_000000": rows})
    indexed(directory).close()
    rows[0]["sample"] = 7
    with (directory / "trajectories" / "step_000000.jsonl").open("r+b") as file:
        file.write(lines(rows))
    with closing(indexed(directory)) as reader:
        assert reader.columns()["sample"].tolist() == [7, *range(1, 16)]


def test_resumed_run_replaces_its_later_steps(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", {f"step_{step:06d}": [row(step)] for step in range(3)})
    assert len(indexed(directory).columns()) == 3
    for step in (1, 2):
        (directory / "trajectories" / f"step_{step:06d}.jsonl").unlink()
    (directory / "trajectories" / "step_000001.jsonl").write_bytes(lines([row(1, correct=False, text="replaced")]))
    reader = indexed(directory)
    columns = reader.columns()
    assert sorted(columns["step"].tolist()) == [0, 1]
    assert reader.rows_with_words("replaced", columns).sum() == 1
    assert reader.rows_with_words("see", columns).sum() == 1  # the words of removed rows are not found


# --- the database -----------------------------------------------------------------------------------------------------


ENDLESS = "WITH RECURSIVE rows(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM rows)"
# By damage: statements that make it. The run may be of others, with its index.
DAMAGES = {
    "version": "PRAGMA user_version = 77",
    "chunk": "UPDATE chunks SET facets = zeroblob(7)",
    "view": f"DROP TABLE sets; CREATE VIEW sets AS {ENDLESS} SELECT x AS id, 'training' AS name FROM rows",
    "trigger": "CREATE TRIGGER forget AFTER INSERT ON chunks BEGIN DELETE FROM chunks; END",
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("damage", ["garbage", "cut", "empty", *DAMAGES])
def test_damaged_index_is_built_again(tmp_path: Path, damage: str) -> None:
    directory = write_run(tmp_path / "run", {"step_000000": [row(sample=each) for each in range(5)]})
    indexed(directory)
    path = directory / INDEX_FILE
    match damage:
        case "garbage":
            path.write_bytes(b"no database" * 1000)
        case "cut":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        case "empty":
            path.write_bytes(b"")
        case _:
            with closing(sqlite3.connect(path)) as database, database:
                database.executescript(DAMAGES[damage])
    reader = IndexReader(Target("run", directory), path)
    reader.refresh()
    assert len(reader.columns()) in (0, 5)  # never rows of a damaged index
    (directory / "trajectories/step_000001.jsonl").write_bytes(lines([row(step=1)]))
    fresh = shutil.copytree(directory, tmp_path / "fresh", ignore=shutil.ignore_patterns(INDEX_FILE))
    assert content(indexed(directory)) == content(indexed(fresh))


def test_read_only_directory_has_its_index_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = write_run(tmp_path / "run", {"step_000000": [row()]})
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(sources.os, "access", lambda path, mode: False)  # root may write everywhere
    path = Target("run", directory).index_path(None)
    assert path.parent == tmp_path / "cache" / "torl" / "view"
    assert len(indexed(directory).columns()) == 1
    assert sorted(each.name for each in directory.iterdir()) == ["config.toml", "metrics.jsonl", "trajectories"]


def test_two_writers_and_a_reader_share_an_index(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", {})
    target = Target("run", directory)
    path = target.index_path(None)
    file = directory / "trajectories" / "step_000000.jsonl"
    with closing(Indexer(target, path)) as one, closing(Indexer(target, path)) as other:
        reader = IndexReader(target, path)
        held = None
        for number in range(6):
            with file.open("ab") as opened:
                opened.write(lines([varied(0, number, number)]))
            (one if number % 2 else other).update()
            (other if number % 2 else one).update()
            reader.refresh()
            columns = reader.columns()
            assert columns["sample"].tolist() == list(range(number + 1))
            if held is not None:  # a page that is being answered keeps its rows
                assert held["sample"].tolist() == list(range(number))
            held = columns


def test_index_without_full_text_still_has_facets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torl_lab.view.index._WORDS", "CREATE VIRTUAL TABLE words USING fts99(text)")
    reader = indexed(write_run(tmp_path / "run", {"step_000000": [row()]}))
    assert len(reader.columns()) == 1
    with pytest.raises(ValueError, match="no FTS5"):
        reader.rows_with_words("see", reader.columns())


def test_files_and_other_directories_can_be_viewed(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    for name in ("one", "set/two"):
        (tmp_path / f"{name}.jsonl").write_bytes(lines([row()]))
    directory, file = indexed(tmp_path), indexed(tmp_path / "one.jsonl")
    assert sorted(directory.columns().sets.values()) == ["one", "set/two"]
    assert list(file.columns().sets.values()) == ["one"]


WORDS = st.sampled_from(["alpha", "beta", "Gamma", "x1", "été", "sum", "summe"])


@settings(max_examples=10, deadline=None)
@given(
    texts=st.lists(st.lists(WORDS, max_size=4), min_size=1, max_size=6), wanted=st.lists(WORDS, min_size=1, max_size=2)
)
def test_words_find_the_responses_that_have_all_of_them(
    tmp_path_factory: pytest.TempPathFactory, texts: list[list[str]], wanted: list[str]
) -> None:
    rows = [row(sample=index, text=", ".join(words)) for index, words in enumerate(texts)]
    reader = indexed(write_run(tmp_path_factory.mktemp("view") / "run", {"step_000000": rows}))
    with closing(reader):
        columns = reader.columns()
        found = columns["sample"][reader.rows_with_words(" ".join(wanted), columns)].tolist()
    expected = [index for index, words in enumerate(texts) if set(wanted) <= set(words)]
    assert sorted(found) == expected


def test_beginning_of_a_word_is_found(tmp_path: Path) -> None:
    rows: list[Mapping[str, Any]] = [row(sample=0, text="a summary"), row(sample=1, text="some")]
    reader = indexed(write_run(tmp_path / "run", {"step_000000": rows}))
    columns = reader.columns()
    assert columns["sample"][reader.rows_with_words("SUMM*", columns)].tolist() == [0]
