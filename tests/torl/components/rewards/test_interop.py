"""The grader in the hands of others: a command, a server, reward functions of TRL and verl, and the audit of one."""

import io
import json
import signal
import threading
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli import running
from torl.commands.grader import main
from torl.components.interop.trl import reward_func
from torl.components.interop.verl import compute_score, score
from torl.components.rewards.probes import audit

PROBLEMS = [("What is 17 times 3?", "51"), ("What is one half of one?", "\\frac{1}{2}")]


def test_lines_of_pairs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    pairs = [("5", "5."), ("5", "6"), ("\\frac12", "0.5"), ("5", "9^{9^{9^9}}")]
    lines = [json.dumps({"reference": reference, "answer": answer, "id": 7}) for reference, answer in pairs]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
    assert main(["grade", "--workers", "1", "--timeout-seconds", "0.5"]) == 0
    replies = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["correct"] for row in replies] == [True, False, True, False]
    assert [row["failure"] for row in replies] == [None, None, None, "timeout"]
    assert replies[0]["id"] == 7


def test_invalid_lines_get_an_error_and_numbers_are_graded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ['{"reference": 5}', "{", '{"reference": "1/2", "answer": 0.5}', "[]", '{"reference": 5, "answer": null}']
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO("\n".join(lines).encode())))
    assert main(["grade", "--workers", "1"]) == 1
    printed = capsys.readouterr()
    replies = [json.loads(line) for line in printed.out.splitlines()]
    assert replies[2] == {"reference": "1/2", "answer": 0.5, "correct": True, "failure": None}
    assert [row.get("line") for row in replies] == [1, 2, None, 4, 5]
    assert replies[1]["error"].startswith("not valid JSON")
    assert "4 lines are not" in printed.err


def test_file_that_cannot_be_read_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["grade", str(tmp_path / "absent.jsonl")]) == 1
    assert capsys.readouterr().err == f"error: {tmp_path}/absent.jsonl: cannot be read: No such file or directory\n"
    (tmp_path / "latin.jsonl").write_bytes(b'{"reference": "5", "answer": "5"}\n{"reference": "\xe9", "answer": "5"}\n')
    assert main(["grade", str(tmp_path / "latin.jsonl"), "--workers", "1"]) == 1
    graded, invalid = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert graded["correct"] is True
    assert (invalid["line"], "not UTF-8: byte 15 is 0xe9" in invalid["error"]) == (2, True)


def test_a_server(tmp_path: Path) -> None:
    with running("torl", "grader", "serve", "--port", "0", "--workers", "1", log=tmp_path / "log") as command:
        command.wait_for(tmp_path / "log", "listening on ")
        url = command.output().split()[-1]

        def post(body: Any) -> Any:
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(f"{url}/grade", json.dumps(body).encode(), headers)
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.loads(response.read())

        assert post({"reference": "5", "answer": "5."}) == {"correct": True, "failure": None}
        assert [each["correct"] for each in post([{"reference": "x", "answer": text} for text in "xy"])] == [
            True,
            False,
        ]
        for wrong in ({"reference": "5"}, [{"reference": 5, "answer": "5"}], "text"):
            with pytest.raises(urllib.error.HTTPError) as refused:
                post(wrong)
            assert refused.value.code == 422
        assert urllib.request.urlopen(f"{url}/v1/ping", timeout=60).read() == b"pong"
        command.process.send_signal(signal.SIGTERM)
        assert command.wait(60) == 0
        command.assert_nothing_left()


def test_reward_functions_of_trl_and_verl_also_off_the_main_thread() -> None:
    """math-verify's own timeout needs the main thread; a trainer grades where it likes."""
    replies: list[Any] = []

    def grade() -> None:
        chat = [{"role": "user", "content": "\\boxed{6}"}, {"role": "assistant", "content": "It is \\boxed{0.5}."}]
        texts = ["\\boxed{5.}", chat, "no box"]
        replies.append(
            reward_func(prompts=["?"] * 3, completions=texts, answer=["5", "\\frac12", "1"], trainer_state=None)
        )
        replies.append(compute_score("math", "so \\boxed{2*pi}", "2\\pi", extra_info={"index": 1}))
        replies.append(compute_score("math", "so \\boxed{9^{9^{9^9}}}", "2\\pi"))

    thread = threading.Thread(target=grade)
    thread.start()
    thread.join()
    assert replies == [[1.0, 1.0, 0.0], {"score": 1.0, "acc": True}, {"score": 0.0, "acc": False}]


@pytest.mark.parametrize(
    ("reference", "right", "wrong"),
    [
        (8, "8", "9"),
        (["8"], "8", "9"),
        (np.array(["8", "9"]), "9, 8", "8"),
        ({"target": ["1/2", "2"]}, "0.5", "1/2, 2"),
        ('["1/2", "2"]', "0.5", "1/2, 2"),  # Skywork-OR1
    ],
)
def test_references_may_be_values_of_a_data_set(reference: Any, right: str, wrong: str) -> None:
    """Numbers and lists, as arrays of numpy too, and verl's objects of several right answers."""
    assert reward_func([f"\\boxed{{{right}}}", f"\\boxed{{{wrong}}}"], [reference] * 2) == [1.0, 0.0]
    assert compute_score("math", f"\\boxed{{{right}}}", reference)["acc"] is True
    assert compute_score("math", f"\\boxed{{{wrong}}}", reference)["acc"] is False


@pytest.mark.slow  # each hostile answer uses up its time
def test_our_own_grader_passes_the_audit() -> None:
    assert audit(score, PROBLEMS[1:]) == []


def careless(response: str, reference: str) -> float:
    """A mistake that an audit must find: the reference anywhere is rewarded."""
    return float(reference in response)


def fragile(response: str, reference: str) -> float:
    """Fails without a box."""
    return float(response.split("\\boxed{")[1].split("}")[0] == reference)


@pytest.mark.parametrize(
    "name", ["torl.components.interop.verl:compute_score", "torl.components.interop.trl:reward_func"]
)
def test_audit_calls_functions_of_other_libraries_by_their_arguments(name: str) -> None:
    assert main(["audit", name, "--count", "1"]) == 0


def unusable(one: str) -> float:
    return float(len(one))


def test_function_that_cannot_be_called_ends_the_audit(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", f"{__name__}:unusable"]) == 2
    assert "the function raised TypeError for a right response: unusable() takes 1" in capsys.readouterr().err


def test_audit_finds_wrong_answers_that_are_rewarded(capsys: pytest.CaptureFixture[str]) -> None:
    kinds = {finding.kind for finding in audit(careless, PROBLEMS)}
    assert {"taken back", "a hedge", "no box", "not equal", "a list of guesses"} <= kinds
    assert not {"right", "wrong", "empty"} & kinds
    found = {finding.kind: finding.what for finding in audit(fragile, PROBLEMS)}
    assert found["empty"] == "raised IndexError: list index out of range"
    assert found["right after a first try"] == "is right and paid less"
    assert found["taken back"] == "is wrong and paid in full"
    assert main(["audit", f"{__name__}:careless", "--count", "1"]) == 3
    assert "a hedge: " in capsys.readouterr().out
    assert main(["audit", f"{__name__}:absent"]) == 2
    assert "has no absent" in capsys.readouterr().err
