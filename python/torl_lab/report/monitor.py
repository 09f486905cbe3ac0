"""The page of a run, written while the run trains."""

from pathlib import Path

from torl.run.config import LearningConfig
from torl.training.monitor import Monitor
from torl_lab.report.page import write_report
from torl_lab.view.panels import installed_panels


class ReportPage(Monitor):
    """Writes the page of a run after each evaluation and checkpoint."""

    def __init__(self, config: LearningConfig, directory: Path, first_step: int) -> None:
        """Note where the run is, and its note."""
        self._directory, self._note = directory, config.run.note

    @classmethod
    def wants(cls, config: LearningConfig) -> bool:
        """Whether to write the page: always.

        Raises:
            ConfigError: A package adds an invalid panel, which would end the run at its first page.
        """
        installed_panels()
        return True

    def milestone(self) -> None:
        """Write the page, unless nothing can be compared yet."""
        write_report(self._directory, self._note)
