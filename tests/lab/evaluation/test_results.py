"""From trajectory files to tables: counts, comparisons, and printed output."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from builders import asked, scored, trajectory
from saved_pages import figures, line, tables
from torl.base.errors import ConfigError, RecordError
from torl.base.paths import resolve_path
from torl.base.types import Prompt, ScoredGroup
from torl.components.data.layout import Layout
from torl.components.text.prompts import EncodedPrompts
from torl.rollout.group_file import GroupFile
from torl.rollout.played_output import problem_digest
from torl.run.config.loading import find_config
from torl.run.records import metric_names as names
from torl_lab.evaluation.cells import (
    EvaluationCell,
    cells_in,
    read_problem_source,
    write_or_check_problems,
    write_or_check_settings,
)
from torl_lab.evaluation.command import _models, read_arguments
from torl_lab.evaluation.estimates import AVERAGE, estimates, sample_interval
from torl_lab.evaluation.output import Table, latex, markdown, results, write_all
from torl_lab.evaluation.papers import PAPERS, SIZES
from torl_lab.evaluation.results import (
    CODE_USE,
    CodeUse,
    Variant,
    difference,
    read_results,
    shared_problems,
    tool_differences,
)
from torl_lab.evaluation.sets import SUITES, make_set
from torl_lab.evaluation.tables import all_tables

TOO_LONG = "long"
DEMO_MODEL = resolve_path("torl:demo/base_model")
SOURCE = make_set("problems.jsonl", Layout())


def group(problem: str, *correct: bool) -> ScoredGroup:
    """Wrong answers all differ."""
    prompt = asked(problem)
    members = [
        scored(trajectory("x", prompt=prompt, sample=sample), right, answer="1" if right else f"wrong {sample}")
        for sample, right in enumerate(correct)
    ]
    return ScoredGroup(prompt, tuple(members))


def write(output: Path, model: str, calls: int, greedy: str, sampled: dict[str, list[bool]] | None = None) -> None:
    """Sets "one" (problems a, b, c) and "two" (a); a letter of `greedy` that is upper case is solved."""
    directory = output / model
    write_or_check_settings(directory, "settings", DEMO_MODEL)
    for set_name, problems in (("one", "abc"), ("two", "a")):
        encoded = EncodedPrompts(tuple(map(asked, problems)), (TOO_LONG,) if set_name == "one" else ())
        write_or_check_problems(directory, set_name, encoded, SOURCE)
        cell = EvaluationCell(directory, set_name, calls, "greedy")
        for problem in reversed(problems):  # as they ended
            cell.file.append(group(problem, problem.upper() in greedy))
    if sampled:
        for set_name, problems in (("one", "abc"), ("two", "a")):
            for problem in problems:
                EvaluationCell(directory, set_name, calls, "sampled").file.append(group(problem, *sampled[problem]))


def arm_of(model: str, calls: int, **sets: list[float]) -> Variant:
    problems = {name: tuple(map(str, range(len(values)))) for name, values in sets.items()}
    return Variant(model, calls, {"greedy": {name: np.array(values) for name, values in sets.items()}}, problems, {})


def test_every_measure_of_a_cell_counts_problems_that_are_too_long(tmp_path: Path) -> None:
    sampled = {"a": [True, True, False, False], "b": [True, False, False, False], "c": [False] * 4}
    write(tmp_path, "model", 1, "AB", sampled)
    (arm,) = read_results(tmp_path)
    assert (arm.model, arm.calls) == ("model", 1)
    one = {measure: sets["one"].tolist() for measure, sets in arm.measures.items()}
    assert one["greedy"] == [1, 1, 0, 0]
    assert one["avg@4"] == [0.5, 0.25, 0, 0]
    assert arm.code["avg@4"]["one"].accuracy_P.tolist() == [0.5, 0.25, 0]  # of those that were played
    assert (
        arm.code["avg@4"]["one"].means[names.RESPONSE_TOKENS] == arm.code["greedy"]["two"].means[names.RESPONSE_TOKENS]
    )
    assert one["maj@4"] == [1, 0.25, 0, 0]
    assert one["pass@2"] == pytest.approx([1 - 1 / 6, 0.5, 0, 0])
    assert one["pass@4"] == [1, 1, 0, 0]
    found = estimates(arm.measures["greedy"])
    assert found["one"].value == 0.5
    assert found["two"].value == 1
    assert found[AVERAGE].value == 0.75


def test_intervals_of_the_model_on_these_problems_are_given_where_samples_show_them(tmp_path: Path) -> None:
    sampled = {"a": [True, True, True, False], "b": [True, False, False, False], "c": [False] * 4}
    write(tmp_path, "model", 1, "AB", sampled)
    command = ["model", "--suite", "one", "--interval"]
    assert [read_arguments([*command, about]).interval for about in ("model", "problems")] == [
        "model",
        "problems",
    ]
    (arm,), (usual,) = read_results(tmp_path, for_model=True), read_results(tmp_path)
    for measure in arm.measures:
        found, others = arm.estimates(measure)["one"], usual.estimates(measure)["one"]
        assert found.value == others.value
        assert (found.interval == sample_interval(arm.measures[measure]["one"], 4)) is (measure == "avg@4")
        assert (found.interval == others.interval) is (measure != "avg@4")
    notes = {table.title: table.notes[0] for table in all_tables([arm]) if table.title.startswith("Accuracy")}
    assert "over samples, of each model on exactly these problems" in notes["Accuracy, avg@4, %"]
    for measure in ("greedy", "maj@4", "pass@2"):
        assert "only avg@n of at least two samples has one" in notes[f"Accuracy, {measure}, %"]
    assert "intervals over problems in" in all_tables([usual])[0].notes[0]
    assert {row["measure"]: row["interval"] for row in results([arm])["accuracy"]} == {
        measure: "samples" if measure == "avg@4" else "problems" for measure in arm.measures
    }


def test_one_sample_shows_no_variance_of_a_model(tmp_path: Path) -> None:
    write(tmp_path, "model", 1, "AB", {"a": [True], "b": [False], "c": [False]})
    (arm,) = read_results(tmp_path, for_model=True)
    assert arm.estimates("avg@1") == estimates(arm.measures["avg@1"])
    assert not arm.has_sample_intervals("avg@1")


def test_incomplete_set_has_no_result(tmp_path: Path) -> None:
    write(tmp_path, "model", 1, "A")
    cell = next(cell for cell in cells_in(tmp_path / "model") if cell.set_name == "one")
    cell.file.replace(cell.file.read()[1:])
    with pytest.raises(RecordError, match="1 problems are not played yet: run the same command again"):
        read_results(tmp_path)
    with pytest.raises(RecordError, match="contains no evaluation"):
        read_results(tmp_path / "empty")


def test_sets_are_ordered_as_in_the_papers_and_calls_by_number(tmp_path: Path) -> None:
    for name in ("own", "math500", "amc23", "aime24"):
        (tmp_path / name).mkdir()
        for calls in (10, 2):
            EvaluationCell(tmp_path, name, calls, "greedy").file.append(group("a", True))
    places = [(cell.set_name, cell.calls) for cell in cells_in(tmp_path)]
    assert places == [(name, calls) for name in ("aime24", "math500", "amc23", "own") for calls in (2, 10)]


def test_tool_gain_is_compared_problem_by_problem(tmp_path: Path) -> None:
    write(tmp_path, "model", 0, "A")
    write(tmp_path, "model", 2, "BC")
    write(tmp_path, "other", 2, "ABC")
    arms = read_results(tmp_path)
    pairs = [(arm.label, without.label) for arm, without in tool_differences(arms)]
    assert pairs == [("model, N = 2", "model, N = 0")]  # the other was not played without it
    ((arm, without),) = tool_differences(arms)
    found = difference(arm, without, "greedy")
    assert found["one"].value == pytest.approx(0.25)  # two more and one less of four
    assert found["two"].value == -1
    assert found["one"].interval[0] < 0 < found["one"].interval[1]


def test_other_problems_are_not_compared() -> None:
    with pytest.raises(RecordError, match="played on different problems"):
        difference(arm_of("a", 1, one=[1.0, 0.0]), arm_of("a", 0, one=[1.0]), "greedy")
    other = replace(arm_of("a", 0, one=[1.0, 0.0]), problems={"one": ("0", "another")})
    with pytest.raises(RecordError, match="played on different problems"):
        difference(arm_of("a", 1, one=[1.0, 0.0]), other, "greedy")


@pytest.mark.parametrize("too_long", list("abcd"))
def test_a_problem_that_is_too_long_for_one_model_is_compared_with_itself(tmp_path: Path, too_long: str) -> None:
    """It comes last among the values of the model whose prompt is too long."""
    values = {}
    for model, solved, left_out in (("base", "ab", ""), ("trained", "acd", too_long)):
        write_or_check_settings(tmp_path / model, "settings", DEMO_MODEL)
        played = [each for each in "abcd" if each != left_out]
        encoded = EncodedPrompts(tuple(map(asked, played)), tuple(left_out))
        write_or_check_problems(tmp_path / model, "one", encoded, SOURCE)
        for each in played:
            EvaluationCell(tmp_path / model, "one", 0, "greedy").file.append(group(each, each in solved))
        values[model] = [float(each in solved and each in played) for each in "abcd"]
    base, trained = read_results(tmp_path)
    expected = difference(arm_of("trained", 0, one=values["trained"]), arm_of("base", 0, one=values["base"]), "greedy")
    assert difference(trained, base, "greedy") == expected
    (table,) = [each for each in all_tables([base, trained], baseline="base") if "from base" in each.title]
    assert [row[0] for row in table.rows] == ["trained, N = 0"]


def test_other_settings_or_problems_are_refused(tmp_path: Path) -> None:
    write_or_check_settings(tmp_path, "settings", DEMO_MODEL)
    problems = EncodedPrompts((asked("a"),), ())
    write_or_check_problems(tmp_path, "one", problems, SOURCE)
    EvaluationCell(tmp_path, "one", 0, "greedy").file.append(group("a", True))
    write_or_check_settings(tmp_path, "settings", DEMO_MODEL)
    with pytest.raises(ConfigError, match="played with other settings"):
        write_or_check_settings(tmp_path, "others", DEMO_MODEL)
    moved = make_set("moved.jsonl", Layout())
    write_or_check_problems(tmp_path, "one", problems, moved)
    assert read_problem_source(tmp_path, "one") == moved
    for others in (
        EncodedPrompts((asked("a", answer="2"),), ()),
        EncodedPrompts((asked("a", token_ids=(7,)),), ()),
        EncodedPrompts((asked("a"),), ("b",)),
    ):
        with pytest.raises(ConfigError, match="played with other problems or prompts"):
            write_or_check_problems(tmp_path, "one", others, SOURCE)


def test_a_group_that_a_kill_cut_is_played_again(tmp_path: Path) -> None:
    file = GroupFile(tmp_path / "groups.jsonl")
    assert file.drop_incomplete(2) == {}
    file.append(group("a", True, False))
    whole = file.path.read_bytes()
    file.append(group("b", True, False))
    file.path.write_bytes(file.path.read_bytes()[: len(whole) + (len(whole) // 2) + 9])  # within its second row
    assert file.drop_incomplete(2) == {"a": problem_digest(asked("a").problem)}
    assert file.path.read_bytes() == whole
    file.append(group("b", True, True))
    assert [each.prompt.problem.id for each in file.read()] == ["a", "b"]
    asked_again = [Prompt(replace(asked("b").problem, metadata={"level": 3}), (9,)), asked("c")]
    (read,) = file.read(asked_again)
    assert read.prompt == asked_again[0]
    played = [member.trajectory.prompt for member in read.members]
    assert [(prompt.problem.metadata, prompt.token_ids) for prompt in played] == [({"level": 3}, (1, 2, 3))] * 2


# --- tables -------------------------------------------------------------------------------------------------------


def test_the_papers_averages_that_are_off_have_a_note() -> None:
    notes = {row.model: row.note for rows in PAPERS.values() for row in rows if row.note}
    assert notes["ToRL-7B"] == "ToRL-7B: the source prints 62.1; the mean of its numbers is 56.1"
    assert set(notes) == {"ToRL-7B", "Qwen2.5-Math-1.5B-Instruct-TIR", "Eurus-2-7B-PRIME"}


def test_the_papers_rows_of_zerotir_are_one_response_to_each_problem() -> None:
    """Every printed accuracy of tables 1 and 2 is a whole number of problems, within its rounding."""
    rows = [row for row in PAPERS["zerotir"] if row.measure == "greedy" and row.comment is None]
    assert len(rows) == 7
    for row in rows:
        for name, value in row.values.items():
            solved = round(value * SIZES[name] / 100)
            assert abs(100 * solved / SIZES[name] - value) <= 0.0501, (row.model, name)
    (commented,) = [row for row in PAPERS["zerotir"] if row.comment]
    table = all_tables([arm_of("mine", 1, aime25=[1.0])], "zerotir")[0]
    assert commented.comment in table.notes


def test_a_table_has_the_papers_rows_and_the_difference_from_its_own() -> None:
    tables = all_tables([arm_of("mine", 1, aime24=[1.0, 0.0] * 15, math500=[1.0] * 500, own=[0.0])], "torl")
    accuracy, against = tables
    assert accuracy.columns == ("model", "aime24", "math500", "own", AVERAGE)
    rows = {row[0]: row[1:] for row in accuracy.rows}
    assert rows["mine, N = 1"][0] == "50.0 [33.2, 66.8]"
    assert rows["ToRL-7B (paper)"] == ("43.3", "82.2", "-", "-")  # its average is over other sets
    assert rows["rStar-Math-7B (paper)"] == ("26.7", "78.4", "-", "-")
    rows = {row[0]: row[1:] for row in against.rows}
    # Over the sets of both: (50 + 100) / 2 - (43.3 + 82.2) / 2.
    assert rows["mine, N = 1 - ToRL-7B"] == ("+6.7", "+17.8", "-", "+12.2")
    assert set(rows) == {"mine, N = 1 - ToRL-1.5B", "mine, N = 1 - ToRL-7B"}


def test_a_part_of_a_set_has_no_difference_from_the_paper() -> None:
    accuracy, against = all_tables([arm_of("mine", 1, aime24=[0.0] * 30, math500=[1.0] * 100)], "torl")
    assert "math500: 100 problems, but the paper's accuracy is over 500" in accuracy.notes
    assert not any(note.startswith("aime24: ") for note in accuracy.notes)
    rows = {row[0]: row[1:] for row in against.rows}
    assert rows["mine, N = 1 - ToRL-7B"] == ("-43.3", "-", "-")
    (accuracy,) = all_tables([arm_of("mine", 1, math500=[1.0] * 100)], "torl")
    assert "math500: 100 problems, but the paper's accuracy is over 500" in accuracy.notes


def test_average_of_a_paper_is_shown_for_its_own_sets_only() -> None:
    sets = {name: [1.0] for name in SUITES["torl"]}
    accuracy = all_tables([arm_of("mine", 1, **sets)], "torl")[0]
    rows = {row[0]: row[-1] for row in accuracy.rows}
    assert rows["ToRL-7B (paper)"] == "62.1"
    assert "ToRL-7B: the source prints 62.1; the mean of its numbers is 56.1" in accuracy.notes
    (other,) = all_tables([arm_of("mine", 1, own=[1.0], others=[1.0])], "torl")
    assert [row[0] for row in other.rows] == ["mine, N = 1"]
    assert "The paper 'torl' has no greedy on any of these sets" in other.notes


def test_models_and_sets_keep_the_order_of_the_command(tmp_path: Path) -> None:
    for model in ("base", "trained"):
        write(tmp_path, model, 0, "A")
    variants = read_results(tmp_path, ["trained", "base"], ["two", "one"])
    assert [variant.model for variant in variants] == ["trained", "base"]
    assert list(variants[0].measures["greedy"]) == ["two", "one"]
    assert [variant.model for variant in read_results(tmp_path)] == ["base", "trained"]


def test_models_have_the_names_of_their_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the runs that torl sweep makes, and the working directory."""
    run = tmp_path / "max_tool_calls=0_seed=0"
    run.mkdir()
    shutil.copy(find_config("demo"), run / "config.toml")
    (tmp_path / "latest").symlink_to(run)
    monkeypatch.chdir(run)
    for argument, label, model in (
        (str(run), run.name, str(run / "model")),
        (f"first={run}", "first", str(run / "model")),
        (".", run.name, "model"),
        ("../latest", "latest", "../latest/model"),
        ("torl:demo/base_model", "base_model", "torl:demo/base_model"),
        ("Qwen/Qwen2.5-Math-1.5B", "Qwen2.5-Math-1.5B", "Qwen/Qwen2.5-Math-1.5B"),
    ):
        found = _models(read_arguments([argument, "--suite", "aime24"]), judges_programs=False)
        assert {name: config.model.path for name, config in found.items()} == {label: model}
    for label in ("", ".", "..", "a/b"):
        with pytest.raises(ConfigError, match=re.escape(f"the label {label!r} is invalid or already used")):
            _models(read_arguments([f"{label}={run}", "--suite", "aime24"]), judges_programs=False)


def test_sets_with_common_problems_have_a_note(tmp_path: Path) -> None:
    write(tmp_path, "model", 0, "A")
    assert shared_problems(tmp_path) == ["one and two share 1 of their problem ids"]
    table = all_tables(read_results(tmp_path), notes=shared_problems(tmp_path))[0]
    assert "one and two share 1 of their problem ids" in table.notes


def test_several_models_with_several_numbers_of_calls_make_a_grid() -> None:
    arms = [arm_of(model, calls, one=[float(calls > 0)]) for model in ("n0", "n2") for calls in (0, 2)]
    tables = all_tables(arms)
    (grid,) = [table for table in tables if table.title.startswith("Models by tool calls")]
    assert grid.columns == ("model", "N = 0", "N = 2")
    assert [row[0] for row in grid.rows] == ["n0", "n2"]
    assert [cell.split()[0] for cell in grid.rows[0][1:]] == ["0.0", "100.0"]


def test_a_grid_of_each_set_and_of_their_mean() -> None:
    arms = [arm_of(model, calls, one=[float(calls > 0)], two=[0.0]) for model in ("n0", "n2") for calls in (0, 2)]
    titles = [table.title for table in all_tables(arms) if table.title.startswith("Models by tool calls")]
    assert [title.split(", ")[-2] for title in titles] == ["one", "two", "mean over sets"]


def test_models_are_compared_with_the_baseline_problem_by_problem() -> None:
    arms = [
        arm_of("trained", 2, one=[1.0, 0.0, 1.0]),
        arm_of("base", 2, one=[0.0, 0.0, 1.0]),
        arm_of("trained", 4, one=[1.0, 1.0, 1.0]),  # the baseline was not played with four calls
    ]
    (compared,) = [table for table in all_tables(arms, baseline="base") if "from base" in table.title]
    ((label, cell),) = compared.rows
    assert label == "trained, N = 2"
    assert cell.startswith("+33.3 [-32.6, ")
    assert not any("Difference" in table.title for table in all_tables(arms))


def test_use_of_code_has_the_rows_of_the_papers() -> None:
    def used(share: float, accuracies: list[float], with_code: list[float]) -> CodeUse:
        means = dict(zip(CODE_USE, (share, 2 * share, share, 100.0), strict=True))
        return CodeUse(means, np.array(with_code), np.array(accuracies))

    code = {
        "aime24": used(0.5, [0.0, 0.5, 0.6, 1.0], [0.0, 0.2, 0.3, 1.0]),
        "math500": used(0.7, [1.0, 1.0, 1.0, 1.0], [0.0, 0.2, 0.3, 1.0]),
    }
    arm = replace(arm_of("mine", 1, aime24=[1.0] * 4, math500=[1.0] * 4), code={"greedy": code})
    tables = {table.title: table for table in all_tables([arm], "zerotir")}
    use = tables["Use of code in responses, greedy"]
    rows = {row[0]: row[1:] for row in use.rows}
    assert rows["mine, N = 1"] == ("60.0%", "1.200", "0.60", "100")
    assert rows["mine, N = 1, math500"] == ("70.0%", "1.400", "0.70", "100")
    assert rows["ZTRL-7B (PPO), N = 20 (paper)"] == ("89%", "3.490", "-", "-")
    (row,) = tables["Correlation of accuracy with the fraction of responses with code, greedy"].rows
    assert row == ("mine, N = 1", "+1.00 [+1.00, +1.00]", "-")


def test_markdown_and_latex() -> None:
    table = Table("A_b, %", ("model", "x|y"), (("m & n", "50.0"),), ("note",))
    assert markdown(table) == "**A_b, %**\n\n| model | x\\|y |\n| --- | ---: |\n| m & n | 50.0 |\n\nnote.\n"
    assert r"m \& n & 50.0 \\" in latex(table)
    assert r"\caption{A\_b, \%. note.}" in latex(table)
    assert r"\begin{tabular}{lr}" in latex(table)


def test_everything_that_is_written(tmp_path: Path) -> None:
    write(tmp_path, "model", 0, "A")
    write(tmp_path, "model", 2, "BC")
    variants = read_results(tmp_path)
    write_all(tmp_path, variants, all_tables(variants))
    written = json.loads((tmp_path / "results.json").read_text())
    (added,) = written["tool_difference"]
    assert added["sets"]["one"]["value"] == pytest.approx(0.25)
    page = tmp_path / "page.html"
    assert any(title.startswith("Improvement of greedy by tool calls") for title in tables(page))
    [one] = figures(page)["greedy"]["groups"]["one"][:1]
    assert one == ["model, N = 0", 0.25, *variants[0].estimates("greedy")["one"].interval]
    by_calls = figures(page)["greedy by tool calls"]
    means_over_sets = [(1 / 4 + 1) / 2, (2 / 4 + 0) / 2]
    assert line(by_calls, "model") == ([0, 2], pytest.approx(means_over_sets))
    [[low, high], *_] = by_calls["lines"][0]["intervals"]
    assert low < means_over_sets[0] < high
    assert "<script src" not in page.read_text(encoding="ascii")
    assert "\\begin{table}" in (tmp_path / "table.tex").read_text()
    assert "| model, N = 2 |" in (tmp_path / "table.md").read_text()
