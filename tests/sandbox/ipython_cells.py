"""IPython's output of cells: reads lists of cells as JSON, and writes for each list the output of its last cell.

    python ipython_cells.py < notebooks.json > recorded.json

where IPython 8.12.3 is installed, and the guest's numpy, pandas and sympy. Each list has a separate process.
"""

import contextlib
import io
import json
import multiprocessing
import sys
from typing import Any


def shown(cells: list[str]) -> dict[str, Any]:
    """The nonempty fields among `stdout`, `stderr` and `value`."""
    from IPython.core import interactiveshell  # type: ignore[import-not-found]
    from traitlets.config import Config  # type: ignore[import-not-found]

    config = Config()
    config.HistoryManager.enabled = False
    shell = interactiveshell.InteractiveShell.instance(config=config, colors="NoColor")
    shell.kernel = None  # by this name pandas knows that it is in a notebook
    outputs: dict[str, Any] = {}
    shell.displayhook.write_output_prompt = lambda: None
    shell.displayhook.write_format_data = lambda texts, *_: outputs.update(value=texts["text/plain"])
    for cell in cells:
        outputs.clear()
        with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
            shell.run_cell(cell, store_history=True)
    outputs.update(stdout=out.getvalue(), stderr=err.getvalue())
    fields = ("stdout", "stderr", "value")
    return {name: outputs[name] for name in fields if outputs.get(name) not in ("", None)}


def main() -> None:
    """Record."""
    with multiprocessing.get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        lists = [recorded["cells"] for recorded in json.load(sys.stdin)]
        outputs = pool.map(shown, lists, chunksize=1)
    whole = [{"cells": cells, **outcome} for cells, outcome in zip(lists, outputs, strict=True)]
    json.dump(whole, sys.stdout, indent=1, ensure_ascii=False)
    print()


if __name__ == "__main__":
    main()
