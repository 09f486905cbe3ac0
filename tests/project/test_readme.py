"""The Python of README.md, run unchanged."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A script without a guard of `__main__`, and a loop that runs already, as a notebook has one: both at once.
NOTEBOOK = """
import asyncio

LINES = {lines!r}


async def cell():
    exec(compile(LINES, "README.md", "exec"), {{"__name__": "__main__"}})


asyncio.run(cell())
"""


def python_of_the_readme() -> str:
    """Its only block of Python; a model's output is in a block of text."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    text = re.sub(r"^````.*?^````$", "", text, flags=re.MULTILINE | re.DOTALL)
    blocks = re.findall(r"^```python\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 1
    return str(blocks[0])


@pytest.mark.timeout(600)
def test_the_python_of_the_readme_runs_in_a_notebook_and_in_a_script(tmp_path: Path) -> None:
    script = tmp_path / "notebook.py"
    script.write_text(NOTEBOOK.format(lines=python_of_the_readme()), encoding="utf-8")
    ended = subprocess.run([sys.executable, script], cwd=tmp_path, capture_output=True, text=True, timeout=550)
    assert ended.returncode == 0, ended.stderr[-4000:]
    assert len(re.findall(r"^(?:True|False) [01] calls$", ended.stdout, flags=re.MULTILINE)) == 4, ended.stdout
    # The remainder of 2**100 by 7 from the sandbox, then the grader's word for 1/2 and 0.5.
    assert ended.stdout.rstrip().splitlines()[-3:] == ["2", "", "True"], ended.stdout
