"""Filters, counts and orders of trajectories, over the columns of one or several targets."""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

import numpy as np

from torl_lab.view.columns import Array, Columns, IndexReader
from torl_lab.view.facets import FINISHES, FLAGS, STATUSES

MAX_VALUES: Final = 60
"""Maximum number of values of a facet that are counted."""

NUMBERS: Final = ("step", "reward", "advantage", "calls", "failed", "tokens", "sampled", "turns", "seconds", "age")
"""Facets with ranges."""
SORTS: Final = ("step", "reward", "advantage", "calls", "failed", "tokens", "seconds", "sample", "age")


@dataclass(frozen=True, slots=True)
class Query:
    """The conditions that trajectories meet. Conditions on different facets must all hold."""

    sets: tuple[str, ...] = ()  # names; all if empty
    flags: Mapping[str, bool] = field(default_factory=dict)  # required values by name
    ranges: Mapping[str, tuple[float | None, float | None]] = field(default_factory=dict)  # None leaves an end open
    statuses: tuple[str, ...] = ()  # outcomes: some call has one of them
    finishes: tuple[str, ...] = ()  # reasons
    signs: tuple[str, ...] = ()  # of the advantage (`SIGNS`)
    problem: str | None = None  # key of a problem, or the id of one or several
    problem_text: str = ""  # in the id or the question of the problem
    words: str = ""  # in the response


@dataclass(frozen=True)
class Matches:
    """The rows of one target that meet a query.

    Attributes:
        reader: Reader of the target.
        columns: Columns of the target.
        conditions: Mask of the rows that meet the condition on a facet, for each facet with a condition.
        failures: Number of conditions that each row fails.
    """

    reader: IndexReader
    columns: Columns
    conditions: Mapping[str, Array]
    failures: Array

    @cached_property
    def mask(self) -> Array:
        """Mask of the rows that meet all conditions."""
        return np.equal(self.failures, 0)

    def except_for(self, facet: str) -> Array:
        """Mask of the rows that meet all conditions on other facets."""
        own = self.conditions.get(facet)
        return self.mask if own is None else self.mask | ((self.failures == 1) & ~own)

    def values(self, name: str, facet: str | None = None) -> Array:
        """Return a number of the rows that meet all conditions, except those on `facet` (default: `name`)."""
        mask = self.except_for(name if facet is None else facet)
        values = number_of(self.columns, name)
        return values if mask.all() else values[mask]


def number_of(columns: Columns, name: str) -> Array:
    """Return a facet with ranges; `age` is the number of versions between the oldest policy and the step."""
    if name == "age":
        return np.where(columns["oldest"] < 0, 0, columns["step"] - columns["oldest"])
    return columns[name]


def match(reader: IndexReader, query: Query) -> Matches:
    """Apply a query to a target.

    Raises:
        ValueError: A name in the query is unknown, or words cannot be searched.
        LookupError: The index is being built.
    """
    columns = reader.columns()
    conditions = dict(_conditions(reader, columns, query)) if len(columns) else {}
    failures = np.zeros(len(columns), np.uint8)
    for mask in conditions.values():
        failures += ~mask
    return Matches(reader, columns, conditions, failures)


def _conditions(reader: IndexReader, columns: Columns, query: Query) -> Iterator[tuple[str, Array]]:
    if query.sets:
        wanted = [number for number, name in columns.sets.items() if name in query.sets]
        yield "set", _member(columns["set"], wanted)
    for name, value in query.flags.items():
        yield name, ((columns["flags"] & FLAGS[_known(name, FLAGS, "facet")]) != 0) == value
    for name, (low, high) in query.ranges.items():
        values = number_of(columns, _known(name, NUMBERS, "number"))
        mask = np.ones(len(columns), np.bool_) if low is None else values >= low
        yield name, mask if high is None else mask & (values <= high)
    if query.statuses:
        bits = sum({1 << STATUSES.index(_known(each, STATUSES, "outcome")) for each in query.statuses})
        yield "status", (columns["statuses"] & bits) != 0
    if query.finishes:
        wanted = [FINISHES.index(_known(each, FINISHES, "reason")) for each in query.finishes]
        yield "finish", _member(columns["finish"], wanted)
    if query.signs:
        masks = [SIGNS[_known(sign, SIGNS, "facet")](columns["advantage"]) for sign in query.signs]
        yield "sign", np.logical_or.reduce(masks)
    if query.problem is not None:
        yield "problem", _member(columns["problem"], reader.problems_matching(query.problem, exactly=True))
    if query.problem_text:
        yield "problem_text", _member(columns["problem"], reader.problems_matching(query.problem_text))
    if query.words:
        yield "words", reader.rows_with_words(query.words, columns)


SIGNS: Final[Mapping[str, Callable[[Array], Array]]] = {
    "positive": lambda advantages: advantages > 0,
    "negative": lambda advantages: advantages < 0,
    "zero": lambda advantages: advantages == 0,
    "none": np.isnan,  # outside the batch
}


def _member(values: Array, wanted: Sequence[int]) -> Array:
    return values == wanted[0] if len(wanted) == 1 else np.isin(values, wanted)


def _known(name: str, names: Collection[str], kind: str) -> str:
    if name not in names:
        raise ValueError(f"unknown {kind} {name!r}; expected one of: {', '.join(names)}")
    return name


# --- counts ---------------------------------------------------------------------------------------------


def count_facets(matches: Sequence[Matches]) -> dict[str, Any]:
    """Count the values of each facet among the rows that meet the conditions on the other facets.

    Returns:
        For sets, outcomes, finish reasons and signs, counts by name; for flags, counts of true and false; for calls and
        steps, counts by number; for rewards, counts by value, or None if there are more than `MAX_VALUES`.
    """
    counts: dict[str, Any] = {"set": Counter(), "sign": dict.fromkeys(SIGNS, 0)}
    counts |= {"status": dict.fromkeys(STATUSES, 0), "finish": dict.fromkeys(FINISHES, 0)}
    counts |= {name: [0, 0] for name in FLAGS}
    matches = [each for each in matches if len(each.columns)]
    for each in matches:
        for number, count in enumerate(np.bincount(each.values("set"))):
            if count:
                counts["set"][each.columns.sets.get(number, "?")] += int(count)
        statuses = np.bincount(each.values("statuses", "status"), minlength=256)
        for bit, name in enumerate(STATUSES):
            counts["status"][name] += int(statuses[(np.arange(256) >> bit & 1) == 1].sum())
        for number, count in enumerate(np.bincount(each.values("finish"))):
            counts["finish"][FINISHES[number]] += int(count)
        advantages = each.values("advantage", "sign")
        for name, sign in SIGNS.items():
            counts["sign"][name] += int(np.count_nonzero(sign(advantages)))
        flags = np.bincount(each.values("flags", ""), minlength=512)
        for name, flag in FLAGS.items():
            of_flag = flags
            if name in each.conditions:
                of_flag = np.bincount(each.values("flags", name), minlength=512)
            is_set = (np.arange(len(of_flag)) & flag) != 0
            counts[name][0] += int(of_flag[~is_set].sum())
            counts[name][1] += int(of_flag[is_set].sum())
    for name, count_parts in (("calls", _count_values), ("step", _histogram), ("reward", _count_values)):
        counts[name] = count_parts([each.values(name) for each in matches])
    return counts


def _count_values(parts: Sequence[Array]) -> list[tuple[float, int]] | None:
    values = np.concatenate(parts) if parts else np.zeros(0)
    found = np.unique(values[:4096])
    if len(found) > MAX_VALUES:
        return None
    # Without sorting all of them: a few values are usually all values.
    places = np.minimum(np.searchsorted(found, values), len(found) - 1)
    if len(found) and (found[places] == values).all():
        counts = np.bincount(places, minlength=len(found))
    else:
        found, counts = np.unique(values, return_counts=True)
    return None if len(found) > MAX_VALUES else list(zip(found.astype(float).tolist(), counts.tolist(), strict=True))


def _histogram(parts: Sequence[Array], bins: int = 48) -> list[tuple[int, int, int]]:
    """Return the first and last value and the number of rows of each bin of integers."""
    values = np.concatenate(parts) if parts else np.zeros(0, np.int32)
    if not len(values):
        return []
    low = int(values.min())
    width = -(-(int(values.max()) - low + 1) // bins)
    counts = np.bincount((values - low) // width)
    return [(low + index * width, low + (index + 1) * width - 1, int(count)) for index, count in enumerate(counts)]


# --- order ----------------------------------------------------------------------------------------------


def ordered(matches: Sequence[Matches], sort: str, *, descending: bool, count: int | None = None) -> Array:
    """Return the first matching rows in an order, as pairs of the index in `matches` and the row.

    Equal rows keep the order of targets and files; rows without the number are last.

    Args:
        matches: Matches of each target.
        sort: Number that orders the rows, one of `SORTS`.
        descending: Whether the largest numbers are first.
        count: Number of rows; all if unset.

    Raises:
        ValueError: The order is unknown.
    """
    name = _known(sort, SORTS, "order")
    found = [np.flatnonzero(each.mask) for each in matches]
    rows = np.concatenate([*found, np.zeros(0, np.int64)]).astype(np.int64)
    owners = np.repeat(np.arange(len(found)), list(map(len, found)))
    parts = [number_of(each.columns, name)[chosen] for each, chosen in zip(matches, found, strict=True)]
    keys = np.concatenate(parts) if parts else np.zeros(0)
    keys = -keys.astype(np.int64 if keys.dtype.kind in "iu" else np.float64) if descending else keys
    if keys.dtype.kind == "f":
        keys = np.where(np.isnan(keys), np.inf, keys)
    order = _smallest(keys, len(keys) if count is None else count)
    return np.stack([owners[order], rows[order]], axis=1)


def _smallest(keys: Array, count: int) -> Array:
    """Return the positions of the smallest keys in order; equal keys keep their order."""
    if count >= len(keys):
        return np.argsort(keys, kind="stable")
    bound = np.partition(keys, count)[count]
    smaller = np.flatnonzero(keys < bound)
    equal = np.flatnonzero(keys == bound)[: count - len(smaller)]
    candidates = np.concatenate([smaller, equal])
    return np.take(candidates, np.argsort(keys[candidates], kind="stable"))
