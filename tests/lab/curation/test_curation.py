"""The steps of `python -m torl data`, on files."""

import json
import re
import resource
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from builders import asked, scored, scored_group, trajectory
from torl.base.errors import DataError, RecordError
from torl.base.types import Problem, ScoredGroup
from torl.components.data import load_problems
from torl.rollout.played_output import problem_digest
from torl.run.records.rows import group_records
from torl.run.records.writers import write_trajectories
from torl_lab.curation.candidates import CandidateFile
from torl_lab.curation.command import main
from torl_lab.curation.difficulty import PassRate, PassRateFile, accuracies_of_run, with_pass_rates
from torl_lab.curation.selecting import SelectOptions, select

RAW = [
    {"id": "sum", "problem": "What is the sum of all even numbers from 2 up to and with 100?", "answer": "$2550$"},
    {
        "id": "again",
        "problem": "What is the sum of all even numbers from 2 up to, and with, $100$ ?",
        "answer": "2550.0",
    },
    {"id": "proof", "problem": "Prove that there are infinitely many primes.", "answer": "proof"},
    {"id": "evaluated", "problem": "Hello! Find the smallest prime above 100. Thanks.", "answer": "101"},
    {"id": "half", "problem": "Half of what number is nine?", "answer": "\\boxed{\\dfrac{36}{2}}", "level": 3},
    {"id": "root", "problem": "Which positive number has the square twelve?", "answer": "$2\\sqrt{3}$."},
    {"id": "broken", "problem": "Which one is it, then?", "answer": "\\frac{1}{"},
    {"id": "eight", "problem": "How many legs has a spider?", "answer": "8"},
    {"id": "six", "problem": "How many legs has a Spider ?", "answer": "6"},
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared")
    raw, evaluated = folder / "raw.jsonl", folder / "set.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in RAW))
    evaluated.write_text(json.dumps({"id": "e", "problem": "Find the smallest prime above 100.", "answer": "101"}))
    (folder / "out").mkdir()
    # As a killed command leaves it: rows that were read are kept, a row that was cut is not.
    (folder / "out/answers.jsonl").write_text('{"answer": "101", "readable": true}\n{"answer": "25')
    assert main(["prepare", str(raw), "--against", str(evaluated), "--output", str(folder / "out")]) == 0
    return folder / "out"


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_kept_problems_are_verifiable_and_normalized(prepared: Path) -> None:
    problems = {problem.id: problem for problem in load_problems(prepared / "problems.jsonl")}
    assert {name: problem.answer for name, problem in problems.items()} == {
        "sum": "2550",
        "half": "\\frac{36}{2}",
        "root": "2\\sqrt{3}",
    }
    assert problems["half"].metadata == {"source": "raw", "level": 3}


def test_dropped_problem_has_a_reason_and_its_cause(prepared: Path) -> None:
    dropped = {row["id"]: row for row in rows(prepared / "dropped.jsonl")}
    assert dropped["proof"]["reason"] == "proof"
    assert dropped["broken"]["reason"] == "unreadable_answer"
    assert dropped["again"] == {"id": "again", "reason": "near_duplicate", "because_of": "sum"}
    assert [dropped[name]["reason"] for name in ("eight", "six")] == ["conflicting_answers"] * 2
    assert dropped["evaluated"] == {"id": "evaluated", "reason": "in_evaluation_set", "because_of": "set/e"}
    (hit,) = rows(prepared / "matches.jsonl")
    assert (hit["reason"], hit["shared"]) == ("ngram", "find the smallest prime above 100")
    counts = json.loads((prepared / "counts.json").read_text())
    assert counts["read"] == counts["kept"] + sum(counts["dropped"].values()) == len(RAW)
    remembered = {row["answer"]: row["readable"] for row in rows(prepared / "answers.jsonl")}
    assert remembered == {"101": True, "2\\sqrt{3}": True}
    assert not (prepared / "candidates.partial").exists()


# --- difficulty and choice ----------------------------------------------------------------------------------------


def group(problem: str, *correct: bool) -> ScoredGroup:
    prompt = asked(problem)
    return scored_group(
        *(scored(trajectory("x", prompt=prompt, sample=sample), right) for sample, right in enumerate(correct))
    )


def test_pass_rates_are_kept_without_trajectories(tmp_path: Path) -> None:
    """As groups end, in any order; a line that was cut is measured again."""
    rates = PassRateFile(tmp_path / "rates.jsonl")
    assert rates.read() == {}
    for each in (group("b", True, False), group("a", False, False)):
        rates.append(each)
    with rates.path.open("ab") as file:
        file.write(b'{"id": "c", "pass_r')
    digest = problem_digest(asked("a").problem)
    assert rates.read() == {"a": PassRate(0.0, 2, digest), "b": PassRate(0.5, 2, digest)}
    assert len(rates.path.read_bytes()) < 220
    problems = [Problem(name, "?", "1", {"level": 3}) for name in "abc"]
    hard, half = with_pass_rates(problems, rates.read())
    assert (hard.id, hard.metadata) == ("a", {"level": 3, "pass_rate": 0.0, "samples": 2})
    assert (half.id, half.metadata) == ("b", {"level": 3, "pass_rate": 0.5, "samples": 2})


def test_accuracies_come_from_the_records_of_a_run(tmp_path: Path) -> None:
    steps = [[group("a", True, False), group("b", False, False)], [group("a", True, True)], [group("b", True, False)]]
    for step, groups in enumerate(steps):
        write_trajectories(tmp_path, step, group_records(step, groups))
    assert accuracies_of_run(tmp_path) == {"a": [0.5, 1.0], "b": [0.0, 0.5]}
    with pytest.raises(DataError, match="contains no trajectories of training steps"):
        accuracies_of_run(tmp_path / "empty")


def problem(name: str, rate: float, source: str = "s") -> Problem:
    return Problem(name, "?", "1", {"pass_rate": rate, "source": source})


def test_problems_outside_the_window_are_left_out_and_counted() -> None:
    problems = [problem("easy", 1.0), problem("fine", 0.5), problem("hard", 0.0), Problem("new", "?", "1")]
    chosen, counts = select(problems, SelectOptions(pass_rate_range=(0.1, 0.9)))
    assert [each.id for each in chosen] == ["fine"]
    assert counts["dropped"] == {"too_easy": 1, "too_hard": 1, "no_pass_rate": 1}
    with pytest.raises(DataError, match="no problem is left"):
        select(problems, SelectOptions(pass_rate_range=(0.6, 0.7)))


def test_problems_that_do_not_follow_the_run_are_left_out() -> None:
    """Means 0.25 and 0.75; b moves against them."""
    accuracies = {"a": [0.0, 1.0], "b": [0.5, 0.5]}
    problems = [Problem(name, "?", "1") for name in "abc"]
    chosen, counts = select(problems, SelectOptions(min_learning_impact=0.8), accuracies)
    assert [each.id for each in chosen] == ["a", "b"]
    assert chosen[0].metadata["learning_impact"] == pytest.approx(1 - 0.125 / 0.625)
    assert chosen[0].metadata["pass_rate"] == 0.5
    assert counts["dropped"] == {"never_sampled": 1}
    with pytest.raises(DataError, match="no problem is left of 3: 2 low learning impact, 1 never sampled"):
        select(problems, SelectOptions(min_learning_impact=0.9), accuracies)


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_learning_impact_of_one_epoch_is_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], epochs: int
) -> None:
    """All curves of one epoch are points: the score says nothing about learning."""
    for step in range(epochs):
        groups = [group("a", True, False), group("b", step == 1, False)]
        write_trajectories(tmp_path, step, group_records(step, groups))
    problems = [{"id": name, "problem": "?", "answer": "1"} for name in "ab"]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, problems)))
    words = ["select", "--problems", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    assert main([*words, "--run", str(tmp_path), "--min-learning-impact", "0.1"]) == 0
    assert ("warning: the run has one epoch" in capsys.readouterr().out) is (epochs == 1)


def test_pass_rates_of_a_csv_file_are_numbers(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,problem,answer,pass_rate\na,?,1,0.5\nb,?,1,1.0\nc,?,1,\n")
    words = ["select", "--problems", str(tmp_path / "in.csv"), "--output", str(tmp_path / "out.jsonl")]
    assert main([*words, "--pass-rate-range", "0.1,0.9", "--count", "1"]) == 0
    assert [problem.id for problem in load_problems(tmp_path / "out.jsonl")] == ["a"]
    with pytest.raises(DataError, match="pass_rate of the problem 'd' must be a number, got 'half'"):
        select([Problem("d", "?", "1", {"pass_rate": "half"})], SelectOptions())


def test_published_pass_rates_are_selected_by_the_name_of_their_column(tmp_path: Path) -> None:
    """As Big-Math's."""
    rows = [{"id": n, "problem": "?", "answer": "1", "rate": rate} for n, rate in enumerate((0.25, None, 1.0))]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["select", "--problems", str(tmp_path / "in.jsonl"), "--output", str(tmp_path / "out.jsonl")]
    words += ["--pass-rate-range", "0.1,0.9"]
    assert main([*words, "--column", "pass_rate=rate"]) == 0
    (selected,) = load_problems(tmp_path / "out.jsonl")
    assert (selected.id, selected.metadata) == ("0", {"rate": 0.25, "pass_rate": 0.25})
    with pytest.raises(
        DataError, match="3 no pass rate; they are in the column 'pass_rate', or --column pass_rate=COL"
    ):
        select(load_problems(tmp_path / "in.jsonl"), SelectOptions(pass_rate_range=(0.1, 0.9)))


def test_a_count_is_balanced_over_difficulty_and_source() -> None:
    problems = [problem(f"{source}{rate}{n}", rate, source) for source in "ab" for rate in (0.0, 0.5) for n in range(9)]
    chosen, counts = select(problems, SelectOptions(count=8, difficulty_bins=4))
    assert counts["strata"] == {f"{rates} / {source}": 2 for rates in ("never", "0.5 to 0.75") for source in "ab"}
    again, _ = select(problems, SelectOptions(count=8, difficulty_bins=4))
    assert chosen == again
    other, _ = select(problems, SelectOptions(count=8, difficulty_bins=4, seed=1))
    assert chosen != other


def test_seed_draws_the_strata_of_a_small_count() -> None:
    """None of them is preferred, such as the hardest or the first by name."""
    problems = [problem(f"{source}{rate}{n}", rate, source) for source in "ab" for rate in (0.0, 0.5) for n in range(3)]
    seeds = range(200)
    drawn = Counter(
        (each.metadata["pass_rate"], each.metadata["source"])
        for seed in seeds
        for each in select(problems, SelectOptions(count=1, seed=seed))[0]
    )
    assert len(drawn) == 4
    assert min(drawn.values()) > len(seeds) / 8


def test_files_of_one_name_are_sources_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Most sets are called train: none of them may take another's place."""
    for source, question, answer in (("one", "How many legs has a spider?", "8"), ("two", "And a chair?", "4")):
        (tmp_path / source).mkdir()
        row = {"id": "a", "problem": question, "answer": answer}
        (tmp_path / source / "train.jsonl").write_text(json.dumps(row))
    out, files = tmp_path / "out", [str(tmp_path / source / "train.jsonl") for source in ("one", "two")]
    assert main(["prepare", *files, "--output", str(out)]) == 0
    assert "kept 2 of 2 problems; " in capsys.readouterr().out
    kept = [(problem.id, problem.metadata["source"]) for problem in load_problems(out / "problems.jsonl")]
    assert kept == [("one-train/a", "one-train"), ("two-train/a", "two-train")]
    assert main(["prepare", *files, files[0], "--output", str(out)]) == 1
    assert "several files are called one-train" in capsys.readouterr().err


def prepare_raw(folder: Path, rows_: list[dict[str, object]]) -> int:
    """Prepare these rows; returns the most bytes that were held."""
    folder.mkdir()
    (folder / "raw.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows_))
    tracemalloc.start()
    assert main(["prepare", str(folder / "raw.jsonl"), "--output", str(folder / "out")]) == 0
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def test_no_problem_is_held_while_others_are_prepared(tmp_path: Path) -> None:
    questions = [" ".join(str(number * other) for other in range(2, 30)) + "?" for number in range(1000, 1100)]
    short, long = (
        prepare_raw(tmp_path / name, [{"problem": q, "answer": "1", "solution": "x" * size} for q in questions])
        for name, size in (("short", 10), ("long", 40_000))
    )
    assert long - short < 1_000_000  # the file is longer by four million
    assert len(load_problems(tmp_path / "long/out/problems.jsonl")) == 100


def test_problems_without_an_answer_are_dropped_however_many_they_are(tmp_path: Path) -> None:
    questions = ("How many legs has a spider?", "And a chair?", "Show that it stands.")
    answers = ("8", "", "")
    prepare_raw(tmp_path / "raw", [{"problem": q, "answer": a} for q, a in zip(questions, answers, strict=True)])
    dropped = rows(tmp_path / "raw/out/dropped.jsonl")
    cause = {"reason": "no_answer", "because_of": "the answer is empty"}
    assert dropped == [{"id": f"line-{number}", **cause} for number in (2, 3)]
    words = ["prepare", str(tmp_path / "raw/raw.jsonl"), "--output", str(tmp_path / "strict"), "--strict"]
    assert main(words) == 1


def test_invalid_rows_are_dropped_with_their_error(tmp_path: Path) -> None:
    question = "How many legs has a spider number {}?"
    lines = [json.dumps({"id": str(n), "problem": question.format(n), "answer": 8}) for n in range(3)]
    lines += [
        '{"problem": "a?", "answer": NaN}',
        '{"problem": ["a?"], "answer": "1"}',
        "{",
        json.dumps({"id": "1", "problem": "And a chair?", "answer": "4"}),
    ]
    (tmp_path / "raw.jsonl").write_text("\n".join(lines))
    words = [str(tmp_path / "raw.jsonl"), "--similarity-threshold", "1", "--output", str(tmp_path / "out")]
    assert main(["prepare", *words]) == 0
    assert [problem.id for problem in load_problems(tmp_path / "out/problems.jsonl")] == ["0", "1", "2"]
    dropped = rows(tmp_path / "out/dropped.jsonl")
    assert [(row["id"], row["reason"]) for row in dropped] == [
        ("line-4", "no_answer"),
        ("line-5", "question_not_text"),
        ("line-6", "not_json"),
        ("line-7", "repeated_id"),
    ]
    assert dropped[1]["because_of"] == "the question must be text, got a list"


def test_reasons_are_written_when_no_problem_is_left(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ['{"problem": "a?", "answer": ""}'] * 5 + ['{"problem": "Prove it.", "answer": "proof"}']
    (tmp_path / "none.jsonl").write_text("\n".join(lines))
    assert main(["prepare", str(tmp_path / "none.jsonl"), "--output", str(tmp_path / "out")]) == 1
    error = capsys.readouterr().err
    assert re.search(r"no problem is left of 6; see .*dropped\.jsonl\n +5  no_answer\n +line-1: the answer is", error)
    assert error.count("line-") == 4
    assert [row["reason"] for row in rows(tmp_path / "out/dropped.jsonl")] == ["no_answer"] * 5 + ["proof"]


def test_misused_step_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prepair"]) == 2
    assert "torl data prepare" in capsys.readouterr().err
    words = ["select", "--problems", "x.jsonl", "--output", str(tmp_path / "out")]
    assert main([*words, "--min-learning-impact", "0.6"]) == 1
    assert "requires --run" in capsys.readouterr().err
    assert main([*words, "--pass-rate-range", "0.6"]) == 1
    assert "such as 0.1,0.9, got '0.6'" in capsys.readouterr().err
    assert main([*words, "--pass-rate-range", "0.9,0.1"]) == 1
    assert "must be MIN,MAX, but 0.9 is above 0.1" in capsys.readouterr().err
    for option, value in (("--count", "0"), ("--count", "-1"), ("--difficulty-bins", "0")):
        assert main([*words, option, value]) == 1
        assert f"{option} must be at least 1, got {value}" in capsys.readouterr().err
    words = ["prepare", "x.jsonl", "--output", str(tmp_path / "out")]
    assert main([*words, "--ngram-size", "0"]) == 1
    assert "--ngram-size must be at least 1, got 0" in capsys.readouterr().err
    assert main([*words, "--similarity-threshold", "1.5"]) == 1
    assert "--similarity-threshold must be above 0 and at most 1, got 1.5" in capsys.readouterr().err


def test_full_disk_is_an_error_that_names_the_file_and_leaves_none(tmp_path: Path) -> None:
    path, limits = tmp_path / "candidates.partial", resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill() -> None:
        with CandidateFile(path) as candidates:
            resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, limits[1]))
            for _ in range(20):
                candidates.add(Problem("a", "?" * 1_000, "1", {"source": "s"}), 0, ["?"])

    try:
        with pytest.raises(RecordError, match=re.escape(str(path))):
            fill()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not path.exists()
