"""What an audit says of one thing that it compared."""

from dataclasses import dataclass, field

from torl.records.rows import TrajectoryRecord

_MAX_SHOWN = 3  # examples of each kind


@dataclass(slots=True)
class Check:
    """One thing that was compared: how often, how often it was off, and how far."""

    name: str
    compared: int = 0
    wrong: int = 0
    largest: float = 0.0  # difference
    mean: float | None = None
    note: str = ""
    examples: list[str] = field(default_factory=list)

    def add(self, right: bool, where: str, difference: float = 0.0) -> None:
        """Count one comparison."""
        self.compared += 1
        self.largest = max(self.largest, difference)
        if not right:
            self.wrong += 1
            if len(self.examples) < _MAX_SHOWN:
                self.examples.append(where)

    def add_mismatch(self, record: TrajectoryRecord, problem: str | None) -> None:
        """Count one trajectory, and what is off in it; None if nothing is."""
        self.add(problem is None, f"{place_of(record)}: {problem}")

    def __str__(self) -> str:
        verdict = "not checked" if not self.compared else "ok" if not self.wrong else "WRONG"
        mean = "" if self.mean is None else f", mean {self.mean:.2g}"
        line = (
            f"{self.name:<12} {verdict:<12} {self.wrong} of {self.compared} off, largest gap {self.largest:.2g}{mean}"
        )
        return "\n".join([line + (f" ({self.note})" if self.note else ""), *(f"    {text}" for text in self.examples)])


def place_of(record: TrajectoryRecord) -> str:
    """Where a trajectory is found."""
    return f"step {record.step}, {record.trajectory.group_id}, sample {record.trajectory.sample_index}"
