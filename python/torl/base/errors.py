"""The errors of torl.

A mistake of the *model* is data: an `Outcome`, a reward of -1. A failure of the *host* raises one of these errors and
stops a training run, which never continues with a failed tool, engine, grader or learner.
"""

from torl_sandbox.errors import SandboxError as SandboxError
from torl_sandbox.errors import TorlError as TorlError


class ConfigError(TorlError):
    """An invalid configuration: an unknown key, a wrong type, contradictory values."""


class NotTrustedError(TorlError):
    """A file that may be of another user names code, a program or a server, and is not trusted (`torl.base.trust`)."""


class DataError(TorlError):
    """An unreadable problem file or model directory. The message names the file, the line and the reason."""


class ToolUnavailableError(TorlError):
    """A tool returned no outcome for a call, after all retries. Its episode fails; others continue."""


class AgentProgramError(ToolUnavailableError):
    """An agent program crashed, timed out or never called the model. Its episode fails; others continue."""


class ComponentError(TorlError):
    """A custom component raised an exception or returned an invalid value. The run stops.

    The message has three lines: the component and the call, the exception, and the line of the component's code.
    """


class EpisodeComponentError(ComponentError, ToolUnavailableError):
    """A `ComponentError` of a tool, an environment or an agent. Its episode fails; others continue."""


class EngineError(TorlError):
    """The inference engine died, rejected a request or did not load new weights."""


class EngineDiedError(EngineError):
    """The processes of an inference engine exited. Another engine can replace it."""


class HangError(TorlError):
    """A running component does not respond. The message names it."""


class EngineHungError(EngineError, HangError):
    """The inference engine made no progress within its timeout."""


class ClusterError(TorlError):
    """The machines of a run cannot be reached, or are too few."""


class ActorDiedError(ClusterError):
    """An actor of the run was lost, because its process exited or its node was lost."""


class RewardError(TorlError):
    """The grader failed: its workers do not start, or die repeatedly."""


class LearnerError(TorlError):
    """A learner rank died, raised an error or timed out. The message contains the rank's traceback."""


class DivergedError(LearnerError):
    """The loss, the gradient or the updated policy is not finite: training diverged."""


class LearnerDiedError(LearnerError):
    """A learner rank exited without an error: its process was killed, or its node was lost."""


class LearnerHungError(LearnerError, HangError):
    """The learner did not finish a command within its timeout."""


class WeightTransferError(TorlError):
    """New weights did not reach the engine: a peer exited or timed out, or a checksum differs."""


class EngineUnusableError(EngineError, WeightTransferError):
    """An engine did not load new weights completely, and may hold a mixture of two versions."""


class HealthError(TorlError):
    """A finding of the doctor stopped the run (`health.mode`). A checkpoint was written, from which it can resume."""


class CheckpointError(TorlError):
    """A checkpoint that cannot be written, or is damaged or incomplete."""


class RecordError(TorlError):
    """A record of a run (metrics, trajectories, report) that cannot be written, or is damaged."""
