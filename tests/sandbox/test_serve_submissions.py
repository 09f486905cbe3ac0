"""SandboxFusion's `/submit`: problems in the form of its documents, and the verdicts that it would give."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from serving import ENDLESS, Server, run_server
from torl_sandbox.servers.submissions import extract_code, same_output


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with run_server("--workers", "1") as running:
        yield running


def submitted(server: Server, completion: str, **config: Any) -> Any:
    body = {"dataset": "mine", "id": 17, "completion": completion, "config": config}
    status, answer = server.ask("/submit", body)
    assert status == 200, answer
    assert answer["id"] == 17
    return answer


DOUBLE = [{"input": {"stdin": f"{n}\n"}, "output": {"stdout": f"{2 * n}\n"}} for n in (1, 2, 3)]


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize(
    ("code", "passed"),
    [
        ("print(int(input()) * 2)", [True, True, True]),
        ("print(float(input()) * 2.000001)", [True, True, True]),
        ("n = int(input())\nprint(2 if n == 1 else 0)", [True, False]),
        ("print(input(), 1 / 0)", [False]),
        (ENDLESS, [False]),
    ],
)
def test_outputs_are_compared_until_one_differs(server: Server, code: str, passed: list[bool], as_text: bool) -> None:
    data = {"test": json.dumps(DOUBLE) if as_text else DOUBLE}
    config = {"dataset_type": "CommonOJDataset", "language": "python", "run_timeout": 0.5, "provided_data": data}
    answer = submitted(server, f"So:\n```python\n{code}\n```\n", **config)
    assert [test["passed"] for test in answer["tests"]] == passed
    assert answer["accepted"] is all(passed)
    assert answer["extracted_code"] == code
    assert answer["tests"][0]["exec_info"].keys() >= {"status", "run_result"}


def test_all_cases_run_on_request(server: Server) -> None:
    config = {"dataset_type": "CommonOJDataset", "language": "python", "provided_data": {"test": DOUBLE}}
    answer = submitted(server, "```\nprint(4)\n```", **config, extra={"run_all_cases": True})
    assert [test["passed"] for test in answer["tests"]] == [False, True, False]


@pytest.mark.parametrize(
    "test", ["assert double(3) == 6", "#<INSERT>\n\ndef check():\n    assert double(3) == 6\ncheck()"]
)
@pytest.mark.parametrize(
    ("code", "flag", "accepted"),
    [
        ("def double(n): return 2 * n", True, True),
        ("def double(n): return n", False, False),
        ('def double(n): return 2 * n\nif __name__ == "__main__":\n    1 / 0', True, True),
        ("import sys\nsys.exit(0)", False, True),
        ("import sys\nsys.exit(0)", True, False),
    ],
)
def test_test_code_decides(server: Server, test: str, code: str, flag: bool, accepted: bool) -> None:
    data = {"labels": {"programming_language": "python"}, "test": {"code": test}}
    config = {"dataset_type": "AutoEvalDataset", "provided_data": data, "extra": {"append_flag": flag}}
    answer = submitted(server, f"```python\n{code}\n```", **config)
    assert answer["accepted"] is accepted
    assert "double(3) == 6" in answer["full_code"]


def test_the_test_finds_its_files(server: Server) -> None:
    data = {"test": {"code": "assert load() == 'hi'", "asset": {"a.txt": "aGk="}}}
    config = {"dataset_type": "AutoEvalDataset", "provided_data": data}
    assert submitted(server, "```python\ndef load(): return open('a.txt').read()\n```", **config)["accepted"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({}, "config.dataset_type must be CommonOJDataset or AutoEvalDataset, got None"),
        ({"dataset_type": "HumanEvalDataset"}, "got HumanEvalDataset"),
        ({"dataset_type": "CommonOJDataset"}, "the server has no dataset 'mine': send the problem"),
        ({"dataset_type": "CommonOJDataset", "provided_data": {}}, "config.provided_data.test: Field required"),
        ({"dataset_type": "CommonOJDataset", "provided_data": {"test": []}}, "config.provided_data.test: List should"),
        ({"dataset_type": "CommonOJDataset", "provided_data": {"test": [{}]}}, "test.0.input: Field required"),
        ({"dataset_type": "CommonOJDataset", "provided_data": {"test": "[" * 200_000}}, "provided_data.test: "),
        (
            {"dataset_type": "CommonOJDataset", "provided_data": {"test": [{"input": {"stdin": 3}, "output": []}]}},
            "config.provided_data.test.0.input.stdin: Input should be a valid string",
        ),
        ({"dataset_type": "AutoEvalDataset", "provided_data": {"test": [1]}}, "config.provided_data.test: Input"),
        (
            {"dataset_type": "AutoEvalDataset", "provided_data": {"test": {"code": "", "asset": {"a": "!!!!"}}}},
            "config.provided_data.test.asset: ",
        ),
        ({"dataset_type": "CommonOJDataset", "provided_data": {"test": DOUBLE}, "language": "cpp"}, "must be 'python'"),
    ],
)
def test_untestable_submission_is_refused(server: Server, config: dict[str, Any], said: str) -> None:
    status, answer = server.ask("/submit", {"dataset": "mine", "id": 1, "completion": "", "config": config})
    assert status == 422
    assert said in str(answer["detail"])


@pytest.mark.parametrize(
    ("completion", "code"),
    [
        ("a\n```python\nx\n```\nb\n```python\ny\n```", "x"),
        ("```\nx\n```\n```py\ny\n```", "y"),
        ("```cpp\nx\n```", "x"),
        ("```python\nx\ny", "x\ny"),
        ("```py \nx\n\n  y  \n \n\n\t```", "x\n\n  y  "),
        ("no code", ""),
    ],
)
def test_the_program_is_found_in_a_completion(completion: str, code: str) -> None:
    assert extract_code(completion) == code


@pytest.mark.parametrize(
    ("printed", "expected", "same"),
    [
        ("YES\n\n", "yes", True),
        (" a \n b", "a\nb\n", True),
        ("1.000001\n", "1", True),
        ("1.001", "1", False),
        ("a\nb", "a", False),
        ("a", "1", False),
        ("", "", True),
    ],
)
def test_outputs_are_the_same(printed: str, expected: str, same: bool) -> None:
    assert same_output(printed, expected) is same
