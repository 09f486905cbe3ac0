"""`write_tutorials.py [NAME ...]`: execute the tutorials as notebooks, and write them with their output.

A tutorial is a script of cells, `docs/tutorials/NAME.py`; the notebook next to it is generated. The site shows its
output, so that building the site executes nothing.
"""

import os
import re
import sys
import tempfile
from pathlib import Path

import jupytext
import nbformat
from nbclient import NotebookClient

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "tutorials"
_CELL_SECONDS = 3600
_COLOR = re.compile(r"\x1b\[[\d;]*m")


def main() -> None:
    """Write the notebooks of the named tutorials, or of all."""
    names = sys.argv[1:] or sorted(script.stem for script in FOLDER.glob("*.py"))
    for name in names:
        print(name, flush=True)
        nbformat.write(execute(FOLDER / f"{name}.py"), FOLDER / f"{name}.ipynb")


def execute(script: Path) -> nbformat.NotebookNode:
    """Return the executed notebook of a script; it runs in a temporary directory.

    Raises:
        CellExecutionError: A cell raised an exception.
    """
    notebook = jupytext.read(script, fmt="py:percent")
    with tempfile.TemporaryDirectory(prefix="torl-tutorial-") as directory:
        os.environ["CUDA_VISIBLE_DEVICES"] = ""  # the output is that of a machine without GPUs
        NotebookClient(
            notebook, timeout=_CELL_SECONDS, record_timing=False, resources={"metadata": {"path": directory}}
        ).execute()
    for index, cell in enumerate(notebook.cells):
        cell.id = f"cell-{index}"
        cell.metadata = {}
        if cell.cell_type == "code":
            cell.outputs = _tidy(cell.outputs)
    notebook.metadata = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
    return notebook


def _tidy(outputs: list[nbformat.NotebookNode]) -> list[nbformat.NotebookNode]:
    """Join the lines of torl's console to one text, and drop the warnings of libraries, which name local paths."""
    tidy: list[nbformat.NotebookNode] = []
    for output in outputs:
        if output.output_type == "stream" and output.name == "stderr":
            continue
        if output.output_type == "display_data":
            output = nbformat.v4.new_output("stream", name="stdout", text=_COLOR.sub("", output.data["text/plain"]))
        if output.output_type == "stream" and tidy and tidy[-1].output_type == "stream":
            tidy[-1].text += output.text
        else:
            tidy.append(output)
    return tidy


if __name__ == "__main__":
    main()
