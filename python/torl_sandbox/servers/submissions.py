"""SandboxFusion's `/submit`: test a completion with the tests of the problem in the request.

Two types of its datasets are Python problems with tests: `CommonOJDataset` compares the output of the program for
given inputs, and `AutoEvalDataset` runs test code after the program. Source: SandboxFusion, sandbox/datasets/types.py,
and its documents "Common OJ" and "AutoEval".
"""

import asyncio
import math
import re
import secrets
from collections.abc import Iterator
from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, ValidationError
from pydantic_core import from_json

from torl_sandbox.pool import SandboxPool
from torl_sandbox.servers.fusion_api import Files, Json, RunCodeRequest, run_code

_STDIO, _TEST_CODE = "CommonOJDataset", "AutoEvalDataset"
_FENCE = "```"
_CLOSING = re.compile(r"\n[^\S\n]*```")
_PYTHON = {"python", "py", "python3"}
_MAIN = 'if __name__ == "__main__":'
_INSERT = "#<INSERT>"
_SECONDS = 20.0
_TOLERANCE = 1e-5  # relative, between numbers


def _decoded(value: Any) -> Any:
    return from_json(value) if isinstance(value, str) else value


# Parts of a problem may be encoded as JSON text.
_Decoded = BeforeValidator(_decoded)


class _Fields(BaseModel):
    model_config = ConfigDict(extra="allow")  # `test_info` has all fields of a case


class _Input(_Fields):
    stdin: str


class _Output(_Fields):
    stdout: str


class _Case(_Fields):
    input: _Input
    output: _Output


class _OutputProblem(BaseModel):
    """The `provided_data` of a problem whose tests compare the output."""

    test: Annotated[list[_Case], Field(min_length=1), _Decoded]


class _TestCode(BaseModel):
    code: str
    asset: Annotated[Files, BeforeValidator(lambda value: _decoded(value) or {})] = {}


class _TestCodeProblem(BaseModel):
    """The `provided_data` of a problem with test code."""

    test: Annotated[_TestCode, _Decoded]


_Problem = TypeVar("_Problem", bound=BaseModel)


class TestConfig(BaseModel):
    """The data of a problem, and how it is tested."""

    dataset_type: str | None = None
    language: str | None = None
    run_timeout: float | None = None
    provided_data: dict[str, JsonValue] | None = None
    extra: dict[str, Any] = {}


class SubmitRequest(BaseModel):
    """A request to test a completion."""

    dataset: str
    id: int | str
    completion: str
    config: TestConfig


async def submit(pool: SandboxPool, request: SubmitRequest) -> Json:
    """Test a completion.

    Raises:
        SandboxError: The host failed.
        ValueError: The type of the problem is unknown, or its data is missing or invalid.
    """
    config = request.config
    if config.dataset_type not in (_STDIO, _TEST_CODE):
        raise ValueError(f"config.dataset_type must be {_STDIO} or {_TEST_CODE}, got {config.dataset_type}")
    if config.provided_data is None:
        raise ValueError(f"the server has no dataset {request.dataset!r}: send the problem in config.provided_data")
    code = await asyncio.to_thread(extract_code, request.completion)  # seconds for many MiB
    run_tests = _by_output if config.dataset_type == _STDIO else _by_test_code
    tests, full_code = await run_tests(pool, code, config)
    return {
        "id": request.id,
        "accepted": all(test["passed"] for test in tests),
        "extracted_code": code,
        "full_code": full_code,
        "test_code": None,
        "tests": tests,
        "extracted_type": None,
        "extra": None,
    }


def extract_code(completion: str) -> str:
    """Return the first Python block, else the first block, else an empty string."""
    first = None
    for language, code in _blocks(completion):
        if language in _PYTHON:
            return code
        first = code if first is None else first
    return first or ""


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the language and the code of each fenced block, without empty lines at the end of a closed one.

    The time is linear in the length of any text.
    """
    position = 0
    while (fence := text.find(_FENCE, position)) >= 0 and (start := text.find("\n", fence) + 1):
        language = text[fence + len(_FENCE) : start - 1].strip().lower()
        closing = _CLOSING.search(text, start)
        if closing is None:
            yield language, text[start:]
            return
        code = text[start : closing.start()]
        end = len(code.rstrip())
        yield language, code[:end] + code[end:].partition("\n")[0]
        position = closing.end()


async def _by_output(pool: SandboxPool, code: str, config: TestConfig) -> tuple[list[Json], None]:
    """Run the test cases up to the first failure, or all of them if `run_all_cases`."""
    tests: list[Json] = []
    for case in _problem(_OutputProblem, config).test:
        answer = await _run(pool, code, config, stdin=case.input.stdin)
        passed = answer["status"] == "Success" and same_output(answer["run_result"]["stdout"], case.output.stdout)
        tests.append({"passed": passed, "exec_info": answer, "test_info": case.model_dump()})
        if not passed and not config.extra.get("run_all_cases"):
            break
    return tests, None


async def _by_test_code(pool: SandboxPool, code: str, config: TestConfig) -> tuple[list[Json], str]:
    """Run the test code in or after the program. With `append_flag`, it must reach its end."""
    test = _problem(_TestCodeProblem, config).test
    code = code.partition(_MAIN)[0]
    full_code = test.code.replace(_INSERT, code, 1) if _INSERT in test.code else f"{code}\n{test.code}"
    flag = secrets.token_hex(10) if config.extra.get("append_flag") else ""
    answer = await _run(pool, f"{full_code}\n\nprint({flag!r})" if flag else full_code, config, files=test.asset)
    passed = answer["status"] == "Success" and flag in answer["run_result"]["stdout"]
    return [{"passed": passed, "exec_info": answer, "test_info": None}], full_code


def _problem(kind: type[_Problem], config: TestConfig) -> _Problem:
    """Return the problem in `config.provided_data`.

    Raises:
        ValueError: The problem is invalid.
    """
    try:
        return kind.model_validate(config.provided_data)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(map(str, ("config.provided_data", *first["loc"])))
        raise ValueError(f"{field}: {first['msg']}") from error


async def _run(pool: SandboxPool, code: str, config: TestConfig, **fields: Any) -> Json:
    request = {"code": code, "language": config.language or "python", "run_timeout": config.run_timeout or _SECONDS}
    return await run_code(pool, RunCodeRequest.model_validate({**request, **fields}))


def same_output(printed: str, expected: str) -> bool:
    """Compare line by line, ignoring case, surrounding spaces and small differences of numbers."""
    lines, others = ([line.strip().lower() for line in text.strip().split("\n")] for text in (printed, expected))
    return len(lines) == len(others) and all(map(_same_line, lines, others))


def _same_line(line: str, other: str) -> bool:
    try:
        return line == other or math.isclose(float(line), float(other), rel_tol=_TOLERANCE)
    except ValueError:
        return False
