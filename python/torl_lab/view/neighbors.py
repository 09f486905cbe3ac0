"""One token of a response in the other members of its group."""

from collections.abc import Sequence
from typing import Any

from torl_lab.view.detail import learner_numbers, token_texts
from torl_lab.view.rows import Place, brief, group_places, reading_rows
from torl_lab.view.token_colors import token_arrays


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
            with place.reader.database() as database:
                texts = token_texts(database, ids[index : index + 1])
            numbers = {name: float(values[index]) for name, values in arrays.items() if values[index] == values[index]}
            found.append({**facets, "id": ids[index], "text": texts[0] if texts else None, "numbers": numbers})
        return {"members": found, "parted": parted}

    def _read(self, places: Sequence[Place]) -> list[tuple[dict[str, Any], list[int], dict[str, Any]]]:
        key = [(place.reference(), int(place.columns.revision)) for place in places]
        if self._key != key:
            members = []
            with reading_rows():
                for place in places:
                    row = place.read_row()
                    recorded = learner_numbers(place, row).get(len(row.get("branches", ())))
                    members.append((dict(brief(place)), list(row["token_ids"]), dict(token_arrays(row, recorded))))
            self._key, self._members = key, members
        return self._members
