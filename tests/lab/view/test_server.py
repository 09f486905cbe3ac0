"""The server of the page: its JSON interface, hostile records, and requests that are refused."""

import asyncio
import base64
import hashlib
import json
import math
import os
import re
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

import torl
from torl.__main__ import main
from torl.base.paths import resolve_path
from torl.base.types import UpdateNumbers
from torl.components.hub import local_tokenizer_file
from torl.components.text.tokenizer import load_tokenizer
from torl.run.records import metric_names as names
from torl.run.records.tokens import TokenKey, write_token_numbers
from torl_lab.view.live import LiveState
from torl_lab.view.saved import STATIC
from torl_lab.view.search import search_pattern
from torl_lab.view.selection import Query, match
from torl_lab.view.server import application
from torl_lab.view.sources import Target
from torl_lab.view.tokens import NOT_RECORDED
from torl_sandbox.servers.asgi import CheckHeaders
from viewed_runs import CALLING, indexed, row, varied, write_run

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>",
    "\x1b[31mred\x1b[0m \u202egnp.exe\u202c \u2066\u200b\ufeff\x00\x7f",
    "\ud800 lone \udfff",
    "\r\n\u2028\u2029",
)
DEMO = "torl:demo/base_model"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The server of two runs whose indexes are complete."""
    directory = tmp_path_factory.mktemp("view")
    first = write_run(
        directory / "first",
        {
            "step_000000": [varied(0, sample, sample) for sample in range(10)],
            "step_000001": [row(1, sample, "p2", correct=sample == 0) for sample in range(4)],
        },
    )
    second = write_run(directory / "second", {"step_000000": [row(0, 0, "p2", text=text) for text in HOSTILE]}, steps=3)
    (second / "config.toml").write_text(
        "[run]\nsteps = 7\n[model]\npath = 'nowhere/none'\n[a.b]\nc = [1]\n", encoding="utf-8"
    )
    for path, label in ((first, "first"), (second, "second")):
        indexed(path, label).close()
    state = LiveState([Target("first", first), Target("second", second)], None)
    with TestClient(CheckHeaders(application(state), "127.0.0.1"), base_url="http://127.0.0.1:8642") as opened:
        yield opened


def get(client: TestClient, path: str, status: int = 200, **parameters: Any) -> Any:
    reply = client.get(path, params=parameters)
    assert reply.status_code == status, reply.text
    return reply.json()


# --- the interface ----------------------------------------------------------------------------------------------------


def test_overview_has_curves_and_the_settings_that_differ(client: TestClient) -> None:
    found = get(client, "/api/overview")
    assert [(run["run"], run["steps"], run["planned"], run["rows"]) for run in found["runs"]] == [
        ("first", 2, 9, 14),
        ("second", 3, 7, 4),
    ]
    accuracy = next(figure for figure in found["curves"] if figure["title"] == "Training accuracy")
    assert [(line["run"], line["steps"], line["values"]) for line in accuracy["lines"]] == [
        ("first", [0, 1], [0.0, 0.1]),
        ("second", [0, 1, 2], [0.0, 0.1, 0.2]),
    ]
    assert (accuracy["scale"], {line["line"] for line in accuracy["lines"]}) == ("percent", {0})
    assert not any(line["evaluated"] for line in accuracy["lines"])
    assert found["settings"]["differences"] == [
        {"key": "run.steps", "values": [9, 7]},
        {"key": "a.b.c", "values": [None, [1]]},
    ]
    assert found["settings"]["runs"] == ["first", "second"]
    assert all("nowhere/none" in text for text in found["settings"]["texts"])
    metric = get(client, "/api/metric", name="reward/accuracy", run="first")
    assert (metric["title"], metric["note"]) == ("reward/accuracy", names.ACCURACY.meaning)
    assert metric["lines"][0]["values"] == [0.0, 0.1]


def test_list_spans_runs_and_counts_each(client: TestClient) -> None:
    found = get(client, "/api/trajectories", problem="p2", correct=1, sort="sample", order="asc")
    assert found["total"] == len(found["rows"]) == 6
    assert found["facets"]["run"] == {"first": 2, "second": 4}
    assert [each["sample"] for each in found["rows"]] == [0, 0, 0, 0, 0, 2]
    page = get(client, "/api/trajectories", run="first", limit=3, offset=12, facets=0)
    assert (page["total"], len(page["rows"]), "facets" in page) == (14, 2, False)


def test_trajectory_has_its_texts_calls_and_group(client: TestClient) -> None:
    found = get(client, "/api/trajectory", run="first", file="step_000001", line=2)
    turn, observation, last = found["sequence"]["segments"]
    assert "".join(part["text"] for part in turn["parts"]) == CALLING
    (read,) = [eval(found["python"], {"torl": torl})]
    assert (read.step, read.trajectory.sample_index) == (1, 2)
    assert [part["text"] for part in turn["parts"] if part["kind"] == "code"] == ["print(1)\n"]
    assert (observation["text"], observation["calls"]) == ("\n1\n```\n", [0])
    assert [part["text"] for part in last["parts"] if part["kind"] == "answer"] == ["\\boxed{1}"]
    assert found["sequence"]["calls"][0]["arguments"] == {"code": "print(1)\n"}
    assert [(member["line"], "correct" in member["flags"]) for member in found["members"]] == [
        (0, True),
        (1, False),
        (2, False),
        (3, False),
    ]
    colors = {color["name"]: color for color in found["sequence"]["tokens"]["colors"]}
    assert colors["mask"]["values"] == [1, 0, 0, 1]
    assert colors["advantage"]["values"] == [0.5, None, None, 0.5]
    assert colors["rollout_logprob"]["values"] == [-1, None, None, -1]
    assert {colors[name]["missing"] for name in ("entropy", "learner_logprob", "gap", "clipped")} == {NOT_RECORDED}
    assert found["sequence"]["tokens"]["texts"] is None  # the model is not on this machine


def test_recorded_token_arrays_become_colors(tmp_path: Path) -> None:
    numbers = {"old_logprobs": [-1.5, 0, 0, -1.25], "advantages": [0.25, 0, 0, -0.25], "values": [1, 0, 0, 2]}
    with serve(write_run(tmp_path / "run", {"step_000000": [row(token_numbers=numbers)]})) as client:
        found = get(client, "/api/trajectory", run="run", file="step_000000", line=0)
    colors = {color["name"]: color.get("values") for color in found["sequence"]["tokens"]["colors"]}
    assert colors["learner_logprob"] == [-1.5, None, None, -1.25]
    assert colors["gap"] == [-0.5, None, None, -0.25]  # learner minus engine, whose log-probabilities are -1
    assert (colors["advantage"], colors["value"]) == ([0.25, None, None, -0.25], [1, None, None, 2])


def test_numbers_of_the_learner_become_colors(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", {"step_000000": [row(sample=0), row(sample=1)]})
    arrays = {
        "learner_logprobs": [-1.5, -0.5],
        "old_logprobs": [-1.25, -1.0],
        "entropies": [2.0, 0.5],
        "advantages": [0.25, -0.25],
        "importance_weights": [1.5, 0.0],
        "clipped": [0, 1],
    }
    first = json.loads((run / "trajectories" / "step_000000.jsonl").read_text().splitlines()[0])
    numbers = UpdateNumbers(3, {name: np.array(values, np.float32) for name, values in arrays.items()})
    write_token_numbers(run, 0, {TokenKey(first["group"], 0, 0): numbers})
    with serve(run) as client:
        recorded, other = (get(client, "/api/trajectory", run="run", file="step_000000", line=line) for line in (0, 1))
        neighbors = get(client, "/api/token", run="run", file="step_000000", line=0, index=3)
    colors = {color["name"]: color.get("values") for color in recorded["sequence"]["tokens"]["colors"]}
    assert colors["learner_logprob"] == [-1.5, None, None, -0.5]
    assert colors["gap"] == [-0.25, None, None, 0]  # before the first optimizer step
    assert colors["ratio"] == [
        pytest.approx(math.exp(-0.25), rel=1e-5),
        None,
        None,
        pytest.approx(math.exp(0.5), rel=1e-5),
    ]
    assert (colors["entropy"], colors["weight"]) == ([2, None, None, 0.5], [1.5, None, None, 0])
    assert (colors["clipped"], colors["advantage"]) == ([0, None, None, 1], [0.25, None, None, -0.25])
    missing = {color["name"]: color.get("missing") for color in other["sequence"]["tokens"]["colors"]}
    assert missing["entropy"] == NOT_RECORDED
    absent = {color["name"]: color.get("missing") for color in recorded["sequence"]["tokens"]["colors"]}
    assert absent["value"] == missing["value"] == "the run has no critic"
    assert neighbors["parted"] == 0
    (member,) = neighbors["members"]
    assert (member["line"], member["numbers"]["rollout_logprobs"]) == (1, -1)


def test_trajectory_copied_as_a_test_passes_only_with_its_recorded_grade(client: TestClient) -> None:
    source = get(client, "/api/trajectory", run="first", file="step_000001", line=0)["test"]
    assert CALLING in eval(source.split("RESPONSE = ")[1].split("\n")[0])
    for text, passes in ((source, True), (source.replace("is True", "is False"), False)):
        names: dict[str, Any] = {}
        exec(compile(text, "copied", "exec"), names)
        with nullcontext() if passes else pytest.raises(AssertionError):
            names["test_answer_is_found_and_graded_as_recorded"]()


def test_tokens_have_their_texts_if_the_tokenizer_is_known(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(resolve_path(DEMO))
    text = "Let x be 12.\n```python\nprint(x)\n``` é 🙂"
    ids = tokenizer.encode(text, add_special_tokens=False)
    members = [
        row(
            sample=sample,
            text=text,
            token_ids=each,
            loss_mask=[[True, len(each)]],
            policy_versions=[[0, len(each)]],
            rollout_logprobs=[-0.5] * len(each),
            tool_calls=[],
            turns=[
                {"start": 0, "stop": len(each), "text": text, "stop_reason": "stop", "blocks": [], "cached_tokens": 0}
            ],
        )
        for sample, each in enumerate((ids, ids[:5] + ids[7:]))
    ]
    directory = write_run(tmp_path / "run", {"step_000000": members})
    (directory / "config.toml").write_text(f"[model]\npath = '{DEMO}'\n", encoding="utf-8")
    assert local_tokenizer_file(DEMO) is not None
    with serve(directory) as client:
        found = get(client, "/api/trajectory", run="run", file="step_000000", line=0)
        compared = get(client, "/api/compare", run="run", file="step_000000", line=1)
    assert "".join(found["sequence"]["tokens"]["texts"]) == text
    assert found["sequence"]["tokens"]["ids"] == ids
    assert compared["unit"] == "token"
    root, *leaves = compared["nodes"]
    assert (root["start"], root["stop"], len(leaves)) == (0, 5, 2)
    assert {leaf["first"] for leaf in leaves} == {tokenizer.decode([ids[5]]), tokenizer.decode([ids[7]])}


def test_problem_has_all_attempts_of_all_runs(client: TestClient) -> None:
    shared = [("first", 1)] * 4 + [("second", 0)] * 4
    found = get(client, "/api/problem", id="p2")
    assert [(each["name"], each["question"]) for each in found] == [("p2", "?"), ("p2", "Question 2?")]
    assert [attempts_of(each) for each in found] == [shared, [("first", 0)] * 2]
    place = {"run": "first", "file": "step_000001", "line": 0}
    key = get(client, "/api/trajectory", **place)["problem"]["key"]
    (own,) = get(client, "/api/problem", id=key)
    assert (own["key"], attempts_of(own)) == (key, shared)
    assert get(client, "/api/trajectories", problem=key)["total"] == len(shared)


def attempts_of(problem: Any) -> list[tuple[str, int]]:
    return [(each["run"], each["step"]) for each in problem["attempts"]]


def test_chosen_trajectories_are_compared_by_characters_without_a_tokenizer(client: TestClient) -> None:
    found = get(client, "/api/compare", at=["first:step_000001:0", "second:step_000000:3"])
    assert found["unit"] == "character"
    assert [member["run"] for member in found["members"]] == ["first", "second"]
    assert [node["members"] for node in found["nodes"]] == [[0, 1], [0], [1]]


@pytest.mark.parametrize(("last", "unit"), [({}, "character"), ({"text": ""}, "token")])
def test_response_with_a_text_and_no_tokens_is_compared_by_characters(
    tmp_path: Path, last: dict[str, Any], unit: str
) -> None:
    played = row(token_ids=load_tokenizer(resolve_path(DEMO)).encode("one two", add_special_tokens=False))
    run = write_run(tmp_path / "run", {"step_000000": [played, row(0, 1, token_ids=[]) | last]})
    (run / "config.toml").write_text(f"[model]\npath = '{DEMO}'\n", encoding="utf-8")
    indexed(run).close()
    with serve(run) as client:
        found = get(client, "/api/compare", at=["run:step_000000:0", "run:step_000000:1"])
    texts = [
        "".join(part["text"] for node in found["nodes"] if member in node["members"] for part in node["runs"])
        for member in range(2)
    ]
    first = "one two" if unit == "token" else played["text"]
    assert (found["unit"], texts) == (unit, [first, last.get("text", played["text"])])


def test_search_streams_matches_in_the_order_of_the_list(client: TestClient) -> None:
    reply = client.get("/api/search", params={"pattern": r"number[35]\b", "sort": "sample", "order": "asc"})
    messages = [json.loads(line) for line in reply.text.splitlines()]
    assert [each["found"]["sample"] for each in messages if "found" in each] == [3, 5]
    assert messages[-1] == {"searched": 18, "total": 18, "full": False}


def test_line_of_a_file_can_be_downloaded_unchanged(client: TestClient, tmp_path: Path) -> None:
    reply = client.get("/api/row", params={"run": "first", "file": "step_000001", "line": 1})
    assert reply.json() == row(1, 1, "p2", correct=False)
    assert reply.headers["content-disposition"].startswith("attachment")


@pytest.mark.parametrize(
    ("path", "status", "message"),
    [
        ("/api/trajectory?run=first&file=step_000009&line=0", 404, "is not in the index"),
        ("/api/trajectory?run=first&file=../config&line=0", 404, "is not in the index"),
        ("/api/trajectory?run=third&file=step_000000&line=0", 404, "no run 'third'"),
        ("/api/trajectory?run=first&file=step_000000&line=-1", 400, "whole number"),
        ("/api/trajectories?limit=501", 400, "from 0 to 500"),
        ("/api/trajectories?color=red", 400, "unknown parameter"),
        ("/api/trajectories?sort=beauty", 400, "unknown order"),
        ("/api/search?pattern=(", 400, "is invalid"),
        ("/api/problem?id=none", 404, "no problem"),
        ("/api/metric", 400, "'name' is missing"),
    ],
)
def test_invalid_request_is_answered_with_the_reason(client: TestClient, path: str, status: int, message: str) -> None:
    reply = client.get(path)
    assert (reply.status_code, message in reply.json()["error"]) == (status, True), reply.text


def test_damaged_line_is_listed_and_its_reason_shown(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", {"step_000000": [row(), {"step": 1}]})
    with (directory / "trajectories" / "step_000000.jsonl").open("ab") as file:
        file.write(b"not json\n")
    with serve(directory) as client:
        assert get(client, "/api/trajectories", damaged=1)["total"] == 2
        for line, reason in ((1, "not a trajectory"), (2, "damaged")):
            assert reason in get(client, "/api/trajectory", 422, run="run", file="step_000000", line=line)["error"]


# --- hostile records --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", range(len(HOSTILE)))
def test_hostile_text_arrives_as_the_same_text(client: TestClient, line: int) -> None:
    reply = client.get("/api/row", params={"run": "second", "file": "step_000000", "line": line})
    assert json.loads(reply.text)["text"] == HOSTILE[line]
    listed = get(client, "/api/trajectories", run="second", sort="sample")
    assert HOSTILE[line] in [each["end"] for each in listed["rows"]]
    raw = client.get("/api/trajectories", params={"run": "second"})
    assert raw.headers["content-type"] == "application/json"
    assert raw.headers["x-content-type-options"] == "nosniff"
    assert raw.content.isascii()


def test_huge_output_is_cut_and_numbers_that_are_not_finite_are_null(tmp_path: Path) -> None:
    huge = row(seconds=float("inf"), text="y" * 1000)
    huge["tool_calls"][0]["observation"] = huge["tool_calls"][0]["text"] = "x" * (30 << 20)
    huge["tool_calls"][0]["details"] = {"stdout": "z" * (1 << 20), "deep": [{"a": "w" * (1 << 20)}]}
    directory = write_run(tmp_path / "run", {})
    text = json.dumps(huge)  # with Infinity, as other programs may write it
    (directory / "trajectories" / "step_000000.jsonl").write_text(f"{text}\n", encoding="utf-8")
    with serve(directory) as client:
        reply = client.get("/api/trajectory", params={"run": "run", "file": "step_000000", "line": 0})
    assert len(reply.content) < 2 << 20
    found = reply.json()
    assert found["seconds"] is None
    assert found["sequence"]["calls"][0]["text"].endswith(f"[{(30 << 20) - 200_000} more characters]")


async def test_index_that_cannot_be_read_is_reported_and_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = write_run(tmp_path / "run", {"step_000000": [row(0, 0, "p")]})
    indexed(directory, "run").close()
    state = LiveState([Target("run", directory)], None)
    read = state.targets["run"].reader.refresh
    errors: list[Exception] = [OSError(5, "Input/output error"), sqlite3.OperationalError("database is locked")]

    def refresh() -> bool:
        if errors:
            raise errors[0]
        return read()

    monkeypatch.setattr(state.targets["run"].reader, "refresh", refresh)
    await state.start()
    found: list[str | None] = []
    async with asyncio.timeout(60):
        async for states in state.states():
            found += [each["error"] for each in states or []]
            del errors[:1]
            if states and states[0]["rows"] == 1:
                state.end()
    await state.close()
    assert found == [
        "the index cannot be read: [Errno 5] Input/output error",
        "the index cannot be read: database is locked",
        None,
    ]


async def test_pattern_that_takes_forever_is_cancelled_with_its_process(tmp_path: Path) -> None:
    with closing(indexed(write_run(tmp_path / "run", {"step_000000": [row(text="a" * 60)]}))) as reader:
        results = search_pattern([match(reader, Query())], "(a+)+$b", "step", descending=True)
        waiting = asyncio.ensure_future(anext(results))
        done, _ = await asyncio.wait({waiting}, timeout=1)  # the loop is free all the time
        assert not done
        assert len(children_running("pattern_search")) == 1
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        await results.aclose()
    assert children_running("pattern_search") == []


def children_running(module: str) -> list[str]:
    """The processes of a module that this process has started."""
    listed = subprocess.run(["ps", "--ppid", str(os.getpid()), "-o", "args="], capture_output=True, text=True).stdout
    return [line for line in listed.splitlines() if module in line]


# --- refused requests -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"origin": "http://127.0.0.1:8642"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"host": "evil.example"}, 421),
        ({"host": "evil.example:8642", "origin": "http://evil.example:8642"}, 421),
    ],
)
@pytest.mark.parametrize("path", ["/", "/api/trajectories", "/static/app.js"])
def test_other_origins_and_hosts_are_refused(
    client: TestClient, path: str, headers: dict[str, str], status: int
) -> None:
    assert client.get(path, headers=headers).status_code == status


@pytest.mark.parametrize("path", ["/api/replay", "/api/experiment", "/api/verify"])
def test_request_with_effects_needs_its_header(client: TestClient, path: str) -> None:
    body = {"run": "first", "file": "step_000001", "line": 0, "call": 0, "code": "1"}
    assert client.post(path, json=body).status_code == 403
    assert client.get(path).status_code == 405


def test_page_allows_only_its_own_scripts_and_no_use_by_others(client: TestClient) -> None:
    reply = client.get("/")
    policy = dict(part.strip().split(" ", 1) for part in reply.headers["content-security-policy"].split(";"))
    inline = re.findall(r"<script(?![^>]*src)[^>]*>(.*?)</script>", reply.text, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in inline]
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == " ".join(["'self'", *(f"'sha256-{digest}'" for digest in digests)])
    assert policy["require-trusted-types-for"] == "'script'"
    assert (reply.headers["cross-origin-resource-policy"], "set-cookie" in reply.headers) == ("same-origin", False)
    assert not re.search(r"https?://", reply.text)


def test_address_that_is_not_local_needs_the_token(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", {"step_000000": [row()]})
    indexed(directory).close()
    with TestClient(application(LiveState([Target("run", directory)], None), "secret")) as client:
        assert client.get("/").status_code == 200  # the page alone has no records
        for headers, status in (
            ({}, 401),
            ({"authorization": "Bearer guess"}, 401),
            ({"authorization": "Bearer secret"}, 200),
        ):
            assert client.get("/api/trajectories", headers=headers).status_code == status
            assert client.get("/api/row?run=run&file=step_000000&line=0", headers=headers).status_code == status


def test_page_asks_for_records_with_its_token_alone() -> None:
    for module in STATIC.glob("*.js"):  # a link or an image would send no token
        assert not re.search(r"(?:href|src|action)=\$?[{\"'`]+/api/", module.read_text(encoding="utf-8")), module.name


# --- the command and the files ----------------------------------------------------------------------------------------


def test_index_can_be_built_without_a_server(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = write_run(tmp_path / "run", {"step_000000": [row()]})
    assert main(["view", "--index-only", "--index", str(tmp_path / "indexes"), f"mine={directory}"]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path.parent == tmp_path / "indexes"
    assert path.stat().st_size > 0
    assert [each.name for each in directory.glob("view*")] == []


def test_port_in_use_or_too_large_is_an_error_with_the_address(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = write_run(tmp_path / "run", {"step_000000": [row()]})
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = str(other.getsockname()[1])
        assert main(["view", str(directory), "--port", port]) == 2
    reason = f"cannot listen on 127.0.0.1:{port}: [Errno 98] Address already in use; --port 0 selects a free port"
    assert capsys.readouterr().err == f"error: {reason}\n"
    assert main(["view", str(directory), "--port", "999999"]) == 2
    assert "error: cannot listen on 127.0.0.1:999999: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"), [(["nowhere"], "no such file"), (["."], "neither the directory of a run")]
)
def test_path_without_trajectories_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["view", *words]) == 2
    assert message in capsys.readouterr().err


def test_vendored_files_are_those_of_the_list() -> None:
    text = (STATIC / "vendor" / "README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"\| `([\w.-]+)` \| `([0-9a-f]{64})` \|", text))
    files = {path.name: path for path in (STATIC / "vendor").iterdir() if path.suffix in (".js", ".mjs", ".css")}
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()} == listed
    licensed = {path.stem for path in (STATIC / "vendor").glob("*.LICENSE")}
    assert licensed == {"preact", "preact-signals", "signals-core", "htm", "uPlot"}


def test_modules_of_the_page_exist_and_are_exported(client: TestClient) -> None:
    modules = {path.stem for path in STATIC.glob("*.js")}
    [imports] = re.findall('<script type="importmap"[^>]*>(.*?)</script>', client.get("/saved").text)
    exported = json.loads(imports)["imports"]
    assert {name for name in exported if name.startswith("view/")} == {f"view/{name}.js" for name in modules}
    for path in STATIC.glob("*.js"):
        source = path.read_text(encoding="utf-8")
        assert set(re.findall(r'from "view/(\w+)\.js"', source)) <= modules, path.name
        assert {name for name in re.findall(r'from "([^"]+)"', source) if "/" not in name} <= exported.keys(), path.name
        assert "innerHTML" not in source
        assert "dangerously" not in source
        assert base64.b64decode(exported[f"view/{path.name}"].partition(",")[2]) == path.read_bytes()


def serve(directory: Path) -> TestClient:
    """The server of one run, with an index that is complete."""
    indexed(directory).close()
    return TestClient(application(LiveState([Target("run", directory)], None)))


def test_index_has_no_numpy_numbers_in_json(client: TestClient) -> None:
    found = get(client, "/api/trajectories", run="first", limit=1)
    assert isinstance(found["rows"][0]["reward"], float)
    assert not isinstance(found["rows"][0]["reward"], np.floating)
