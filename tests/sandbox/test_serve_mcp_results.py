"""Runs as results of an MCP tool."""

from typing import Any

import pytest
from mcp.types import EmbeddedResource, TextContent

from torl_sandbox import Execution, OutcomeStatus
from torl_sandbox.__main__ import _parser
from torl_sandbox.execution import render_transcript
from torl_sandbox.servers.mcp_server import result_of


def shown(status: OutcomeStatus, stdout: str, cpu_seconds: float = 0.0, wall_seconds: float = 0.0) -> tuple[str, Any]:
    outcome = Execution(status, stdout, "", None, None, None, cpu_seconds, wall_seconds, 0)
    result = result_of(outcome, "name", 30.0, 0)
    content: Any = result.content[0]
    return content.text.removesuffix("\n[session name]"), result.structured_content


@pytest.mark.parametrize(
    ("cpu_seconds", "wall_seconds", "said"),
    [
        (30.01, 31.0, "[time limit of 30 s of CPU time exceeded]"),
        (12.0, 90.2, "[stopped after 90 s, because the machine is busy]"),
    ],
)
def test_a_timeout_names_its_limit(cpu_seconds: float, wall_seconds: float, said: str) -> None:
    assert shown(OutcomeStatus.TIMEOUT, "first\n", cpu_seconds, wall_seconds)[0] == f"first\n{said}"


@pytest.mark.parametrize("stdout", ["", "\n", "  \n"])
@pytest.mark.parametrize(
    ("status", "line", "said"),
    [
        (OutcomeStatus.OK, None, "[no output]"),
        (OutcomeStatus.ERROR, "SystemExit: 3", "SystemExit: 3"),
        (OutcomeStatus.MEMORY, None, "[memory]"),
        (OutcomeStatus.CRASH, None, "[crash]"),
    ],
)
def test_no_block_is_blank(status: OutcomeStatus, line: str | None, said: str, stdout: str) -> None:
    """Providers of models refuse blank blocks. An empty file is named in the text."""
    type_name = line and line.partition(":")[0]
    outcome = Execution(status, stdout, "", type_name, line, None, 0.0, 0.0, 0, files={"a.txt": b"", "b.txt": b"1"})
    named = "\n[file a.txt, 0 bytes]\n[file b.txt, 1 bytes]"
    text, *resources = result_of(outcome, None, 30.0, 100).content
    assert isinstance(text, TextContent)
    assert text.text.strip() == said + named
    assert [resource.resource.text for resource in resources if isinstance(resource, EmbeddedResource)] == ["1"]
    assert render_transcript(outcome).strip() == said


def test_long_text_is_cut_in_the_middle_and_whole_in_the_structured_content() -> None:
    text, structured = shown(OutcomeStatus.OK, f"{'a' * 500_000}{'z' * 500_000}")
    assert text == f"{'a' * 10_000}\n[... 980000 characters omitted ...]\n{'z' * 10_000}"
    assert len(structured["stdout"]) == 1_000_000
    assert shown(OutcomeStatus.OK, "a" * 20_000)[0] == "a" * 20_000


def test_assistants_wait_less_than_programs() -> None:
    limits = [_parser().parse_args([command]).cpu_seconds for command in ("mcp", "serve")]
    assert limits == [30.0, 60.0]
