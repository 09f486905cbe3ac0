"""Responses compared: side by side, token by token in a group, and the attempts at a problem over time."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from torl.components.text.answers import shown_reference
from torl.run.display.series import half_width
from torl_lab.view.columns import Array, Columns, IndexReader
from torl_lab.view.detail import MAX_TOKENS, cut, learner_numbers
from torl_lab.view.facets import Flag
from torl_lab.view.rows import Place, brief, facets_json, group_places, reading_rows
from torl_lab.view.tokens import sampled_tokens, token_arrays, token_texts

MAX_MEMBERS: Final = 64

_Symbols = npt.NDArray[np.int64]


@reading_rows()
def compare(places: Sequence[Place]) -> dict[str, Any]:
    """Return responses with the tree of their common prefixes as JSON.

    A node has the members that share it, its positions, its first token, and its text in runs of sampled and observed
    tokens. The first tokens of two children of a node differ. Without a vocabulary, characters replace tokens.

    Raises:
        RecordError: A row cannot be read, or is not a trajectory.
        LookupError: The index is being built.
    """
    places = places[:MAX_MEMBERS]
    rows = [place.read_row() for place in places]
    with places[0].reader.database() as database:
        texts = [
            # A record of another library may have a text and no tokens.
            None if row["text"] and not row["token_ids"] else token_texts(database, row["token_ids"][:MAX_TOKENS])
            for row in rows
        ]
    has_tokens = all(text is not None for text in texts)
    symbols, pieces, masks = [], [], []
    for row, text in zip(rows, texts, strict=True):
        if has_tokens and text is not None:
            symbols.append(np.array(row["token_ids"][:MAX_TOKENS], np.int64))
            pieces.append(text)
            masks.append(sampled_tokens(row)[:MAX_TOKENS])
        else:
            characters = cut(row["text"])
            symbols.append(np.array([ord(each) for each in characters], np.int64))
            pieces.append(list(characters))
            masks.append(np.ones(len(characters), np.bool_))
    nodes: list[dict[str, Any]] = []
    for parent, members, start, stop in prefix_tree(symbols):
        one = members[0]
        runs = list(_runs(pieces[one][start:stop], masks[one][start:stop].tolist()))
        node = {"parent": parent, "members": members, "start": start, "stop": stop, "runs": runs}
        nodes.append({**node, "first": pieces[one][start] if start < stop else ""})
    return {
        "unit": "token" if has_tokens else "character",
        "question": cut(rows[0].get("question", "")),
        "answer": cut(shown_reference(rows[0].get("reference_answer", ""))),
        "members": [
            {**facets_json(place), "answer": cut(row.get("answer")), "problem": row["problem"]}
            for place, row in zip(places, rows, strict=True)
        ],
        "nodes": nodes,
    }


def prefix_tree(sequences: Sequence[_Symbols]) -> Iterator[tuple[int | None, list[int], int, int]]:
    """Yield the nodes of the tree of common prefixes, parents first.

    Yields:
        The number of the parent, the sequences that share the node, and the node's first and last position, exclusive.
    """
    count = 0
    pending: list[tuple[int | None, list[int], int]] = [(None, list(range(len(sequences))), 0)]
    while pending:
        parent, members, start = pending.pop(0)
        stop = _common_length([sequences[member] for member in members], start)
        yield parent, members, start, stop
        children: dict[int, list[int]] = {}
        for member in members:
            if len(sequences[member]) > stop:
                children.setdefault(int(sequences[member][stop]), []).append(member)
        # A single sequence is read to its end, so that only shared nodes have children.
        pending += [(count, each, stop) for each in children.values()]
        count += 1


def _common_length(sequences: Sequence[_Symbols], start: int) -> int:
    """Return the length of the common prefix of sequences that are equal before `start`."""
    first = sequences[0]
    common = min(map(len, sequences))
    for other in sequences[1:]:
        different = np.flatnonzero(first[start:common] != other[start:common])
        if len(different):
            common = start + int(different[0])
    return common


def _runs(pieces: Sequence[str], mask: Sequence[bool]) -> Iterator[dict[str, Any]]:
    for is_sampled, run in groupby(zip(pieces, mask, strict=True), key=lambda pair: pair[1]):
        yield {"sampled": bool(is_sampled), "text": "".join(piece for piece, _ in run)}


class GroupTokens:
    """Reads the members of a group, and keeps those of the last one."""

    def __init__(self) -> None:
        self._key: object = None
        self._members: list[tuple[dict[str, Any], list[int], dict[str, Any]]] = []

    def at(self, place: Place, index: int) -> dict[str, Any]:
        """Return the token at `index` of each other member whose response is equal up to it.

        The members whose response has parted before are counted.

        Raises:
            RecordError: A row cannot be read, or is not a trajectory.
        """
        members = self._read(group_places(place))
        line = place.reference()["line"]
        own = next(ids for facets, ids, _ in members if facets["line"] == line)
        found, parted = [], 0
        for facets, ids, arrays in members:
            if facets["line"] == line:
                continue
            if ids[:index] != own[:index] or index >= len(ids):
                parted += 1
                continue
            texts = place.reader.token_texts(ids[index : index + 1])
            numbers = {name: float(values[index]) for name, values in arrays.items() if values[index] == values[index]}
            found.append({**facets, "id": ids[index], "text": texts[0] if texts else None, "numbers": numbers})
        return {"members": found, "parted": parted}

    @reading_rows()
    def _read(self, places: Sequence[Place]) -> list[tuple[dict[str, Any], list[int], dict[str, Any]]]:
        key = [(place.reference(), int(place.columns.revision)) for place in places]
        if self._key != key:
            members = []
            for place in places:
                row = place.read_row()
                recorded = learner_numbers(place, row).get(len(row.get("branches", ())))
                members.append((dict(brief(place)), list(row["token_ids"]), dict(token_arrays(row, recorded))))
            self._key, self._members = key, members
        return self._members


MAX_ATTEMPTS: Final = 5000
_MAX_LISTED: Final = 40


def problem_history(readers: Sequence[IndexReader], name: str) -> list[dict[str, Any]]:
    """Return all attempts at the problem with a key, or at all with an id, by target and in the order of their steps.

    Raises:
        LookupError: No target has the problem, or an index is being built.
    """
    found: dict[str, dict[str, Any]] = {}
    for reader in readers:
        columns = reader.columns()
        for number, problem in reader.problems(reader.problems_matching(name, exactly=True)[:_MAX_LISTED]).items():
            rows = np.flatnonzero(columns["problem"] == number)
            if not len(rows):
                continue  # of a file that was replaced
            order = np.lexsort((columns["sample"][rows], columns["set"][rows], columns["step"][rows]))
            shown = found.setdefault(problem.key, {**asdict(problem), "attempts": []})
            shown["attempts"] += [facets_json(Place(reader, columns, int(row))) for row in rows[order][:MAX_ATTEMPTS]]
    if not found:
        raise LookupError(f"no problem {name!r} in the index")
    return list(found.values())


def changes(reader: IndexReader) -> list[dict[str, Any]]:
    """Compare the first and the last attempts at each problem, for each set that was played at two steps.

    Returns:
        For each set: the steps, the number of problems that were played twice, the mean change of their accuracies with
        its interval of 95 % over problems, and the problems that were gained and lost, the largest changes first.
    """
    columns = reader.columns()
    found = []
    for number, name in sorted(columns.sets.items(), key=lambda each: each[1]):
        rows = np.flatnonzero((columns["set"] == number) & ((columns["flags"] & Flag.DAMAGED) == 0))
        steps = columns["step"][rows]
        if len(rows) and steps.min() < steps.max():
            between = {"set": name, "steps": [int(steps.min()), int(steps.max())]}
            found.append(between | _changes(reader, columns, rows))
    return found


def _changes(reader: IndexReader, columns: Columns, rows: Array) -> dict[str, Any]:
    problems, owner = np.unique(columns["problem"][rows], return_inverse=True)
    steps, correct = columns["step"][rows], (columns["flags"][rows] & Flag.CORRECT) != 0
    first = np.full(len(problems), np.iinfo(np.int32).max)
    last = np.full(len(problems), -1)
    np.minimum.at(first, owner, steps)
    np.maximum.at(last, owner, steps)
    before = _mean_by_owner(owner, correct, steps == first[owner], len(problems))
    after = _mean_by_owner(owner, correct, steps == last[owner], len(problems))
    twice = first < last
    difference = np.where(twice, after - before, 0.0)
    order = np.argsort(-np.abs(difference), kind="stable")
    lists = {"gained": order[difference[order] > 0], "lost": order[difference[order] < 0]}
    named = reader.problems([int(problems[each]) for members in lists.values() for each in members[:_MAX_LISTED]])
    played = difference[twice]
    return {
        "problems": int(twice.sum()),
        "before": float(before[twice].mean()) if len(played) else None,
        "after": float(after[twice].mean()) if len(played) else None,
        "half_width": half_width(played),
        "counts": {kind: len(members) for kind, members in lists.items()},
        **{
            kind: [
                {
                    "problem": problem.name,
                    "key": problem.key,
                    "before": float(before[index]),
                    "after": float(after[index]),
                    "steps": [int(first[index]), int(last[index])],
                }
                for index in members[:_MAX_LISTED]
                if (problem := named.get(int(problems[index]))) is not None  # unless the index is built again
            ]
            for kind, members in lists.items()
        },
    }


def _mean_by_owner(owner: Array, values: Array, chosen: Array, count: int) -> Array:
    totals = np.bincount(owner[chosen], values[chosen], count)
    numbers = np.bincount(owner[chosen], minlength=count)
    return np.divide(totals, np.maximum(numbers, 1))
