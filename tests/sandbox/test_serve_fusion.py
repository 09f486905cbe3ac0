"""SandboxFusion's HTTP interface in front of the pool: what its clients send, and what they get."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from fusion_clients import FAIL, SENT, Sent, read_by_torl, read_by_verl, read_by_verl_tool
from serving import ENDLESS, Server, run_server
from torl_sandbox.pool import SandboxPool
from torl_sandbox.servers import fusion_api

TEXTS = ("stdout", "stderr")


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with run_server("--workers", "1", "--cpu-seconds", "20", "--memory-mib", "512", "--files-mib", "1") as running:
        yield running


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


# --- its clients ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sent", SENT, ids=lambda sent: sent.client)
def test_client_receives_expected_fields(server: Server, sent: Sent) -> None:
    status, answer = server.ask("/run_code", sent.body)
    assert status == 200
    assert answer.keys() == {"status", "message", "compile_result", "run_result", "executor_pod_name", "files"}
    result = answer["run_result"]
    assert result.keys() == {"status", "execution_time", "return_code", "stdout", "stderr"}
    assert (result["status"], result["stdout"]) == ("Finished", sent.stdout)
    assert result["stderr"].endswith(sent.stderr_end) if sent.stderr_end else result["stderr"] == ""
    assert (answer["status"], result["return_code"]) == (("Failed", 1) if sent.stderr_end else ("Success", 0))
    assert 0 < result["execution_time"] < 10


@pytest.mark.parametrize(
    ("code", "verls", "torls"),
    [
        ("print(7)", ("success", "7\n"), ("7\n", "Done")),
        ("", ("success", ""), ("", "Done")),
        (FAIL, ("runtime_error", "before\nTraceback"), ("before\n", "Done")),
        ("1 / 0", ("runtime_error", "Traceback"), ("", "Traceback")),
        (ENDLESS, ("timeout", "no stdout here"), ("", "")),
    ],
)
def test_verl_and_torl_read_every_kind_of_outcome(
    server: Server, code: str, verls: tuple[str, str], torls: tuple[str, str]
) -> None:
    answer = server.run(code, run_timeout=0.3)
    for (kind, output), (expected_kind, expected) in ((read_by_verl(answer), verls), (read_by_torl(answer), torls)):
        assert kind == expected_kind or kind.startswith(expected_kind or "?")
        assert output == expected or output.startswith(expected or "?")
    assert read_by_verl_tool(answer).startswith("Execution: ")


def test_the_server_is_alive(server: Server) -> None:
    assert server.ask("/v1/ping") == (200, "pong")


# --- outcomes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "fields", "ended", "return_code"),
    [
        ("import sys; sys.exit(0)", {}, "Finished", 0),
        ("import sys; sys.exit(3)", {}, "Finished", 3),
        ("import sys; sys.exit(-1)", {}, "Finished", 255),
        ("import sys; sys.exit('gave up')", {}, "Finished", 1),
        ("raise KeyError('SystemExit: 7')", {}, "Finished", 1),
        ("x = = 1", {}, "Finished", 1),
        ("x = bytearray(2 << 30)", {}, "Finished", 1),
        ("x = bytearray(300 << 20)", {"memory_limit_MB": 256}, "Finished", 1),
        ("x = bytearray(100 << 20)", {"memory_limit_MB": 100_000}, "Finished", 0),
        ("x = bytearray(100 << 20)", {"memory_limit_MB": -1}, "Finished", 0),
        ("print('x' * (2 << 20))", {}, "Finished", -25),
        (ENDLESS, {"run_timeout": 0.2}, "TimeLimitExceeded", None),
    ],
)  # fmt: skip
def test_a_run_ends_as_a_process_would(
    server: Server, code: str, fields: dict[str, Any], ended: str, return_code: int | None
) -> None:
    answer = server.run(code, **fields)
    result = answer["run_result"]
    assert result["status"] == ended
    assert all(isinstance(result[name], str) for name in TEXTS)
    if return_code is not None:
        assert result["return_code"] == return_code
    assert answer["status"] == ("Success" if result["return_code"] == 0 else "Failed")


def test_output_before_a_limit_is_there(server: Server) -> None:
    result = server.run(f"print('first')\n{ENDLESS}", run_timeout=0.2)["run_result"]
    assert (result["stdout"], result["return_code"]) == ("first\n", None)
    assert 0.2 <= result["execution_time"] < 5
    result = server.run("while True: print('x' * 1000)")["run_result"]
    assert len(result["stdout"]) == 1 << 20
    assert result["stderr"].endswith("more output than allowed\n")


def test_standard_input_and_the_seed_are_passed_on(server: Server) -> None:
    assert server.run("print(input(), input())", stdin="a\nb\n")["run_result"]["stdout"] == "a b\n"
    assert "EOFError" in server.run("input()", stdin=None)["run_result"]["stderr"]
    draw = "import random; print(random.random())"
    drawn = [server.run(draw, **fields)["run_result"]["stdout"] for fields in ({}, {"seed": 0}, {"seed": 1})]
    assert drawn[0] == drawn[1] != drawn[2]


# --- files ------------------------------------------------------------------------------------------------------------


def test_files_go_in_and_come_out_in_base64(server: Server) -> None:
    answer = server.run(
        "import os\nos.makedirs('out')\nopen('out/b.txt', 'w').write(open('in/a.txt').read() + '!')\n"
        "open('c.bin', 'wb').write(bytes(range(256)))",
        files={"in/a.txt": encoded("hi"), "nothing": None, "IGNORE_THIS_FILE_0": encoded("x")},
        fetch_files=["out/b.txt", "./c.bin", "/work/in/a.txt", "nothing", "IGNORE_THIS_FILE_0"],
    )
    files = {name: base64.b64decode(content) for name, content in answer["files"].items()}
    assert files == {"out/b.txt": b"hi!", "./c.bin": bytes(range(256)), "/work/in/a.txt": b"hi"}


def test_files_of_a_run_that_failed_come_out_too(server: Server) -> None:
    answer = server.run("open('a', 'w').write('x')\n1 / 0", fetch_files=["a"])
    assert (answer["status"], answer["files"]) == ("Failed", {"a": encoded("x")})


# --- notebooks --------------------------------------------------------------------------------------------------------


def cell(stdout: str = "", stderr: str = "", value: str | None = None) -> dict[str, Any]:
    display = [] if value is None else [{"text/plain": value}]
    return {"stdout": stdout, "stderr": stderr, "display": display, "error": []}


def test_cells_share_their_state_and_show_their_values(server: Server) -> None:
    """The example of SandboxFusion's own `RunJupyterRequest`, and what its tests expect of it."""
    cells = ["a = 123", "a", "print(a)", "import sys; _ = sys.stderr.write('stderr message')",
             "raise RuntimeError('error message')", "a + 1"]  # fmt: skip
    body = {"cells": cells, "cell_timeout": 0, "total_timeout": 45, "kernel": "python3", "files": {}, "fetch_files": []}
    status, answer = server.ask("/run_jupyter", body)
    assert (status, answer["status"], answer["message"]) == (200, "Success", "")
    assert (answer["driver"]["status"], answer["driver"]["return_code"]) == ("Finished", 0)
    *good, failed, last = answer["cells"]
    assert good == [cell(), cell(value="123"), cell("123\n"), cell(stderr="stderr message")]
    assert last == cell(value="124")
    (error,) = failed["error"]
    assert (error["ename"], error["evalue"]) == ("RuntimeError", "error message")
    assert error["traceback"][-1] == "RuntimeError: error message"
    assert failed["stderr"] == ""


def test_a_notebook_knows_nothing_of_another(server: Server) -> None:
    server.ask("/run_jupyter", {"cells": ["secret = 1"]})
    _, answer = server.ask("/run_jupyter", {"cells": ["secret"]})
    assert answer["cells"][0]["error"][0]["ename"] == "NameError"


@pytest.mark.parametrize("limits", [{"cell_timeout": 0.2}, {"total_timeout": 0.2}])
def test_a_cell_that_takes_too_long_ends_the_notebook(server: Server, limits: dict[str, float]) -> None:
    _, answer = server.ask("/run_jupyter", {"cells": ["print(1)", ENDLESS, "print(2)"], **limits})
    assert (answer["status"], answer["driver"]["status"]) == ("Failed", "TimeLimitExceeded")
    assert [each["stdout"] for each in answer["cells"]] == ["1\n", ""]


def test_a_cell_that_prints_too_much_has_an_error(server: Server) -> None:
    _, answer = server.ask("/run_jupyter", {"cells": ["x = 1", "print('x' * (2 << 20))", "x"]})
    assert [each["error"][0]["ename"] if each["error"] else None for each in answer["cells"]] == [
        None, "output_limit", None,
    ]  # fmt: skip
    assert answer["cells"][2] == cell(value="1")


def test_figures_that_are_shown_are_displayed() -> None:
    plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2]);\nplt.show()"
    with run_server("--workers", "1") as server:
        answer = server.ask("/run_jupyter", {"cells": [plot, "plt.get_fignums()"]})[1]
    (figure,), numbers = (cell["display"] for cell in answer["cells"])
    assert figure["text/plain"] == "<Figure size 640x480 with 1 Axes>"
    assert base64.b64decode(figure["image/png"]).startswith(b"\x89PNG")
    assert (numbers, answer["files"]) == ([{"text/plain": "[]"}], {})


def test_files_stay_from_cell_to_cell(server: Server) -> None:
    cells = ["open('b', 'w').write(open('a').read() * 2);", "print(open('b').read())", "open('c', 'w').write('3');"]
    body = {"cells": cells, "files": {"a": encoded("x")}, "fetch_files": ["a", "b", "c", "d"]}
    _, answer = server.ask("/run_jupyter", body)
    assert answer["cells"][1]["stdout"] == "xx\n"
    assert answer["files"] == {"a": encoded("x"), "b": encoded("xx"), "c": encoded("3")}


async def test_notebook_keeps_only_the_requested_files(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: dict[str, bytes] = {}
    monkeypatch.setattr(fusion_api, "fetched_files", lambda names, changed, initial: kept.update(changed))
    cells = [f"with open('f{number}', 'w') as file: file.write('{number}')" for number in range(3)]
    with SandboxPool(1) as pool:
        await fusion_api.run_jupyter(pool, fusion_api.RunJupyterRequest(cells=cells, fetch_files=["/work/f1", "x"]))
    assert kept == {"f1": b"1"}


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "content", "status", "said"),
    [
        ("/run_code", {"code": "1", "language": "cpp"}, 422, "language = 'cpp' must be 'python'"),
        ("/run_code", {"code": "1", "language": "pytest"}, 422, "language = 'pytest' must be 'python'"),
        ("/run_code", {"language": "python"}, 422, "Field required"),
        ("/run_code", {"code": 3, "language": "python"}, 422, "valid string"),
        ("/run_code", {"code": "1", "language": "python", "run_timeout": 0}, 422, "greater than 0"),
        ("/run_code", {"code": "1", "language": "python", "files": {"a": "abc"}}, 422, "padding"),
        ("/run_code", {"code": "1", "language": "python", "files": {"a": "!!!!"}}, 422, "base64"),
        ("/run_code", {"code": "1", "language": "python", "files": {"../a": ""}}, 422, "../a"),
        ("/run_code", {"code": "1", "language": "python", "fetch_files": ["/tmp/b"]}, 422, "or below /work"),
        ("/run_jupyter", {"cells": [], "fetch_files": ["../../etc/passwd"]}, 422, "or below /work"),
        ("/run_code", {"code": "1", "language": "python", "files": {"a": "A" * (2 << 20)}}, 422, "bytes"),
        ("/run_code", b"{", 422, "Invalid JSON"),
        ("/run_code", b'{"code": "\\ud800", "language": "python"}', 422, "Invalid JSON"),
        ("/run_jupyter", {"cells": "a"}, 422, "valid array"),
        ("/run_jupyter", {"cells": ["1"] * 257}, 422, "at most 256 items"),
        ("/run_jupyter", {"cells": ["print('x' * 1_000_000)"] * 68}, 422, "the results of the cells exceed 67108864"),
    ],
)  # fmt: skip
def test_a_request_that_cannot_be_is_refused_with_its_fault(
    server: Server, path: str, content: Any, status: int, said: str
) -> None:
    got, answer = server.ask(path, content)
    assert got == status
    assert said in str(answer["detail"])


async def test_tracebacks_count_as_results(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that was not printed: a program can write the report of its exception itself."""
    monkeypatch.setattr(fusion_api, "_MAX_RESULT_BYTES", 10_000)
    with SandboxPool(1) as pool:
        request = fusion_api.RunJupyterRequest(
            cells=["import sys\nsys.stderr = None", f"raise ValueError('{'x' * 6000}')"]
        )
        with pytest.raises(ValueError, match="the results of the cells exceed 10000 bytes"):
            await fusion_api.run_jupyter(pool, request)


def test_only_json_is_taken(server: Server) -> None:
    status, answer = server.ask("/run_code", b"{}", headers={"Content-Type": "text/plain"})
    assert (status, answer["detail"]) == (415, "the content type must be application/json, got text/plain")
