"""Requests to SandboxFusion exactly as its clients send them, and what they read of the answers.

Transcribed, each from its source: the fields, their types, and nulls where they send nulls.
"""

from typing import Any, NamedTuple


class Sent(NamedTuple):
    """A client's request, and the texts that the run prints and complains with."""

    client: str
    source: str
    body: dict[str, Any]
    stdout: str
    stderr_end: str


PRINT = "print(sum(range(5)))"
FAIL = "print('before')\n1 / 0"
DIVISION = "ZeroDivisionError: division by zero\n"

SENT = [
    Sent(
        "verl, tool",
        "verl/tools/sandbox_fusion_tools.py: _process_single_case(0, None, None, url, code, timeout, 1024, 'python')",
        {
            "compile_timeout": 30, "run_timeout": 30, "code": PRINT, "stdin": None, "memory_limit_MB": 1024,
            "language": "python", "files": {}, "fetch_files": [],
        },
        "10\n", "",
    ),
    Sent(
        "verl, reward",
        "verl/utils/reward_score/sandbox_fusion/utils.py: call_sandbox_api",
        {
            "compile_timeout": 10, "run_timeout": 10, "code": "print(int(input()) * 2)", "stdin": "21\n",
            "memory_limit_MB": 1024, "language": "python", "files": {}, "fetch_files": [],
        },
        "42\n", "",
    ),
    Sent(
        "verl-tool",
        "verl_tool/servers/tools/sandbox_fusion.py: SandboxFusionTool._execute_in_sandbox",
        {"code": FAIL, "language": "python"},
        "before\n", DIVISION,
    ),
    Sent(
        "tinker-cookbook",
        "tinker_cookbook/sandbox/sandboxfusion.py: SandboxFusionClient.run",
        {"code": "print(open('data.txt').read())", "language": "python", "run_timeout": 30,
         "files": {"data.txt": "c29tZSBjb250ZW50"}},
        "some content\n", "",
    ),
    Sent(
        "sandbox-fusion",
        "scripts/client/src/sandbox_fusion/models.py: RunCodeRequest(code=..., language='python').dict()",
        {
            "compile_timeout": 10.0, "run_timeout": 10.0, "code": PRINT, "stdin": None, "language": "python",
            "files": {}, "fetch_files": [], "args": [],
        },
        "10\n", "",
    ),
    Sent(
        "ToRL",
        "verl/workers/rollout/vllm_rollout/vllm_rollout_spmd.py: code_interpreter_batch_call",
        {"code": FAIL, "language": "python"},
        "before\n", DIVISION,
    ),
]  # fmt: skip


def read_by_verl(answer: dict[str, Any]) -> tuple[str, str]:
    """verl's status of a run, and what its tool shows: sandbox_fusion/utils.py, _process_single_case."""
    result = answer["run_result"]
    rendered = result["stdout"] + result["stderr"] if result["status"] == "Finished" else "no stdout here"
    if answer["status"] == "Success":
        return "success", rendered
    assert answer["status"] == "Failed"
    assert answer["compile_result"] is None
    if result["status"] == "TimeLimitExceeded":
        return "timeout", rendered
    assert result["return_code"] != 0
    return "runtime_error", rendered


def read_by_torl(answer: dict[str, Any]) -> tuple[str, str]:
    """Return output and report as ToRL's rollout reads them: vllm_rollout_spmd.py, postproc."""
    result = answer["run_result"]
    if str(result["return_code"]) == "0" or len(str(result["stdout"])) != 0:
        return result["stdout"], "Done"
    return result["stdout"], result["stderr"].strip()


def read_by_verl_tool(answer: dict[str, Any]) -> str:
    """The first line of verl-tool's observation: sandbox_fusion.py, _format_result."""
    result = answer["run_result"]
    return f"Execution: {result['status']} (took {result.get('execution_time', 0):.4f}s)"
