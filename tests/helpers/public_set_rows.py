"""Rows in the layouts of the public sets, written for the tests: a dozen of each, with oddities of the real ones."""

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from torl.base.types import ALTERNATIVE

QUESTIONS: tuple[tuple[str, str], ...] = (
    ("A hexagonal prism is cut out of wood. How many faces does it have, its two bases included?", "8"),
    ("Let $f(x) = 3x - 7$. Compute $f(f(4))$.", "8"),
    ("Three taps fill a tank in 2, 3 and 6 hours. How many hours do they need together?", "1"),
    ("What fraction of the integers from 1 to 30 is divisible by 5 but not by 3?", "\\frac{2}{15}"),
    ("Find the largest prime below 200.", "199"),
    ("A ladder of 13 feet leans against a wall, 5 feet from its foot. How high does it reach, in feet?", "12"),
    ("The mean of seven numbers is 11, and the mean of six of them is 10. What is the seventh?", "17"),
    ("Evaluate $\\binom{9}{2} - \\binom{8}{2}$.", "8"),
    ("In how many ways can four books stand on a shelf if two of them must be neighbors?", "12"),
    ("If $2^n = 4^{15} \\cdot 8$, what is $n$?", "33"),
    ("A cube of volume 27 is painted and cut into unit cubes. How many have exactly two painted faces?", "12"),
    ("Determine the sum of the digits of $10^{12} - 12$.", "106"),
)
OTHERS: tuple[tuple[str, str], ...] = (
    ("A snail climbs 3 meters each day and slides back 2 at night. After how many days is it 10 meters up?", "8"),
    ("How many triangles have their corners among the corners of a regular octagon?", "56"),
    ("The product of two consecutive positive integers is 306. Find the smaller one.", "17"),
    ("What is the remainder of $7^{100}$ on division by 5?", "1"),
    ("Two dice are rolled. With what probability do they show a sum of 9?", "\\frac{1}{9}"),
    ("For how many integers $k$ does $x^2 + kx + 9$ have a double root?", "2"),
)
"""Questions and answers, no two of them similar."""


@dataclass
class Rows:
    """The files of a set, and the problems in them."""

    files: Mapping[str, Sequence[Any]]
    """Rows by the name of a file."""
    answers: Sequence[str] = tuple(answer for _, answer in QUESTIONS)
    """Answers of the problems that are kept."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """Numbers of dropped rows by reason."""
    questions: Sequence[str] = tuple(question for question, _ in QUESTIONS)
    metadata: Mapping[str, Any] | None = field(default_factory=dict)
    """Metadata of the first problem, or None if another test compares it."""

    def write(self, folder: Path) -> Path:
        """Write the files, in the formats of their names."""
        for name, rows in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            WRITERS[path.suffix](path, rows)
        (folder / "README.md").write_text("a card")
        return folder


def _write_csv(path: Path, rows: Sequence[Any]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(text.getvalue())


def _write_arrow(path: Path, rows: Sequence[Any]) -> None:
    table = pyarrow.Table.from_pylist(list(rows))
    with pyarrow.ipc.new_stream(path, table.schema) as stream:
        stream.write_table(table)


WRITERS: Mapping[str, Callable[[Path, Sequence[Any]], object]] = {
    ".parquet": lambda path, rows: pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path),
    ".jsonl": lambda path, rows: path.write_text("".join(json.dumps(row) + "\n" for row in rows)),
    ".json": lambda path, rows: path.write_text(json.dumps(rows, indent=1)),
    ".csv": _write_csv,
    ".arrow": _write_arrow,
}


def verl(question: str, answer: Any, source: str, index: Any, system: str | None = None, **more: Any) -> dict[str, Any]:
    """A row in verl's layout."""
    messages = [{"content": system, "role": "system"}] if system else []
    return {
        "data_source": source,
        "prompt": [*messages, {"content": question, "role": "user"}],
        "ability": "math",
        "reward_model": {"ground_truth": answer, "style": "rule"},
        "extra_info": {"index": index, "split": "train"},
        **more,
    }


def numina_cot() -> Rows:
    def row(question: str | None, solution: str | None, source: str = "olympiads") -> dict[str, Any]:
        messages = [{"content": question, "role": "user"}, {"content": solution, "role": "assistant"}]
        return {"source": source, "problem": question, "solution": solution, "messages": messages}

    rows = [row(q, f"We see that, step by step, the answer is $\\boxed{{{a}}}$.", "aops_forum") for q, a in QUESTIONS]
    rows += [
        row("Prove that every tree has a leaf.", "Take a longest path. Its end is a leaf. $\\blacksquare$"),
        row("(a) Find $x$. (b) Find $y$.", "(a) $\\boxed{3}$ (b) $\\boxed{4}$"),
        row("What is $6 \\cdot 7$?\n\n(A) 41 (B) 42 (C) 43", "It is $\\boxed{\\textbf{(B)}\\ 42}$.", "amc_aime"),
        row("Find the smallest perfect number.", None),
        row(None, "$\\boxed{1}$"),
        row("计算从一到十的所有整数的和是多少?", "和为 $\\boxed{55}$。", "cn_k12"),
    ]
    dropped = {
        "no_final_answer": 1,
        "several_boxes": 1,
        "multiple_choice": 1,
        "no_answer": 1,
        "no_question": 1,
        "other_script": 1,
    }
    files = {"data/train-00000-of-00002.parquet": rows[:9], "data/train-00001-of-00002.parquet": rows[9:]}
    return Rows(
        files | {"data/test-00000-of-00001.parquet": rows[:2]}, dropped=dropped, metadata={"source": "aops_forum"}
    )


def numina_15() -> Rows:
    def row(question: str, answer: str, kind: str = "math-word-problem", valid: str = "Yes") -> dict[str, Any]:
        checks = {
            "problem_type": "Algebra",
            "question_type": kind,
            "problem_is_valid": valid,
            "solution_is_valid": valid,
        }
        return {"problem": question, "solution": "See above.", "answer": answer, **checks, "source": "number_theory"}

    rows = [row(*pair) for pair in QUESTIONS]
    rows += [
        row("Prove it.", "proof", "proof"),
        row("Which one? A) 1 B) 2", "B", "MCQ"),
        row("Find $x$.", "3", valid="Incomplete"),
    ]
    rows += [row("Find the number that the figure shows.", "notfound")]
    return Rows(
        {"data/train-00000-of-00001.parquet": rows},
        dropped={"filtered": 3, "no_answer": 1},
        metadata={"source": "number_theory", "problem_type": "Algebra"},
    )


def hendrycks() -> Rows:
    rows = [
        {"problem": q, "level": "Level 5", "type": "Algebra", "solution": f"Thus we get $\\boxed{{{a}}}$."}
        for q, a in QUESTIONS
    ]
    both = {
        "problem": "Find all roots.",
        "level": "Level 1",
        "type": "Algebra",
        "solution": "$\\boxed{1}$, $\\boxed{2}$",
    }
    files = {
        "algebra/train-00000-of-00001.parquet": rows[:7],
        "counting_and_probability/train-00000-of-00001.parquet": [*rows[7:], both],
        "algebra/test-00000-of-00001.parquet": [both],
    }
    return Rows(files, dropped={"several_boxes": 1}, metadata={"level": "Level 5", "type": "Algebra"})


def deepscaler() -> Rows:
    rows = [{"problem": q, "answer": a, "solution": f"It is {a}."} for q, a in QUESTIONS]
    rows.append({"problem": "Find the angle.", "answer": "", "solution": "None."})
    return Rows({"deepscaler.json": rows}, dropped={"no_answer": 1})


def orz() -> Rows:
    rows = [[{"from": "human", "value": q}, {"from": "assistant", "ground_truth": {"value": a}}] for q, a in QUESTIONS]
    rows.append([{"from": "human", "value": "Find it."}, {"from": "assistant", "ground_truth": {"value": None}}])
    return Rows({"orz_math_57k_collected.json": rows}, dropped={"no_answer": 1})


def deepmath() -> Rows:
    rows = [
        {"question": q, "final_answer": a, "difficulty": 6.5, "topic": "Mathematics -> Algebra"}
        | {f"r1_solution_{number}": "Okay, so " * 500 for number in (1, 2, 3)}
        for q, a in QUESTIONS
    ]
    metadata = {"difficulty": 6.5, "topic": "Mathematics -> Algebra"}
    return Rows({"data/train-00000-of-00001.parquet": rows}, metadata=metadata)


def dapo() -> Rows:
    before = (
        "Solve the following math problem step by step. The last line of your response should be of the form Answer: "
        "$Answer (without quotes) where $Answer is the answer to the problem.\n\n"
    )
    after = '\n\nRemember to put your answer on its own line after "Answer:".'
    pairs = [*OTHERS, *QUESTIONS[:6]]
    rows = [verl(before + q + after, a, "math_dapo", f"uuid-{number}") for number, (q, a) in enumerate(pairs)]
    questions, answers = zip(*pairs, strict=True)
    files = {"data/dapo-math-17k.parquet": rows * 3}
    return Rows(files, answers, {"copy": 24}, questions, {"data_source": "math_dapo"})


def skywork() -> Rows:
    difficulty = {f"DeepSeek-R1-Distill-Qwen-{size}": 3 for size in ("1.5B", "32B", "7B")}

    def row(number: int, question: str, *answers: str) -> dict[str, Any]:
        own = verl(question, json.dumps(answers), "train-math-deepscaler", number)
        return own | {"extra_info": {"index": number, "model_difficulty": difficulty}}

    rows = [row(number, *pair) for number, pair in enumerate(QUESTIONS)]
    rows[0] = row(0, *QUESTIONS[0], "\\frac{8}{1}")
    files = {"data/math-00000-of-00001.parquet": rows, "data/code-00000-of-00001.parquet": rows[:1]}
    answers = [ALTERNATIVE.join([QUESTIONS[0][1], "\\frac{8}{1}"]), *(answer for _, answer in QUESTIONS[1:])]
    metadata = {"data_source": "train-math-deepscaler", "extra_info": rows[0]["extra_info"]}
    return Rows(files, answers, metadata=metadata)


def gsm8k(split: str = "train") -> Rows:
    numbers = [(q, a) for q, a in QUESTIONS if a.isdigit()]
    rows = [{"question": q, "answer": f"First, 3+4 = <<3+4=7>>7.\nSo it is {a}.\n#### {a}"} for q, a in numbers]
    files = {f"main/{each}-00000-of-00001.parquet": rows if each == split else rows[:1] for each in ("train", "test")}
    files["socratic/train-00000-of-00001.parquet"] = rows[:1]
    return Rows(files, [a for _, a in numbers], questions=[q for q, _ in numbers])


def torl_train() -> Rows:
    system = "Please integrate natural language reasoning with programs to solve the problem above, and put your final "
    rows = [
        verl(q, a, "numina", number, system + "answer within \\boxed{}.") for number, (q, a) in enumerate(QUESTIONS)
    ]
    return Rows({"train.parquet": rows}, metadata={"data_source": "numina"})


def simplerl() -> Rows:
    ask = "\nPlease reason step by step, and put your final answer within \\boxed{}."
    start = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
    end = "<|im_end|>\n<|im_start|>assistant\n"
    rows = [verl(start + q + ask + end, a, "simplerl", number) for number, (q, a) in enumerate(QUESTIONS)]
    files = {f"simplelr_{each}/train.parquet": rows for each in ("qwen_level3to5", "qwen_level1to4")}
    return Rows(files, metadata={"data_source": "simplerl"})


FACTS: tuple[tuple[str, list[str]], ...] = (
    (
        "who discovered the rays that are named after him in 1895?",
        ["Wilhelm Conrad Röntgen", "Röntgen", "W. C. Röntgen"],
    ),
    ("in which year did the first modern olympic games take place?", ["1896"]),
    ("who painted the ceiling of the sistine chapel in the vatican?", ["Michelangelo", "Michelangelo Buonarroti"]),
    ("which river flows through the capital of hungary?", ["the Danube", "Danube"]),
    ("how many people live in the smallest state?", ["2,718", "2718"]),
    ("when was the printing press invented in mainz?", ["around 1440", "1440"]),
)


def search_r1(split: str = "train") -> Rows:
    def row(number: int, question: str, answers: list[str], source: str) -> dict[str, Any]:
        asked = f"Answer the given question. You must conduct reasoning inside <think> ... Question: {question}\n"
        own = {"id": f"train_{number}", "question": question, "golden_answers": answers}
        return own | verl(asked, {"target": answers}, source, number)

    sources = ["nq", "hotpotqa"]
    rows = [row(number // 2, *fact, sources[number % 2]) for number, fact in enumerate(FACTS)]
    rows += [
        row(number, f"{question[:-1]} and why is that so, in a sentence?", answers, "nq")
        for number, (question, answers) in enumerate(FACTS, 9)
    ]
    kept = [ALTERNATIVE.join(answers) for _, answers in FACTS]
    questions = [each["question"] for each in rows]
    files = {f"{each}.parquet": rows if each == split else rows[:4] for each in ("train", "test")}
    return Rows(files, kept + kept, questions=questions, metadata={"data_source": "nq"})


def retool() -> Rows:
    before = "Solve the following problem step by step. You may write Python.\n\n*user question:*\n"
    after = "\n\nRemember to place the final answer in the last part using the format: \n<answer>\n\\boxed{}\n</answer>"
    rows = [
        {
            "messages": [
                {"content": before + q + after, "role": "user"},
                {"content": f"<code>\nprint({a!r})\n</code>\n<answer>\n\\boxed{{{a}}}\n</answer>", "role": "assistant"},
            ]
        }
        for q, a in QUESTIONS
    ]
    return Rows({"data/train-00000-of-00001.parquet": rows}, metadata={"messages": rows[0]["messages"]})


TRAINING: Mapping[str, Callable[[], Rows]] = {
    "numina_math": numina_cot,
    "numina_math_1.5": numina_15,
    "math": hendrycks,
    "deepscaler": deepscaler,
    "orz_57k": orz,
    "deepmath_103k": deepmath,
    "dapo_17k": dapo,
    "skywork_or1": skywork,
    "gsm8k_train": gsm8k,
    "torl_train": torl_train,
    "simplerl_zoo": simplerl,
    "search_r1": search_r1,
    "retool_sft": retool,
}
"""The sets for training, by name."""


def plain(file: str, columns: str, kept: Sequence[str] = (), **more: Any) -> Callable[[], Rows]:
    """Rows with these names of question, answer and id; `kept` names the other columns that are read."""
    question, answer, identifier = columns.split()
    rows = [{question: q, answer: a, identifier: n, **more} for n, (q, a) in enumerate(QUESTIONS)]
    return lambda: Rows({file: rows}, metadata={name: more[name] for name in kept})


def aime24() -> Rows:
    rows = [
        {"ID": f"2024-I-{n}", "Problem": q, "Solution": "See above.", "Answer": n} for n, (q, _) in enumerate(QUESTIONS)
    ]
    return Rows({"aime_2024_problems.parquet": rows}, [str(number) for number in range(12)])


def olympiadbench() -> Rows:
    rows = [
        {"id": 1606 + n, "question": q, "solution": ["Well."], "final_answer": [a], "subfield": "Algebra", "unit": None}
        for n, (q, a) in enumerate(QUESTIONS)
    ]
    rows[0]["final_answer"] = ["1", "2"]
    files = {
        f"OE_{kind}/OE_{kind}.parquet": rows for kind in ("TO_maths_en_COMP", "TO_maths_zh_COMP", "TO_physics_en_COMP")
    }
    return Rows(files, ["1, 2", *(a for _, a in QUESTIONS[1:])], metadata={"subfield": "Algebra"})


def olymmath() -> Rows:
    parts = ("EN-EASY", "EN-HARD", "ZH-EASY", "ZH-HARD")
    rows = [{"problem": q, "answer": a, "subject": "Algebra"} for q, a in QUESTIONS]
    files = {
        f"data/OlymMATH-{part}.jsonl": [
            each | {"unique_id": f"{part}-{n}"} for n, each in enumerate(rows[3 * p : 3 * p + 3])
        ]
        for p, part in enumerate(parts)
    }
    return Rows(files | {"data/OlymMATH-LEAN.jsonl": rows[:1]}, metadata={"subject": "Algebra"})


def gpqa() -> Rows:
    rows = [
        {"Record ID": f"r{n}", "Question": q, "Correct Answer": a, "Subdomain": "Physics"}
        | {f"Incorrect Answer {k}": f'wrong {k}, or "so"' for k in (1, 2, 3)}
        for n, (q, a) in enumerate(QUESTIONS)
    ]
    return Rows({"gpqa_diamond.csv": rows, "gpqa_main.csv": rows[:1]}, metadata={"Subdomain": "Physics"})


def torl_test() -> Rows:
    system = "Please reason step by step, and put your final answer within \\boxed{}."
    sets = ["aime24"] * 4 + ["aime25"] * 4 + ["math500"] * 4
    rows = [
        verl(q, a, source, f"uuid-{n}", system) for n, ((q, a), source) in enumerate(zip(QUESTIONS, sets, strict=True))
    ]
    return Rows({"test.parquet": [*rows[:8] * 4, *rows[8:]]}, metadata={"data_source": "aime24"})


EVALUATION: Mapping[str, Callable[[], Rows]] = {
    "aime24": aime24,
    "aime25": plain("test.jsonl", "problem answer id"),
    "amc23": plain("data/test-00000-of-00001.parquet", "question answer id", url="u"),
    "math500": plain("test.jsonl", "problem answer unique_id", ("subject", "level"), subject="Algebra", level=3),
    "olympiadbench": olympiadbench,
    "minerva": plain("test.jsonl", "question answer index", solution="so"),
    "gsm8k": lambda: gsm8k("test"),
    "hmmt_feb24": plain("hmmt.jsonl", "problem answer id"),
    "hmmt_feb25": plain("data/train-00000-of-00001.parquet", "problem answer problem_idx", problem_type=["Algebra"]),
    "cmimc": plain("data/train-00000-of-00001.parquet", "problem answer problem_idx", problem_type=["Algebra"]),
    "olymmath": olymmath,
    "gpqa_diamond": gpqa,
    "search_r1_test": lambda: search_r1("test"),
    "torl_test": torl_test,
}
"""The sets for evaluation, by name."""
