"""Writing problems as the files that `load_problems` reads."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from torl.types import Problem


def encode_problems(problems: Iterable[Problem]) -> bytes:
    """JSON lines: id, problem and answer, then what is known besides."""
    return encode_rows(
        {"id": problem.id, "problem": problem.question, "answer": problem.answer, **problem.metadata}
        for problem in problems
    )


def encode_rows(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Plain JSON, an object on each line."""
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
