"""The rows of the papers' tables, as printed."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

_ROUNDING = 0.1  # printed numbers have one decimal, so a correct mean differs by less


@dataclass(frozen=True, slots=True)
class PaperRow:
    """A row of a paper's table."""

    model: str
    measure: str
    values: Mapping[str, float]
    """Accuracy in percent by problem set."""
    average: float | None = None
    """Printed average, if any."""
    with_tools: bool = True
    trained_by_paper: bool = False
    """Whether the paper trained the model. Differences are shown to these rows only."""

    @property
    def mean(self) -> float:
        """Mean of the printed values."""
        return sum(self.values.values()) / len(self.values)

    @property
    def note(self) -> str | None:
        """A note if the printed average differs from the mean of the printed values, else None."""
        if self.average is None or abs(self.average - self.mean) < _ROUNDING:
            return None
        return f"{self.model}: the source prints {self.average:.1f}; the mean of its numbers is {self.mean:.1f}"


def _torl(model: str, *numbers: float | None, average: float | None, tools: bool, trained: bool = False) -> PaperRow:
    sets = ("aime24", "aime25", "math500", "olympiadbench", "amc23")
    values = {name: number for name, number in zip(sets, numbers, strict=True) if number is not None}
    return PaperRow(model, "greedy", values, average, tools, trained)


PAPERS: Mapping[str, tuple[PaperRow, ...]] = MappingProxyType(
    {
        # ToRL's README at cb78cf1 (table 3 of the paper).
        "torl": (
            _torl("Qwen2.5-Math-1.5B-Instruct", 10.0, 10.0, 66.0, 31.0, 62.5, average=35.9, tools=False),
            _torl("Qwen2.5-Math-1.5B-Instruct-TIR", 13.3, 13.3, 73.8, 41.3, 55.0, average=41.3, tools=True),
            _torl("ToRL-1.5B", 26.7, 26.7, 77.8, 44.0, 67.5, average=48.5, tools=True, trained=True),
            _torl("Qwen2.5-Math-7B-Instruct", 10.0, 16.7, 74.8, 32.4, 65.0, average=39.8, tools=False),
            _torl("Qwen2.5-Math-7B-Instruct-TIR", 26.7, 16.7, 78.8, 45.0, 70.0, average=47.4, tools=True),
            _torl("SimpleRL-Zero", 33.3, 6.7, 77.2, 37.6, 62.5, average=43.5, tools=False),
            _torl("rStar-Math-7B", 26.7, None, 78.4, 47.1, 47.5, average=None, tools=False),
            _torl("Eurus-2-7B-PRIME", 26.7, 13.3, 79.2, 42.1, 57.4, average=43.1, tools=False),
            _torl("ToRL-7B", 43.3, 30.0, 82.2, 49.9, 75.0, average=62.1, tools=True, trained=True),
        ),
        # ZeroTIR's headline (PPO, N = 20; multiples of 1/30: one response to a problem), and its authors' README.
        "zerotir": (
            PaperRow(
                "ZTRL-7B, N = 20", "greedy", {"aime24": 50.0, "aime25": 26.7, "math500": 80.2}, trained_by_paper=True
            ),
            PaperRow("ZTRL-0727-7B", "avg@32", {"aime25": 29.99, "hmmt_feb25": 22.08}, trained_by_paper=True),
            PaperRow(
                "ZTRL-0727-7B", "greedy", {"aime25": 32.81, "amc23": 80.0, "math500": 84.6}, trained_by_paper=True
            ),
        ),
    }
)
"""The rows of each paper, by the name of its suite."""
