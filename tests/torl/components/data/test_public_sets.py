"""Public sets by name, from a server that answers as the hub does, in the layouts of their real rows."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub_server import COMMIT, serving, using_hub
from program_set_rows import PROGRAM_EVALUATION, PROGRAM_TRAINING
from public_set_rows import EVALUATION, QUESTIONS, TRAINING, Rows
from torl.base.errors import DataError
from torl.components.data import load_problems
from torl.components.data.layout import Layout
from torl.components.data.public_sets import find_problem_file, pinned_problems, public_sets
from torl.rollout.evaluation import split_by_source
from torl_lab.curation.command import main

FOR_TRAINING = {**TRAINING, **PROGRAM_TRAINING}
FOR_EVALUATION = {**EVALUATION, **PROGRAM_EVALUATION}
ALL = {**FOR_TRAINING, **FOR_EVALUATION}


@pytest.fixture(scope="module", autouse=True)
def folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Path]]:
    """The files of each set, of which the sets with an address are on the hub."""
    folders = {name: rows().write(tmp_path_factory.mktemp("set")) for name, rows in ALL.items()}
    addresses = {public_sets()[name].address: folder for name, folder in folders.items()}
    # Two sets of one dataset differ in the split with the whole rows.
    for name, split in (("gsm8k_train", "main/train"), ("search_r1", "train")):
        for file in folders[name].glob(f"{split}*"):
            shared = addresses[public_sets()[name].address]
            (shared / file.relative_to(folders[name])).write_bytes(file.read_bytes())
    hub = {address: folder for address, folder in addresses.items() if address is not None}
    cache = tmp_path_factory.mktemp("cache")
    with serving(hub) as (address, _), using_hub(address, cache):
        yield folders


def name_of(name: str, folders: dict[str, Path]) -> str:
    """The name of a set, with its file if it is not on the hub."""
    return name if public_sets()[name].address else f"{name}={next(folders[name].glob('*.[jp]*'))}"


def test_every_public_set_has_rows_here() -> None:
    assert ALL.keys() == public_sets().keys()
    assert {name for name, public in public_sets().items() if public.purpose == "training"} == FOR_TRAINING.keys()


@pytest.mark.parametrize("name", FOR_TRAINING)
def test_training_set_is_prepared_by_its_name(name: str, folders: dict[str, Path], tmp_path: Path) -> None:
    rows = FOR_TRAINING[name]()
    assert main(["prepare", name_of(name, folders), "--output", str(tmp_path)]) == 0
    counts = json.loads((tmp_path / "counts.json").read_text())
    assert counts["dropped"] == dict(rows.dropped)
    check(rows, tmp_path / "problems.jsonl")
    described = counts["files"][name]
    assert described["expected_rows"] == public_sets()[name].rows
    assert described["license"] == (public_sets()[name].license or "not recorded")
    if public_sets()[name].address:
        assert described["path"] == f"hf:{public_sets()[name].address}@{COMMIT}"


def check(rows: Rows, path: Path | str) -> None:
    problems = load_problems(path)
    assert [problem.answer for problem in problems] == list(rows.answers)
    assert [problem.question for problem in problems] == list(rows.questions)
    first = problems[0].metadata
    assert rows.metadata is None or {
        key: value for key, value in first.items() if key != "source" or value not in ALL
    } == dict(rows.metadata)
    assert len({problem.id for problem in problems}) == len(problems)


@pytest.mark.parametrize("name", [name for name in FOR_EVALUATION if name != "gpqa_diamond"])
def test_evaluation_set_is_read_by_its_name(name: str, folders: dict[str, Path]) -> None:
    if name == "hmmt_feb24":  # a file of the user's, with all of its columns
        assert len(load_problems(name_of(name, folders))) == 12
        return
    check(FOR_EVALUATION[name](), name_of(name, folders))


def test_choices_get_letters_in_an_order_of_the_question() -> None:
    problems = load_problems("gpqa_diamond")
    for (question, answer), problem in zip(QUESTIONS, problems, strict=True):
        lines = problem.question.splitlines()
        assert lines[:-4] == [question, ""]
        assert [line[:3] for line in lines[-4:]] == ["A. ", "B. ", "C. ", "D. "]
        assert f"{problem.answer}. {answer}" in lines
    assert len({problem.answer for problem in problems}) > 2
    assert problems == load_problems("gpqa_diamond")


def test_several_sets_are_prepared_against_others_in_one_line(folders: dict[str, Path], tmp_path: Path) -> None:
    """All have the same questions: of the first, those that are not in an evaluation set are left."""
    words = ["numina_math", "math", "orz_57k", "--against", "math500", f"olymmath={folders['olymmath']}"]
    assert main(["prepare", *words, "--output", str(tmp_path)]) == 1
    dropped = [json.loads(line) for line in (tmp_path / "dropped.jsonl").read_text().splitlines()]
    assert [row["because_of"] for row in dropped if row["reason"] == "in_evaluation_set"][:2] == [
        "math500/0",
        "math500/1",
    ]
    (folders["math500"] / "one.jsonl").write_text(json.dumps({"problem": QUESTIONS[0][0], "answer": "8"}))
    against = ["--against", str(folders["math500"] / "one.jsonl")]
    assert main(["prepare", *words[:3], *against, "--output", str(tmp_path)]) == 0
    counts = json.loads((tmp_path / "counts.json").read_text())
    assert counts["kept"] == 11
    assert counts["dropped"]["near_duplicate"] == 22
    assert counts["dropped"]["in_evaluation_set"] == 3
    assert {row.id.partition("/")[0] for row in load_problems(tmp_path / "problems.jsonl")} == {"numina_math"}


def test_unexpected_number_of_rows_is_a_warning(
    folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", "deepscaler", "--output", str(tmp_path)]) == 0
    assert "deepscaler: 13 rows were read, 40,315 were expected" in capsys.readouterr().out


def test_set_without_an_address_names_the_file_to_pass() -> None:
    for name, reason in (
        ("torl_train", "github.com/GAIR-NLP/ToRL, data/torl_data/train.parquet"),
        ("hmmt_feb24", "not recorded"),
    ):
        with pytest.raises(DataError, match=rf"{name} is not on the Hub \({re.escape(reason)}|{name}=FILE"):
            load_problems(name)


def test_a_set_is_pinned_with_its_layout(folders: dict[str, Path]) -> None:
    assert pinned_problems("math500") == pinned_problems("math500@main") == f"math500@{COMMIT}"
    assert load_problems(f"math500@{COMMIT}") == load_problems("math500")
    copy = f"math500={folders['math500']}"
    assert pinned_problems(copy) == copy
    assert load_problems(copy) == load_problems("math500")
    assert pinned_problems("math500=hf:HuggingFaceH4/MATH-500") == f"math500=hf:HuggingFaceH4/MATH-500@{COMMIT}"


def test_options_replace_parts_of_a_layout() -> None:
    numina = public_sets()["numina_math_1.5"].layout
    found = find_problem_file(
        "numina_math_1.5", Layout({"answer": "final"}, where={"source": ("aops",)}, split="dev")
    ).layout
    assert (found.columns, found.split, found.keep) == ({"problem": "problem", "answer": "final"}, "dev", numina.keep)
    assert found.where == {**numina.where, "source": ("aops",)}
    assert find_problem_file("math", Layout({"answer": "final"})).layout.answer_from is None
    assert find_problem_file("gsm8k", Layout(split="train")).layout.files == ()
    assert find_problem_file("gsm8k", Layout(files=("socratic/*",))).layout.files == ("socratic/*",)


def test_torls_own_test_set_becomes_three_sets(folders: dict[str, Path]) -> None:
    from torl_lab.evaluation.sets import make_set

    sets = split_by_source({"torl_test": make_set(name_of("torl_test", folders), Layout())})
    assert {name: len(list(choice.bind()())) for name, choice in sets.items()} == {
        "aime24": 4,
        "aime25": 4,
        "math500": 4,
    }


def test_sources_are_listed_with_what_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sources"]) == 0
    table = capsys.readouterr().out
    assert all(re.search(rf"^  {re.escape(name)} ", table, re.MULTILINE) for name in public_sets())
    assert re.search(r"numina_math +859,494 +Apache-2\.0 +AI-MO/NuminaMath-CoT", table)
    assert main(["sources", "search_r1", "hmmt_feb24"]) == 0
    described = capsys.readouterr().out
    assert re.search(r"answer +derived from golden_answers", described)
    assert re.search(r"address +not recorded", described)
    assert main(["sources", "apps", "kodcode"]) == 0
    described = capsys.readouterr().out
    assert re.search(r"answer +none; tests from input_output\n", described)
    assert re.search(r"answer +none; tests from test, solution, test_info\n", described)
    assert main(["sources", "gsm9k"]) == 2
    assert "did you mean gsm8k?" in capsys.readouterr().err
