"""The rows of the papers' tables, as printed."""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
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
    with_code: float | None = None
    """Printed percentage of the responses with code, if any."""
    code_blocks: float | None = None
    """Printed number of code blocks per response, if any."""
    trained_by_paper: bool = False
    """Whether the paper trained the model. Differences are shown to these rows only."""
    comment: str | None = None
    """A note on the printed numbers, if any."""

    @property
    def note(self) -> str | None:
        """A note if the printed average differs from the mean of the printed values, else None."""
        mean = fmean(self.values.values())
        if self.average is None or abs(self.average - mean) < _ROUNDING:
            return None
        return f"{self.model}: the source prints {self.average:.1f}; the mean of its numbers is {mean:.1f}"


SIZES: Mapping[str, int] = MappingProxyType(
    {
        **dict.fromkeys(("aime24", "aime25", "hmmt_feb24", "hmmt_feb25", "cmimc"), 30),
        "math500": 500,
        "olympiadbench": 675,
        "amc23": 40,
        "olymmath": 400,
    }
)
"""Number of problems of the papers' sets."""


def _torl(model: str, *numbers: float | None, average: float | None, trained: bool = False) -> PaperRow:
    sets = ("aime24", "aime25", "math500", "olympiadbench", "amc23")
    values = {name: number for name, number in zip(sets, numbers, strict=True) if number is not None}
    return PaperRow(model, "greedy", values, average, trained_by_paper=trained)


def _zerotir(model: str, *numbers: float, average: float, blocks: float, with_code: float | None = None) -> PaperRow:
    sets = ("aime25", "aime24", "hmmt_feb25", "hmmt_feb24", "cmimc", "olymmath", "math500")
    values = dict(zip(sets, numbers, strict=True))
    return PaperRow(model, "greedy", values, average, with_code, blocks, trained_by_paper=True)


PAPERS: Mapping[str, tuple[PaperRow, ...]] = MappingProxyType(
    {
        # ToRL's README at cb78cf1 (table 3 of the paper).
        "torl": (
            _torl("Qwen2.5-Math-1.5B-Instruct", 10.0, 10.0, 66.0, 31.0, 62.5, average=35.9),
            _torl("Qwen2.5-Math-1.5B-Instruct-TIR", 13.3, 13.3, 73.8, 41.3, 55.0, average=41.3),
            _torl("ToRL-1.5B", 26.7, 26.7, 77.8, 44.0, 67.5, average=48.5, trained=True),
            _torl("Qwen2.5-Math-7B-Instruct", 10.0, 16.7, 74.8, 32.4, 65.0, average=39.8),
            _torl("Qwen2.5-Math-7B-Instruct-TIR", 26.7, 16.7, 78.8, 45.0, 70.0, average=47.4),
            _torl("SimpleRL-Zero", 33.3, 6.7, 77.2, 37.6, 62.5, average=43.5),
            _torl("rStar-Math-7B", 26.7, None, 78.4, 47.1, 47.5, average=None),
            _torl("Eurus-2-7B-PRIME", 26.7, 13.3, 79.2, 42.1, 57.4, average=43.1),
            _torl("ToRL-7B", 43.3, 30.0, 82.2, 49.9, 75.0, average=62.1, trained=True),
        ),
        # ZeroTIR's tables 1 and 2 as far as they are known here: 7 of their 27 rows, in which every value is a whole
        # number of problems: one response to each. The rows of ZTRL-0727-7B are of its authors' README.
        "zerotir": (
            _zerotir("ZTRL-1.5B (PPO), N = 0", 10.0, 3.3, 0.0, 0.0, 3.3, 2.0, 55.8, average=10.6, blocks=0.0),
            _zerotir("ZTRL-1.5B (PPO), N = 2", 3.3, 3.3, 0.0, 0.0, 3.3, 1.25, 60.6, average=10.3, blocks=0.073),
            _zerotir("ZTRL-1.5B (PPO), N = 4", 10.0, 20.0, 10.0, 0.0, 10.0, 5.0, 59.4, average=16.3, blocks=2.161),
            _zerotir("ZTRL-1.5B (PPO), N = 20", 13.3, 13.3, 10.0, 0.0, 13.3, 7.75, 62.6, average=17.2, blocks=4.090),
            _zerotir(
                "ZTRL-7B (PPO), trained with N = 0, N = 4",
                *(26.7, 13.3, 13.3, 6.7, 10.0, 8.2, 80.6),
                average=22.7,
                blocks=0.143,
            ),
            _zerotir(
                "ZTRL-7B (PPO), N = 20",
                *(26.7, 50.0, 10.0, 20.0, 16.7, 13.5, 80.2),
                average=31.0,
                blocks=3.490,
                with_code=89.0,
            ),
            PaperRow("ToRL-7B", "greedy", {"aime24": 43.3, "aime25": 30.0, "math500": 82.2}, with_code=83.0),
            PaperRow("ZTRL-0727-7B", "avg@32", {"aime25": 29.99, "hmmt_feb25": 22.08}, trained_by_paper=True),
            PaperRow(
                "ZTRL-0727-7B",
                "greedy",
                {"aime25": 32.81, "amc23": 80.0, "math500": 84.6},
                trained_by_paper=True,
                comment="ZTRL-0727-7B: 32.81 on AIME25 is not greedy but 315 of 960, an average of 32 samples",
            ),
        ),
    }
)
"""The rows of each paper, by the name of its suite."""
