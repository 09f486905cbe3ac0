"""The errors torl raises.

What a *model* does wrong is data (an `Outcome`, a reward of -1). What the *host* does wrong raises one of
these, and a training run stops: it never continues with a broken tool, engine, grader or learner.
"""


class TorlError(Exception):
    """Base of every error torl raises on purpose; its message says what was wrong, where, and what to do."""


class ConfigError(TorlError):
    """A configuration that cannot be run: unknown key, wrong type, values that contradict each other."""


class DataError(TorlError):
    """A problem file or model directory that cannot be read; names the file, the line and the reason."""


class SandboxError(TorlError):
    """The host side of the sandbox is broken: no guest, a failed self-test, a dead pool."""


class ToolUnavailableError(TorlError):
    """A tool gave no outcome for a call, however often it was asked: the episode is spoilt, and others go on."""


class AgentProgramError(ToolUnavailableError):
    """An agent program crashed, took too long or never asked the model: its episode is spoilt, and others go on."""


class EngineError(TorlError):
    """The inference engine died, refused a request, or did not take new weights."""


class EngineDiedError(EngineError):
    """The processes of one inference engine have ended; another one can take its place."""


class HangError(TorlError):
    """A part lives and gives no answer; the message names it."""


class EngineHungError(EngineError, HangError):
    """The inference engine computed nothing for too long."""


class ClusterError(TorlError):
    """The machines of a run cannot be reached, or are not as many as it needs."""


class ActorDiedError(ClusterError):
    """A role of the run has gone, with its process or with the node that it was on."""


class RewardError(TorlError):
    """The grader is broken: its workers cannot be started or die again and again."""


class LearnerError(TorlError):
    """A learner rank died, raised, or did not answer in time; carries the rank's own traceback."""


class LearnerDiedError(LearnerError):
    """A learner rank has ended without a word: its process was killed, or its node was lost."""


class LearnerHungError(LearnerError, HangError):
    """The learner did not finish a command in time."""


class WeightTransferError(TorlError):
    """New weights did not reach the engine: a peer has ended or is silent, or a checksum differs."""


class EngineUnusableError(EngineError, WeightTransferError):
    """An engine may hold weights of two versions: it did not take new ones whole."""


class CheckpointError(TorlError):
    """A checkpoint that cannot be written or is damaged or incomplete."""


class RecordError(TorlError):
    """A record of a run (metrics, trajectories, report) that cannot be written, or is damaged."""
