"""All checks: torl's own by subject, and the checks of installed packages; and their results on a run."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from torl.base.errors import ConfigError
from torl.base.plugins import load_plugin, plugins, subject
from torl.run.config import TrainConfig
from torl_lab.doctor import engine, groups, operations, optimizer, policy, rewards, tools
from torl_lab.doctor.history import MissingInputError, StepHistory
from torl_lab.doctor.run_check import RunCheck, RunFinding

SUBJECTS: Final = (groups, rewards, tools, policy, engine, optimizer, operations)
"""Modules whose checks are torl's own."""
CHECKS: Final[dict[str, RunCheck]] = {
    value.id: value for module in SUBJECTS for value in vars(module).values() if isinstance(value, RunCheck)
}
"""torl's checks by their names, in the order in which they run."""
GROUP: Final = "torl.checks"
"""Group of the entry points of other packages' checks, each with the name of its check."""


def installed_checks(ignored: Collection[str] = ()) -> list[RunCheck]:
    """Return torl's checks, then the checks of other packages.

    Args:
        ignored: Names of checks that are not imported (`health.ignore`).

    Raises:
        ConfigError: A check of a package cannot be imported or is something else, its entry point has another name, or
            torl has a check of this name. The message names the package.
    """
    found = list(CHECKS.values())
    for name, point in plugins(GROUP, CHECKS).items():
        if name not in ignored:
            loaded = load_plugin(point, RunCheck)
            if name != loaded.id:
                raise ConfigError(f"{subject(point)} must have the name of its check, {loaded.id!r}")
            found.append(loaded)
    return found


def require_known_checks(config: TrainConfig) -> None:
    """Raise ConfigError if `health.ignore` names an unknown check."""
    known = [*CHECKS, *plugins(GROUP)]
    for name in config.health.ignore:
        if name not in known:
            close = get_close_matches(name, known, 1)
            meant = f"; did you mean {close[0]!r}?" if close else ""
            raise ConfigError(f"health.ignore: {name!r} is not a check{meant} (torl doctor --list has all)")


@dataclass(frozen=True, slots=True)
class Results:
    """The results of all checks of a run.

    Attributes:
        findings: Findings of the checks that fired.
        skipped: Reasons by the names of checks that are ignored or lack their input.
        passed: Names of the checks that found nothing.
        failed: Exceptions by the names of checks that raised one, which is a bug of the check.
    """

    findings: tuple[RunFinding, ...]
    skipped: Mapping[str, str]
    passed: tuple[str, ...]
    failed: Mapping[str, Exception]


def one_line(error: Exception) -> str:
    """Return the exception of a check in one line."""
    return "; ".join(str(error).splitlines())


def run_checks(history: StepHistory, checks: Iterable[RunCheck] = CHECKS.values()) -> Results:
    """Run checks on the history of a run. A check that raises an exception does not stop the others."""
    findings: list[RunFinding] = []
    skipped = dict.fromkeys(history.config.health.ignore, "health.ignore")
    passed: list[str] = []
    failed: dict[str, Exception] = {}
    for check in checks:
        if check.id in skipped:
            continue
        try:
            finding = check.find(history)
        except MissingInputError as missing:
            skipped[check.id] = str(missing)
        except Exception as error:
            failed[check.id] = error
        else:
            if finding is None:
                passed.append(check.id)
            else:
                findings.append(finding)
    return Results(tuple(findings), skipped, tuple(passed), failed)
