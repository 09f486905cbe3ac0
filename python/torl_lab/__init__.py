"""The laboratory of torl: it reads runs, and never takes part in them.

    import torl_lab

    audit = torl_lab.verify("runs/demo")

Its folders are its commands: the viewer, the audit, the doctor, replays, evaluations and sweeps, the curation of
problems, reports, and the exchange of trajectories with other libraries. The other names are for a package that adds a
check, a panel or a reader. Names are imported at their first use.
"""

from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torl.api import Run
    from torl.run.records.thresholds import Limit as Limit
    from torl_lab.audit.run import Audit
    from torl_lab.doctor.facts import Member as Member
    from torl_lab.doctor.history import MissingInputError as MissingInputError
    from torl_lab.doctor.history import Step as Step
    from torl_lab.doctor.history import StepHistory as StepHistory
    from torl_lab.doctor.run_check import Measurement as Measurement
    from torl_lab.doctor.run_check import RunCheck as RunCheck
    from torl_lab.doctor.run_check import fraction_of as fraction_of
    from torl_lab.doctor.token_facts import TokenFacts as TokenFacts
    from torl_lab.exchange import Reader as Reader
    from torl_lab.exchange.messages import add_messages as add_messages
    from torl_lab.exchange.messages import new_row as new_row
    from torl_lab.view.panels import Panel as Panel
    from torl_lab.view.panels import Scale as Scale

_MODULES = {
    "torl.run.records.thresholds": "Limit",
    "torl_lab.doctor.facts": "Member",
    "torl_lab.doctor.history": "MissingInputError Step StepHistory",
    "torl_lab.doctor.run_check": "Measurement RunCheck fraction_of",
    "torl_lab.doctor.token_facts": "TokenFacts",
    "torl_lab.exchange.messages": "add_messages new_row",
    "torl_lab.exchange": "Reader",
    "torl_lab.view.panels": "Panel Scale",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}

__all__ = sorted([*_MODULE_OF, "verify"])


def verify(run: "str | Path | Run", *, logprob_samples: int = 64, trust: bool = False) -> "Audit":
    """Audit a run from its own files.

    Args:
        run: Run, finished or running, its directory, or a file of trajectories.
        logprob_samples: Number of trajectories per policy version whose log-probabilities are recomputed.
        trust: Whether to import, start and connect to what the run's files name, as for your own run.
            A `torl.Run` that is trusted, such as the result of `torl.train`, needs no more.

    Raises:
        TorlError: The run cannot be read, or the reward fails.
        NotTrustedError: The run cannot be checked without trust: its format is a custom one.
    """
    from torl.api import Run
    from torl.api.event_loop import BackgroundLoop
    from torl_lab.audit.run import verify_run

    path = run.directory if isinstance(run, Run) else Path(run)
    with BackgroundLoop() as loop:
        return loop.call(verify_run(path, logprob_samples, trust=trust or (isinstance(run, Run) and run.trust)))


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'torl_lab' has no attribute {name!r}")
    value = getattr(import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULE_OF})
