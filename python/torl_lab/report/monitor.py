"""The page of a run, written while the run trains."""

from pathlib import Path

from torl.run.config import LearningConfig
from torl.training.monitor import Monitor
from torl_lab.report.page import write_report


class ReportPage(Monitor):
    """Writes the page of a run after each evaluation and checkpoint."""

    def __init__(self, config: LearningConfig, directory: Path, first_step: int) -> None:
        """Note where the run is, and its note."""
        self._directory, self._note = directory, config.run.note

    def milestone(self) -> None:
        """Write the page, unless nothing can be compared yet."""
        write_report(self._directory, self._note)
