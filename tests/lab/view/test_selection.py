"""Filters, counts, orders, comparisons and histories of trajectories, against plain loops over the rows."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.datastructures import QueryParams

from torl_lab.view.columns import IndexReader
from torl_lab.view.comparison import changes, prefix_tree, problem_history
from torl_lab.view.requests import parse_query, parse_range
from torl_lab.view.rows import places_of
from torl_lab.view.selection import Matches, count_facets, match, ordered
from viewed_runs import indexed, lines, row, varied, write_run

FILES = {
    "step_000000": [varied(0, sample, 3 * sample) for sample in range(16)],
    "step_000002": [varied(2, sample, 7 * sample + 1) for sample in range(16)],
    "evaluation_000002_held": [varied(2, sample, sample + 2) for sample in range(8)],
}


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexReader]:
    with closing(indexed(write_run(tmp_path_factory.mktemp("view") / "run", FILES))) as opened:
        yield opened


def set_of(file: str) -> str:
    return "held" if file.startswith("evaluation") else "training"


def statuses(each: Mapping[str, Any]) -> set[str]:
    return {call["status"] for call in each["tool_calls"]}


def reward(each: Mapping[str, Any]) -> float:
    return float(np.float32(each["reward"] + sum(each.get("turn_rewards", []))))


def has_words(each: Mapping[str, Any], *words: str) -> bool:
    tokens = "".join(letter if letter.isalnum() else " " for letter in each["text"].lower()).split()
    return set(words) <= set(tokens)


# A parameter of a link, and the condition that it stands for.
CONDITIONS: list[tuple[tuple[str, str], Callable[[str, Mapping[str, Any]], bool]]] = [
    (("set", "held"), lambda file, each: set_of(file) == "held"),
    (("correct", "1"), lambda file, each: each["correct"]),
    (("correct", "0"), lambda file, each: not each["correct"]),
    (("trained", "0"), lambda file, each: each["advantage"] is None),
    (("step", "0..1"), lambda file, each: each["step"] <= 1),
    (("calls", "2"), lambda file, each: len(each["tool_calls"]) == 2),
    (("tokens", "5.."), lambda file, each: len(each["token_ids"]) >= 5),
    (("reward", "..0.5"), lambda file, each: reward(each) <= 0.5),
    (("age", "1.."), lambda file, each: each["step"] - min(v for v, _ in each["policy_versions"] if v >= 0) >= 1),
    (("status", "error"), lambda file, each: "error" in statuses(each)),
    (("finish", "length"), lambda file, each: each["finish_reason"] == "length"),
    (("sign", "negative"), lambda file, each: each["advantage"] is not None and each["advantage"] < 0),
    (("sign", "none"), lambda file, each: each["advantage"] is None),
    (("problem", "p3"), lambda file, each: each["problem"] == "p3"),
    (("about", "question 2"), lambda file, each: "question 2" in each["question"].lower()),
    (("words", "number3 end"), lambda file, each: has_words(each, "number3", "end")),
]


def expected(chosen: list[int]) -> list[tuple[str, int]]:
    conditions = [CONDITIONS[index] for index in chosen]
    # Values of one facet with several values are alternatives; other conditions must all hold.
    signs = [holds for (name, _), holds in conditions if name == "sign"]
    others = {name: holds for (name, _), holds in conditions if name != "sign"}  # the last one counts
    return sorted(
        (file, line)
        for file, rows in FILES.items()
        for line, each in enumerate(rows)
        if all(holds(file, each) for holds in others.values())
        and (not signs or any(holds(file, each) for holds in signs))
    )


def found(matches: list[Matches], order: Any) -> list[tuple[str, int]]:
    return [(place.file, int(place.columns["line"][place.position])) for place in places_of(matches, order)]


@settings(max_examples=60, deadline=None)
@given(chosen=st.lists(st.integers(0, len(CONDITIONS) - 1), max_size=4))
def test_filters_equal_a_loop_over_the_rows(reader: IndexReader, chosen: list[int]) -> None:
    query = parse_query(QueryParams([CONDITIONS[index][0] for index in chosen]))
    matches = [match(reader, query)]
    assert sorted(found(matches, ordered(matches, "step", descending=True))) == expected(chosen)


@settings(max_examples=30, deadline=None)
@given(chosen=st.lists(st.integers(1, 2) | st.integers(9, 12), max_size=3, unique=True))
def test_counts_ignore_the_condition_on_their_own_facet(reader: IndexReader, chosen: list[int]) -> None:
    counts = count_facets([match(reader, parse_query(QueryParams([CONDITIONS[index][0] for index in chosen])))])
    rows = {(file, line): each for file, part in FILES.items() for line, each in enumerate(part)}

    def others(facet: str) -> list[Mapping[str, Any]]:
        kept = [index for index in chosen if CONDITIONS[index][0][0] != facet]
        return [rows[key] for key in expected(kept)]

    assert counts["correct"] == [sum(each["correct"] is value for each in others("correct")) for value in (False, True)]
    finishes = Counter(each["finish_reason"] for each in others("finish"))
    assert {name: count for name, count in counts["finish"].items() if count} == finishes
    used = Counter(status for each in others("status") for status in statuses(each))
    assert {name: count for name, count in counts["status"].items() if count} == used
    calls = Counter(float(len(each["tool_calls"])) for each in others("calls"))
    assert dict(counts["calls"]) == calls
    assert sum(count for _, _, count in counts["step"]) == len(others("step"))


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("sort", ["reward", "advantage", "tokens", "calls"])
def test_pages_are_parts_of_the_whole_order(reader: IndexReader, sort: str, descending: bool) -> None:
    matches = [match(reader, parse_query(QueryParams("")))]
    whole = ordered(matches, sort, descending=descending)
    values = [float(matches[0].columns[sort][position]) for _, position in whole]
    missing = [value for value in values if np.isnan(value)]
    present = values[: len(values) - len(missing)]
    assert present == sorted(present, reverse=descending)
    assert all(np.isnan(value) for value in values[len(present) :])  # last in both orders
    for count in (1, 5, 17, 39):
        assert (ordered(matches, sort, descending=descending, count=count) == whole[:count]).all()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("colour=1", "unknown parameter 'colour'"),
        ("correct=yes", "must be 1 or 0"),
        ("step=a..b", "must be a number or a range"),
        ("status=fine", "unknown outcome 'fine'"),
        ("finish=never", "unknown reason 'never'"),
        ("sign=imaginary", "unknown facet 'imaginary'"),
        ("words=%2B%2B", "has no word"),
    ],
)
def test_unknown_condition_is_an_error(reader: IndexReader, query: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        match(reader, parse_query(QueryParams(query)))


def test_range_may_be_open_at_either_end() -> None:
    texts = ("2..5", "2..", "..5", "3", "..")
    assert [parse_range("step", text) for text in texts] == [(2, 5), (2, None), (None, 5), (3, 3), (None, None)]


# --- common prefixes --------------------------------------------------------------------------------------------------

SEQUENCES = st.lists(st.lists(st.integers(0, 2), max_size=8), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(SEQUENCES)
def test_paths_of_the_prefix_tree_are_the_sequences(sequences: list[list[int]]) -> None:
    nodes = list(prefix_tree([np.array(each, np.int64) for each in sequences]))
    for index, sequence in enumerate(sequences):
        path = [sequence[start:stop] for _, members, start, stop in nodes if index in members]
        assert [each for part in path for each in part] == sequence


@settings(max_examples=60, deadline=None)
@given(SEQUENCES)
def test_two_sequences_share_exactly_their_common_prefix(sequences: list[list[int]]) -> None:
    nodes = list(prefix_tree([np.array(each, np.int64) for each in sequences]))
    for one, first in enumerate(sequences):
        for other, second in enumerate(sequences[:one]):
            common = next((i for i, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1]), None)
            common = min(len(first), len(second)) if common is None else common
            assert max(stop for _, members, _, stop in nodes if {one, other} <= set(members)) == common


# --- gained and lost --------------------------------------------------------------------------------------------------


def test_changes_compare_the_first_and_the_last_attempts(tmp_path: Any) -> None:
    accuracies = {"a": (0.0, 1.0), "b": (1.0, 0.5), "c": (0.5, 0.5)}  # at steps 0 and 4, of two attempts
    rows = {
        step: [
            row(step, sample, problem, correct=sample < 2 * pair[index])
            for problem, pair in accuracies.items()
            for sample in range(2)
        ]
        for index, step in enumerate((0, 4))
    }
    between = [row(2, 0, "a", correct=False)]  # neither first nor last
    files = {"evaluation_000000_held": rows[0], "evaluation_000002_held": between, "evaluation_000004_held": rows[4]}
    (change,) = changes(indexed(write_run(tmp_path / "run", files)))
    assert (change["set"], change["steps"], change["problems"]) == ("held", [0, 4], 3)
    differences = [after - before for before, after in accuracies.values()]
    assert change["after"] - change["before"] == pytest.approx(fmean(differences))
    assert change["half_width"] == pytest.approx(1.96 * np.std(differences, ddof=1) / np.sqrt(3))
    assert [(each["problem"], each["before"], each["after"]) for each in change["gained"]] == [("a", 0.0, 1.0)]
    assert [(each["problem"], each["before"], each["after"]) for each in change["lost"]] == [("b", 1.0, 0.5)]


def test_problems_with_one_id_are_apart(tmp_path: Any) -> None:
    """As the first line of the file of a training set and that of an evaluation set, whose second version has 2 + 3."""
    trained = [row(step, problem="line-1", question="1 + 1?") for step in (0, 1)]
    held = [row(step, problem="line-1", question="2 + 2?", correct=step > 0) for step in (0, 1)]
    new = [row(step, problem="line-1", question="2 + 3?", correct=step == 0) for step in (0, 1)]
    files = {f"step_{step:06d}": [each] for step, each in enumerate(trained)}
    files |= {f"evaluation_{step:06d}_held": [held[step], new[step]] for step in (0, 1)}
    reader = indexed(write_run(tmp_path / "run", files))
    found = problem_history([reader], "line-1")
    assert sorted((each["question"], len(each["attempts"])) for each in found) == [
        ("1 + 1?", 2),
        ("2 + 2?", 2),
        ("2 + 3?", 2),
    ]
    (change,) = (each for each in changes(reader) if each["set"] == "held")
    for kind, question in (("gained", "2 + 2?"), ("lost", "2 + 3?")):
        (listed,) = change[kind]
        (linked,) = problem_history([reader], listed["key"])
        assert (listed["problem"], linked["question"]) == ("line-1", question)
        assert {attempt["set"] for attempt in linked["attempts"]} == {"held"}


def test_problem_of_a_replaced_file_is_not_listed(tmp_path: Any) -> None:
    directory = write_run(tmp_path / "run", {"step_000000": [row(question="1 + 1?")]})
    indexed(directory).close()
    (directory / "trajectories/step_000000.jsonl").write_bytes(lines([row(question="1 + 2?")]))
    (found,) = problem_history([indexed(directory)], "p")
    assert found["question"] == "1 + 2?"
