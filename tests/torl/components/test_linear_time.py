"""Texts that a model repeats until its limit: a search that takes minutes would block a run or a server."""

from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

from builders import failed, turn
from torl.components.data.dialogues import read_conversation
from torl.components.formats import FORMATS, ChatFormat
from torl.components.formats.observation import render_outcome
from torl.components.formats.results import invented_results
from torl.recipes.search_r1 import SearchR1Format
from torl_lab.exchange.messages import add_messages, new_row
from torl_lab.view.detail import segments
from torl_sandbox.notebook import dedented
from torl_sandbox.servers.submissions import extract_code


def imported(text: str) -> dict[str, Any]:
    row = new_row(problem="p", question="q", reference="1", reward=1.0)
    return add_messages(row, [{"role": "assistant", "content": text}])


SEARCHES: dict[str, tuple[Callable[[str], object], tuple[str, ...], int]] = {
    "completion": (
        lambda text: extract_code(f"```\n{text}"),
        ("\n", "\n \t", "```", "```\n", "```py\n", "\n```\n", " "),
        1_000_000,
    ),
    "dedented": (dedented, ("\n", " \n", "  x\n", "\r"), 16 << 20),
    "traceback": (lambda text: render_outcome(failed("E", traceback=text), "bare_traceback"), ('File "',), 200_000),
    "results": (
        lambda text: [*invented_results(text, ("```output", "```"), ends_with_call=True)],
        ("```output\n```",),
        500_000,
    ),
    "query": (lambda text: SearchR1Format().parse_calls(turn(text)), ("<search>",), 200_000),
    "import": (imported, ("```python",), 200_000),
    "segments": (lambda text: list(segments(imported(text))), ("```python",), 200_000),
    "dialogue": (
        lambda text: read_conversation("x", [{"from": "tool", "value": f"<tool_response>{text}"}], set()),
        ("\n", "</tool_response>\n"),
        200_000,
    ),
}


for family, form in FORMATS.items():
    if isinstance(form, type) and issubclass(form, ChatFormat):
        opening = "".join(form.visible_tokens)
        SEARCHES[f"calls of {family}"] = (
            lambda text, form=form: form().read_message(f"{text}</think>"),  # type: ignore[misc]
            (
                opening,
                f"</think>{opening}",
                f"{opening}{{}}",
                f'{opening}{{"a":"',
                '{"name":',
                '{"name": "a", "parameters": [',
            ),
            200_000,
        )


@pytest.mark.parametrize(("name", "unit"), [(name, unit) for name, (_, units, _) in SEARCHES.items() for unit in units])
def test_repeated_text_is_searched_in_linear_time(name: str, unit: str) -> None:
    search, _, length = SEARCHES[name]
    text = f"{unit * (length // len(unit))}x ?"
    started = process_time()
    search(text)
    assert process_time() - started < 1
