"""`torl data sources`: the public sets that torl knows by name."""

import argparse
import sys
from collections.abc import Iterator, Sequence

from torl.base.options import suggestion
from torl.components.data.public_sets import PublicSet, public_sets

_UNKNOWN = "not recorded"


def list_sources(argv: Sequence[str]) -> int:
    """Print the table of public sets, or all that is known of some, and return the exit status."""
    parser = argparse.ArgumentParser("torl data sources", description="List the public sets that torl knows by name.")
    parser.add_argument("names", metavar="SET", nargs="*", help="sets to describe in full (default: a table of all)")
    names = parser.parse_args(argv).names
    unknown = [name for name in names if name not in public_sets()]
    if unknown:
        hint = suggestion(unknown[0], list(public_sets()))
        print(f"error: unknown set {unknown[0]!r}{hint}; see torl data sources", file=sys.stderr)
        return 2
    lines = [_describe(public_sets()[name]) for name in names] if names else _table()
    print("\n".join(lines))
    return 0


def _table() -> Iterator[str]:
    for purpose in ("training", "evaluation"):
        sets = [public for public in public_sets().values() if public.purpose == purpose]
        yield f"{purpose:<17} {'rows':>9}  {'license':<24}{'address'}"
        for public in sets:
            rows = "?" if public.rows is None else f"{public.rows:,}"
            address = public.address or public.location or _UNKNOWN
            yield f"  {public.name:<15} {rows:>9}  {public.license or _UNKNOWN:<24}{address}"
        yield ""
    yield "torl data sources SET shows how its rows are read. Licenses are those of the sets' own pages."


def _describe(public: PublicSet) -> str:
    """Return all that is known of a set, a line for each."""
    layout = public.layout
    answer = f"derived from {layout.answer_from}" if layout.answer_from else layout.columns.get("answer", "answer")
    where = ", ".join(f"{column} = {' or '.join(values)}" for column, values in layout.where.items())
    described = {
        "title": public.title,
        "address": public.address or public.location,
        "revision": public.revision,
        "license": public.license,
        "files": ", ".join(layout.files) or f"split {layout.split or 'train'}",
        "rows": None if public.rows is None else f"{public.rows:,}",
        "question": layout.columns.get("problem", "problem or question, or verl's prompt"),
        "answer": answer if layout.columns or layout.answer_from else f"{answer}, or verl's reward_model.ground_truth",
        "choices": ", ".join(layout.choices),
        "removed": "\n".join(layout.instructions),
        "rows kept": where,
        "columns kept": "all" if layout.keep is None else ", ".join(layout.keep) or "none",
        "note": public.note,
    }
    lines = [
        f"  {label:<13}{_UNKNOWN if value is None else value}".replace("\n", "\n" + " " * 15)
        for label, value in described.items()
        if value != ""
    ]
    return "\n".join([public.name, *lines, ""])
