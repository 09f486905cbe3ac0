"""The pages of the site: each is in the navigation, quotes real messages, and its notebook is that of its script."""

import ast
import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SCRIPTS = sorted((DOCS / "tutorials").glob("*.py"))
SECTIONS = ["Start", "Tutorials", "Recipes", "Guides", "Concepts", "Reference", "Evidence"]


def test_index_lists_every_page_once_in_its_section() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    toctrees = re.findall(r"```\{toctree\}\n:caption: (\w+)\n:hidden:\n\n(.*?)\n```", index, flags=re.DOTALL)
    assert [caption for caption, _ in toctrees] == SECTIONS
    listed = [name for _, names in toctrees for name in names.split()]
    folders = ("*.md", "evidence/*.md", "reference/*.md", "tutorials/*.py")
    pages = {str(page.relative_to(DOCS).with_suffix("")) for each in folders for page in DOCS.glob(each)}
    assert sorted(listed) == sorted(pages - {"index"})


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_notebook_has_the_cells_of_its_script_and_no_error(script: Path) -> None:
    """If it fails: make tutorials."""
    notebook = json.loads(script.with_suffix(".ipynb").read_text(encoding="utf-8"))
    code = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    parts = re.split(r"^# %%(.*)\n", script.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    assert code == [text.strip() for kind, text in zip(parts[::2], parts[1::2], strict=True) if not kind]
    outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
    assert outputs
    assert "error" not in {output["output_type"] for output in outputs}


def literal(node: ast.AST) -> str:
    """Return the text of a string, with ... for each formatted value."""
    if isinstance(node, ast.JoinedStr):
        return "".join(literal(part) or "..." for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_every_message_of_the_page_of_errors_is_in_the_code() -> None:
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    messages = re.findall(r"^\| `(.+?)` \|", page, flags=re.MULTILINE)
    assert len(messages) > 20
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "python").rglob("*.py")]
    texts = "\n".join(sorted({literal(node) for tree in trees for node in ast.walk(tree)}))
    for message in messages:
        said = re.sub(r"^[a-z.]+: ", "", message)  # the setting, which pin_commits and others add to a message
        fragments = [part.strip() for part in said.split("...") if part.strip(" :;()=.")]
        pattern = r"[^\n]*".join(map(re.escape, fragments))
        assert re.search(pattern, texts), message
