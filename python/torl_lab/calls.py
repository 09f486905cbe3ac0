"""Commands of the laboratory as functions, for scripts and notebooks."""

from pathlib import Path

from torl.api import Run
from torl.api.event_loop import BackgroundLoop
from torl_lab.audit.run import Audit, verify_run


def verify(run: str | Path | Run, *, logprob_samples: int = 64, trust: bool = False) -> Audit:
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
    path = run.directory if isinstance(run, Run) else Path(run)
    with BackgroundLoop() as loop:
        return loop.call(verify_run(path, logprob_samples, trust=trust or (isinstance(run, Run) and run.trust)))
