"""Rows in the layouts of the public sets of problems with tests, written for the tests, with oddities of real ones."""

import base64
import json
import pickle
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from public_set_rows import QUESTIONS, Rows, verl
from torl.components.programs.suites import PRELUDE


@dataclass(frozen=True)
class Task:
    """A function of a list of numbers, and two of its results."""

    function: str
    question: str
    body: str
    first: tuple[list[int], int]
    second: tuple[list[int], int]

    @property
    def code(self) -> str:
        return f"def {self.function}(numbers):\n    {self.body}\n"

    @property
    def method(self) -> str:
        return f"class Solution:\n    def {self.function}(self, numbers: List[int]) -> int:\n        {self.body}\n"

    @property
    def program(self) -> str:
        """A program that reads the numbers from a line, and prints the result."""
        return f"{self.code}print({self.function}(list(map(int, input().split()))))\n"

    @property
    def inputs(self) -> list[str]:
        return [" ".join(map(str, numbers)) + "\n" for numbers, _ in (self.first, self.second)]

    @property
    def outputs(self) -> list[str]:
        return [f"{result}\n" for _, result in (self.first, self.second)]

    @property
    def runs(self) -> list[dict[str, Any]]:
        """The packed tests of the program."""
        return [{"inputs": [list(pair) for pair in zip(self.inputs, self.outputs, strict=True)]}]

    @property
    def assertions(self) -> list[str]:
        return [f"assert {self.function}({numbers}) == {result}" for numbers, result in (self.first, self.second)]

    def calls(self, path: str | None = None) -> list[dict[str, Any]]:
        """The packed tests of the function."""
        calls = [f"[[[{','.join(map(str, numbers))}]],{result}]" for numbers, result in (self.first, self.second)]
        return [{"function": path or self.function, "calls": calls}]


TASKS = (
    Task(
        "widest_gap",
        "Sort the heights of the poles. How far apart, at most, are two neighbors?",
        "return max(b - a for a, b in zip(sorted(numbers), sorted(numbers)[1:]))",
        ([3, 1, 7], 4),
        ([1, 2, 2, 9], 7),
    ),
    Task(
        "even_sum",
        "Add up every price that two divides, and leave the odd prices out.",
        "return sum(each for each in numbers if each % 2 == 0)",
        ([1, 2, 4], 6),
        ([7], 0),
    ),
    Task(
        "climbs",
        "A hiker notes the altitude each hour. In how many hours did the hiker gain altitude?",
        "return sum(a < b for a, b in zip(numbers, numbers[1:]))",
        ([1, 2, 1, 5], 2),
        ([4, 3], 0),
    ),
    Task(
        "kinds",
        "Count the different coins in a purse, whose values are listed.",
        "return len(set(numbers))",
        ([5, 5, 10], 2),
        ([1], 1),
    ),
)
TRAIN, TEST = TASKS[:2], TASKS[2:]


def made(
    files: Mapping[str, Sequence[Any]],
    tasks: Sequence[Task],
    dropped: Mapping[str, int] | None = None,
    questions: Sequence[str] | None = None,
    **metadata: Any,
) -> Rows:
    return Rows(
        files, [""] * len(tasks), dropped or {}, questions or [each.question for each in tasks], metadata=metadata
    )


def starting(question: str, code: str) -> str:
    return f"{question}\n\nYour program starts like this:\n\n```python\n{code}\n```"


def apps(tasks: Sequence[Task]) -> Rows:
    def row(task: Task, tests: Any, **more: Any) -> dict[str, Any]:
        own = {"id": 0, "problem_id": TASKS.index(task), "question": task.question, "difficulty": "interview"}
        solutions = json.dumps(["print 'Python 2'", task.program])
        return own | {"solutions": solutions, "input_output": tests, "url": "u", "starter_code": ""} | more

    def rows(tasks: Sequence[Task]) -> list[dict[str, Any]]:
        one, other = tasks
        both = json.dumps({"inputs": one.inputs, "outputs": one.outputs})
        calls = {"fn_name": other.function, "inputs": [[other.first[0]]], "outputs": [[other.first[1]]]}
        signature = other.method.rpartition("\n        ")[0]
        return [
            row(one, both),
            row(other, json.dumps(calls), solutions=json.dumps([other.method]), starter_code=signature),
            row(one, "", problem_id=90, solutions=""),
            *([row(one, both[:20], problem_id=91)] if tasks == TRAIN else []),
            row(one, json.dumps({"inputs": ["1\n", "1\n"], "outputs": ["1\n", "2\n"]}), problem_id=92),
        ]

    one, other = tasks
    dropped = {"no_tests": 1, "tests_not_json": 1, "contradicting_tests": 1}
    questions = [one.question, starting(other.question, other.method.rpartition("\n        ")[0])]
    files = {"train.jsonl": rows(TRAIN), "test.jsonl": rows(TEST)}
    metadata = {"difficulty": "interview", "url": "u", "tests": {"tests": one.runs}, "solutions": [one.program]}
    return made(files, tasks, dropped, questions, **metadata)


def taco(tasks: Sequence[Task]) -> Rows:
    def row(task: Task) -> dict[str, Any]:
        tests = json.dumps({"inputs": task.inputs, "outputs": task.outputs})
        limits = {"time_limit": "1.5 seconds", "memory_limit": "256.0 megabytes", "starter_code": ""}
        own = {"question": task.question, "solutions": json.dumps([task.program]), "input_output": tests}
        return own | limits | {"difficulty": "EASY", "source": "codechef", "name": None, "tags": "[]"}

    files = {f"{name}/data-00000-of-00001.arrow": list(map(row, each)) for name, each in PARTS.items()}
    tests = {"tests": tasks[0].runs, "cpu_seconds": 1.5, "memory_mib": 256}
    metadata = {"difficulty": "EASY", "source": "codechef", "tests": tests, "solutions": [tasks[0].program]}
    return made(files, tasks, **metadata)


PARTS = {"train": TRAIN, "test": TEST}


def code_contests(tasks: Sequence[Task]) -> Rows:
    def row(task: Task, **more: Any) -> dict[str, Any]:
        halves = [{"input": [i], "output": [o]} for i, o in zip(task.inputs, task.outputs, strict=True)]
        names = ("public_tests", "private_tests")
        solutions = {"language": [2, 1, 3], "solution": ["int main() {}", "print 1", task.program]}
        limits = {"time_limit": {"seconds": 2, "nanos": 500_000_000}, "memory_limit_bytes": 256_000_000}
        own = {"name": f"1_A. {task.function}", "description": task.question, "source": 2, "difficulty": 7}
        tests = dict(zip(names, halves, strict=True)) | {"generated_tests": {"input": [], "output": []}}
        return (
            own
            | tests
            | limits
            | {"solutions": solutions, "cf_rating": 800, "input_file": "", "output_file": ""}
            | more
        )

    files = {
        f"data/{name}-00000-of-00001.parquet": [
            *map(row, each),
            row(each[0], name="2_B", input_file="input.txt"),
            row(
                each[0], name="3_C", public_tests={"input": [], "output": []}, private_tests={"input": [], "output": []}
            ),
        ]
        for name, each in PARTS.items()
    }
    tests = {"tests": tasks[0].runs, "public": 1, "cpu_seconds": 2.5, "memory_mib": 244}
    metadata = {"source": 2, "difficulty": 7, "cf_rating": 800, "tests": tests, "solutions": [tasks[0].program]}
    return made(files, tasks, {"reads_files": 1, "no_tests": 1}, **metadata)


def deepcoder() -> Rows:
    plain, called, method, old = TASKS
    prime = [
        {"type": "stdin_stdout", "input": i, "output": o, "fn_name": None}
        for i, o in zip(plain.inputs, plain.outputs, strict=True)
    ]
    calls = [
        {"type": "function_call", "fn_name": called.function, "input": [numbers], "output": [result]}
        for numbers, result in (called.first, called.second)
    ]
    lines = [
        {"input": json.dumps(numbers), "output": str(result), "testtype": "functional", "metadata": None}
        for numbers, result in (method.first, method.second)
    ]
    starter = method.method.rpartition("\n        ")[0]
    lcb = {"starter_code": starter, "metadata": {"func_name": method.function}, "tests": json.dumps(lines)}
    files = {
        "primeintellect/train-00000-of-00001.parquet": [
            {"problem": plain.question, "solutions": [f"```python\n{plain.program}```"], "tests": json.dumps(prime)},
            {"problem": called.question, "solutions": [called.code], "tests": json.dumps(calls)},
            {"problem": "Print it.", "solutions": [], "tests": "[]"},
        ],
        "taco/train-00000-of-00001.parquet": [
            {
                "problem": old.question,
                "solutions": [old.program],
                "tests": json.dumps({"inputs": old.inputs, "outputs": old.outputs}),
            }
        ],
        "lcbv5/train-00000-of-00001.parquet": [{"problem": method.question} | lcb],
        "lcbv5/test-00000-of-00001.parquet": [{"problem": method.question} | lcb],
        "codeforces/test-00000-of-00001.parquet": [{"problem": plain.question, "tests": "[]"}],
    }
    named = f"{called.question}\n\nThe function is called `{called.function}`."
    questions = [starting(method.question, starter), plain.question, named, old.question]
    metadata = {"tests": {"tests": method.calls(f"Solution.{method.function}"), "prelude": PRELUDE}}
    return made(files, TASKS, {"no_tests": 1}, questions, **metadata)


def eurus() -> Rows:
    ask = "\n\nWrite Python code to solve the problem. Present the code in \n```python\nYour code\n```\nat the end."
    system = "\nWhen tackling complex reasoning tasks, you have access to the following actions.\n"

    def row(number: int, task: Task) -> dict[str, Any]:
        tests = json.dumps({"inputs": task.inputs, "outputs": task.outputs})
        return verl(task.question + ask, tests, "codecontests", number, system, ability="code")

    rows = [*(row(number, task) for number, task in enumerate(TASKS)), verl(*QUESTIONS[0], "numina", 9, system)]
    files = {"data/train-00000-of-00001.parquet": rows}
    return made(files, TASKS, {"filtered": 1}, data_source="codecontests", tests={"tests": TASKS[0].runs})


def kodcode() -> Rows:
    def row(task: Task) -> dict[str, Any]:
        tests = [f"def test_{n}():\n    {each}\n" for n, each in enumerate(task.assertions)]
        return {
            "version": "v1.0",
            "style": "instruct",
            "subset": "Prefill",
            "question_id": f"Prefill_{task.function}_I",
            "question": task.question,
            "solution": task.code,
            "test": f"from solution import {task.function}\n\n" + "\n".join(tests),
            "test_info": [{"function_name": task.function, "function_declaration": f"def {task.function}(numbers):"}],
            "gpt_difficulty": "easy",
            "gpt_pass_percentage": 0.9,
        }

    rows = [*map(row, TASKS), row(TASKS[0]) | {"question_id": "x", "test": "def test_(:"}]
    code = {
        "code": rows[0]["test"],
        "units": [["function", "test_0"], ["function", "test_1"]],
        "modules": ["solution"],
    }
    kept = {name: rows[0][name] for name in ("style", "subset", "gpt_difficulty", "gpt_pass_percentage")}
    questions = [starting(each.question, f"def {each.function}(numbers):") for each in TASKS]
    metadata = kept | {"tests": {"tests": [code]}, "solutions": [TASKS[0].code]}
    files = {"data/train-00000-of-00001.parquet": rows}
    return made(files, TASKS, {"unreadable_tests": 1}, questions, **metadata)


def acecode() -> Rows:
    rows = [
        {
            "id": f"oss_{number}",
            "source": "oss",
            "question": each.question,
            "test_cases": each.assertions,
            "inferences": [{"model_name": "m", "completion": "c", "pass_rate": 0.5}],
            "context_messages": [[{"content": each.question, "role": "user"}]],
        }
        for number, each in enumerate(TASKS)
    ]
    rows.append(rows[0] | {"id": "oss_9", "test_cases": []})
    tests = [{"code": each, "names": [TASKS[0].function]} for each in TASKS[0].assertions]
    files = {"data/train-00000-of-00001.parquet": rows}
    return made(files, TASKS, {"no_tests": 1}, source="oss", tests={"tests": tests})


def shown_test(task: Task) -> str:
    return f"{task.question}\n\nYour code should pass this test:\n\n```python\n{task.assertions[0]}\n```"


def mbpp(tasks: Sequence[Task], name: str = "full") -> Rows:
    def row(number: int, task: Task, text: str = "text", **more: Any) -> dict[str, Any]:
        own = {"task_id": number, text: task.question, "code": task.code, "test_list": task.assertions}
        return own | more

    files: dict[str, Sequence[Any]] = {}
    for part, each in PARTS.items():
        full = [row(n, task, test_setup_code="", challenge_test_list=[]) for n, task in enumerate(each)]
        files[f"full/{part}-00000-of-00001.parquet"] = full
        clean = [row(n, task, "prompt", test_imports=["import math"], source_file="f") for n, task in enumerate(each)]
        files[f"sanitized/{part}-00000-of-00001.parquet"] = [
            each | {"task_id": f"{part}{n}"} for n, each in enumerate(clean)
        ]
    setup = {} if name == "full" else {"setup": "import math"}
    tests = [{"code": each, **setup, "names": [tasks[0].function]} for each in tasks[0].assertions]
    metadata = {"tests": {"tests": tests, "public": 1}, "solutions": [tasks[0].code]}
    return made(files, tasks, questions=list(map(shown_test, tasks)), **metadata)


def packed(records: Any) -> str:
    """LiveCodeBench's form of private tests."""
    return base64.b64encode(zlib.compress(pickle.dumps(json.dumps(records)))).decode()


def live_code_bench() -> Rows:
    plain, method, *_ = TASKS

    def row(number: int, task: Task, tests: Sequence[Any], **more: Any) -> dict[str, Any]:
        own = {"question_title": task.function, "question_content": task.question, "platform": "atcoder"}
        when = {"question_id": f"abc{number}", "contest_id": "abc", "contest_date": "2023-08-21T00:00:00"}
        shown, hidden = json.dumps(tests[:1]), packed(tests[1:])
        cases = {"starter_code": "", "public_test_cases": shown, "private_test_cases": hidden, "metadata": "{}"}
        return own | when | {"difficulty": "easy"} | cases | more

    def records(inputs: Sequence[Any], outputs: Sequence[Any], kind: str) -> list[dict[str, Any]]:
        return [{"input": i, "output": o, "testtype": kind} for i, o in zip(inputs, outputs, strict=True)]

    starter = method.method.rpartition("\n        ")[0]
    runs = records(plain.inputs, plain.outputs, "stdin")
    results = (method.first, method.second)
    calls = records([json.dumps(n) for n, _ in results], [str(r) for _, r in results], "functional")
    named = json.dumps({"func_name": method.function})
    files = {
        "test.jsonl": [row(1, plain, runs)],
        "test2.jsonl": [
            row(3, method, calls, starter_code=starter, metadata=named, private_test_cases=json.dumps(calls[1:]))
        ],
    }
    metadata = {
        "platform": "atcoder",
        "difficulty": "easy",
        "contest_date": "2023-08-21T00:00:00",
        "question_title": plain.function,
        "tests": {"tests": plain.runs, "public": 1},
    }
    return made(files, (plain, method), questions=[plain.question, starting(method.question, starter)], **metadata)


def human_eval(file: str) -> Rows:
    def row(number: int, task: Task) -> dict[str, Any]:
        checks = "\n".join(f"    {each.replace(task.function, 'candidate')}" for each in task.assertions)
        prompt = (
            f'import math\n\ndef helper(a):\n    return a\n\ndef {task.function}(numbers):\n    """{task.question}"""\n'
        )
        test = f"\nMETADATA = {{}}\n\ndef check(candidate):\n{checks}\n"
        solution = {"canonical_solution": f"    {task.body}\n", "test": test}
        return {"task_id": f"HumanEval/{number}", "prompt": prompt, "entry_point": task.function} | solution

    rows = [row(number, task) for number, task in enumerate(TASKS)]
    first, helpers = rows[0], "import math\n\ndef helper(a):\n    return a"
    code = {"code": first["test"], "units": [["check", first["entry_point"]]], "setup": helpers}
    tests = {"tests": [code | {"names": [first["entry_point"]]}], "prelude": helpers}
    metadata = {"entry_point": "widest_gap", "tests": tests}
    solutions = [first["prompt"] + first["canonical_solution"]]
    return made({file: rows}, TASKS, questions=[each["prompt"] for each in rows], **metadata, solutions=solutions)


def human_eval_inputs() -> Rows:
    rows = human_eval("HumanEvalPlus.jsonl").files["HumanEvalPlus.jsonl"]
    more = [
        {"base_input": [[each.first[0]]], "plus_input": [[each.second[0]]], "atol": 0, "contract": ""} for each in TASKS
    ]
    files = {"HumanEvalPlus.jsonl": [row | own for row, own in zip(rows, more, strict=True)]}
    return replace(made(files, TASKS, questions=[each["prompt"] for each in rows]), metadata=None)


def mbpp_plus() -> Rows:
    def row(number: int, task: Task) -> dict[str, Any]:
        test = (
            "import math\ndef assertion(out, exp, atol):\n    assert out == exp\n"
            f"inputs = {[[task.first[0]], [task.second[0]]]}\nresults = {[task.first[1], task.second[1]]}\n"
            f"for inp, exp in zip(inputs, results):\n    assertion({task.function}(*inp), exp, 0)\n"
        )
        own = {"task_id": number, "code": task.code, "prompt": task.question, "source_file": "f", "test_imports": []}
        return own | {"test_list": task.assertions, "test": test}

    rows = [row(number, task) for number, task in enumerate(TASKS)]
    names = {"names": [TASKS[0].function]}
    tests = [{"code": each, **names} for each in (*TASKS[0].assertions, rows[0]["test"])]
    metadata = {"tests": {"tests": tests, "public": 1}, "solutions": [TASKS[0].code]}
    return made({"data/test-00000-of-00001.parquet": rows}, TASKS, questions=list(map(shown_test, TASKS)), **metadata)


def big_code_bench() -> Rows:
    def row(number: int, task: Task, **more: Any) -> dict[str, Any]:
        checks = "\n".join(
            f"    def test_{n}(self):\n        self.assertEqual(task_func({numbers}), {result})"
            for n, (numbers, result) in enumerate((task.first, task.second))
        )
        prompt = "import numpy as np\nSIZE = 3\ndef task_func(numbers):\n"
        return {
            "task_id": f"BigCodeBench/{number}",
            "complete_prompt": prompt + f'    """{task.question}"""\n',
            "instruct_prompt": task.question,
            "canonical_solution": f"    {task.body}\n",
            "code_prompt": prompt,
            "test": f"import unittest\nclass TestCases(unittest.TestCase):\n{checks}\n",
            "entry_point": "task_func",
            "doc_struct": "{}",
            "libs": "['numpy', 'unittest']",
        } | more

    rows = [row(number, task) for number, task in enumerate(TASKS)]
    rows += [row(8, TASKS[0], libs="['requests', 'numpy']"), row(9, TASKS[0], libs="['requests']")]
    helpers = "import numpy as np\nSIZE = 3"
    units = [["method", "TestCases", "test_0"], ["method", "TestCases", "test_1"]]
    code = {"code": rows[0]["test"], "units": units, "setup": helpers, "names": ["task_func"], "modules": ["solution"]}
    solutions = [rows[0]["code_prompt"] + rows[0]["canonical_solution"]]
    metadata = {"libs": rows[0]["libs"], "tests": {"tests": [code], "prelude": helpers}, "solutions": solutions}
    files = {"data/v0.1.4-00000-of-00001.parquet": rows, "data/v0.1.3-00000-of-00001.parquet": rows[:1]}
    return made(files, TASKS, {"needs_requests": 2}, **metadata)


PROGRAM_TRAINING: Mapping[str, Callable[[], Rows]] = {
    "apps_train": lambda: apps(TRAIN),
    "taco_train": lambda: taco(TRAIN),
    "code_contests_train": lambda: code_contests(TRAIN),
    "deepcoder": deepcoder,
    "eurus2_code": eurus,
    "kodcode": kodcode,
    "acecode": acecode,
    "mbpp_train": lambda: mbpp(TRAIN),
}
"""The sets with tests for training, by name."""

PROGRAM_EVALUATION: Mapping[str, Callable[[], Rows]] = {
    "apps": lambda: apps(TEST),
    "taco": lambda: taco(TEST),
    "code_contests": lambda: code_contests(TEST),
    "livecodebench": live_code_bench,
    "humaneval": lambda: human_eval("openai_humaneval/test-00000-of-00001.parquet"),
    "humaneval_plus": lambda: human_eval("data/test-00000-of-00001.parquet"),
    "humaneval_plus_inputs": human_eval_inputs,
    "mbpp": lambda: mbpp(TEST),
    "mbpp_sanitized": lambda: mbpp((*TEST, *TRAIN), "sanitized"),
    "mbpp_plus": mbpp_plus,
    "bigcodebench": big_code_bench,
}
"""The sets with tests for evaluation, by name."""
