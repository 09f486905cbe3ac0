"""The Python blocks of the sandbox's pages run, and each statement has the value that its comment says."""

import ast
import re
from pathlib import Path
from textwrap import dedent
from types import CodeType, CoroutineType
from typing import Any

import pytest

from torl_sandbox import SandboxPool

ROOT = Path(__file__).parents[2]
LITERAL = re.compile(r"""("(?:[^"\\]|\\.)*"|\{[^}]*\})""")


async def run(code: CodeType, names: dict[str, Any]) -> Any:
    result = eval(code, names)
    return await result if isinstance(result, CoroutineType) else result


@pytest.mark.parametrize("page", ["docs/sandbox.md", "crates/sandbox/README.md"])
async def test_statements_have_the_values_of_their_comments(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    first, *others = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    header, _, body = first.partition("with SandboxPool")
    assert header == "from torl_sandbox import SandboxPool\n\n"
    compared = 0
    with SandboxPool(workers=1, cpu_seconds=10) as pool:
        names: dict[str, Any] = {"pool": pool}
        for line in (dedent(body.partition("\n")[2]) + "".join(others)).splitlines():
            statement = ast.parse(line.replace('b"..."', 'b""')).body[0]
            comment = LITERAL.search(line.partition("  # ")[2])
            tree: ast.Module | ast.Expression = ast.Module([statement], [])
            if isinstance(statement, ast.Expr):
                tree = ast.Expression(statement.value)
            mode = "eval" if isinstance(tree, ast.Expression) else "exec"
            value = await run(compile(tree, page, mode, flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
            if comment is not None:
                shown = getattr(value, "exception_line", value) if "exception_line" in line else value
                assert shown == ast.literal_eval(comment[0]), line
                compared += 1
    assert compared == 6
