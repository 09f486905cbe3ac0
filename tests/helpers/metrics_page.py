"""The metrics that docs/reference/metrics.md defines."""

import re
from collections.abc import Iterable
from pathlib import Path

from torl.run.records.metric_names import split_evaluation

_PAGE = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


def undefined_metrics(names: Iterable[str]) -> set[str]:
    """The names that the page does not define."""
    defined = re.findall(r"^\| `([^`]+)` ", _PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    patterns = [re.sub("<[^>]+>", ".+", re.escape(name)) for name in defined if name != "evaluation/<set>/<name>"]
    plain = {name: (split_evaluation(name) or ("", name))[1] for name in set(names) - {"step", "time"}}
    return {name for name, short in plain.items() if not any(re.fullmatch(each, short) for each in patterns)}
