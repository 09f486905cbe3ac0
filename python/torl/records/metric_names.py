"""The names of all metrics, in one place: what is measured, in which unit, and where it is defined.

A row of `metrics.jsonl` maps these names to numbers. A ratio whose denominator is zero is left out of the row
rather than invented. Evaluation rows carry the same names behind `evaluation/<set>/`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

# --- reward -----------------------------------------------------------------------------------------------

REWARD_MEAN: Final = "reward/mean"
"""Mean of all that a response is paid, at its end and for its turns."""
REWARD_TURNS: Final = "reward/turns"
"""Mean of what the turns of a response are paid together; only where turns are paid."""
ACCURACY: Final = "reward/accuracy"
"""Share of responses whose final answer is correct."""
GREEDY_ACCURACY: Final = "reward/greedy_accuracy"
"""Accuracy of one greedy response for each problem (evaluations only)."""
TOO_LONG: Final = "problems/prompt_too_long"
"""Problems of the set whose prompts are too long to be played; each accuracy counts them as not solved."""
SOLVED: Final = "reward/solved"
"""Share of problems with at least one correct response: pass@k for groups of k."""
VALID_FORMAT: Final = "reward/valid_format"
"""Share of responses in the format that the reward asks for; all, where it asks for none."""
ANSWERED: Final = "reward/answered"
"""Share of responses with a complete boxed answer."""
GRADER_TIMEOUTS: Final = "reward/grader_timeouts"
"""Responses whose answer the grader could not compare in time."""
GRADER_ERRORS: Final = "reward/grader_errors"
"""Responses whose answer the grader failed on."""
UNIFORM_GROUPS: Final = "reward/zero_variance_groups"
"""Share of groups (of at least two) whose rewards are all equal: they carry no signal."""
REWARD_VARIANT: Final = "reward/variant/"
"""Prefix of the mean reward of each variant of the prompts."""
REWARD_PART: Final = "reward/part/"
"""What the name of each part of a reward begins with."""


def variant_reward(variant: str) -> str:
    """Mean total reward of the responses to one variant of the prompts, if the template gives several."""
    return REWARD_VARIANT + variant


def reward_part(name: str) -> str:
    """Mean of this part of the reward, over the responses that have it."""
    return REWARD_PART + name


def reward_counts(counts: Mapping[str, float]) -> dict[str, float]:
    """What the reward counted since its start (`Reward.metrics`), under its names here: `reward/count/<count>`."""
    return {f"reward/count/{count}": value for count, value in counts.items()}


# --- tool: figure 5 of ToRL, and what ZeroTIR adds ----------------------------------------------------------

CODE_RATIO: Final = "tool/code_ratio"
"""Responses with at least one code block / responses."""
PASS_RATIO: Final = "tool/pass_ratio"
"""Runs that ended ok / runs."""
PASS_RATIO_CORRECT: Final = "tool/pass_ratio_correct"
"""The pass ratio within correct responses."""
PASS_RATIO_INCORRECT: Final = "tool/pass_ratio_incorrect"
"""The pass ratio within incorrect responses."""
EXECUTED_RATIO: Final = "tool/executed_ratio"
"""Code blocks that ran / code blocks written."""
BEFORE_ANSWER_RATIO: Final = "tool/before_answer_ratio"
"""Code blocks that begin before the final answer / code blocks written; where there is no answer, none does."""
CODE_BLOCKS_PER_RESPONSE: Final = "tool/code_blocks_per_response"
"""Code blocks / responses: what ZeroTIR calls its code ratio."""
CALLS_PER_TRAJECTORY: Final = "tool/calls_per_trajectory"
"""Tool calls / trajectories, those without code included."""
RIGHT_TOOL: Final = "tool/correct_tool"
"""Of the responses that ask for a tool, to problems that name one (`tool` among their metadata), those that ask for it
and for no other; only where the problems name one."""
CALLS_WITHOUT_CODE: Final = "tool/unexecuted_calls"
"""Tool calls that ran nothing (no closed block, a malformed call, one too many) / tool calls."""
RECOVERED_ERRORS: Final = "tool/recovered_errors"
"""Correct responses in which a run failed and a later one ended well / responses."""
CODE_LINES: Final = "tool/code_lines"
"""Mean lines of a code block, without empty ones and comments: trivial code is short."""
CODE_NAMES: Final = "tool/code_names"
"""Mean number of different names that a code block calls or defines."""
CROSS_CHECKED: Final = "tool/cross_checked"
"""Responses that state a boxed answer and then run code that prints something / responses; only the first such run
counts, and an answer that is stated without a box is not seen."""
CROSS_CHECK_AGREED: Final = "tool/cross_check_agreed"
"""Of the cross-checked responses, those in which the last line printed is the answer stated before."""
CROSS_CHECK_CORRECTED: Final = "tool/cross_check_corrected"
"""Of the cross-checked responses in which it is not, those that are correct in the end."""
WAIT_SHARE: Final = "tool/wait_fraction"
"""Seconds that episodes waited for their tools / seconds they took."""

_STATUS: Final = "tool/status/"
_ERROR: Final = "tool/error/"


def status_fraction(status: str) -> str:
    """Runs that ended with this `OutcomeStatus` / runs."""
    return _STATUS + status


def error_fraction(exception_type: str) -> str:
    """Runs that ended with this exception / runs."""
    return _ERROR + exception_type


def tool_counts(name: str, counts: Mapping[str, float]) -> dict[str, float]:
    """What a tool counted since its start (`Tool.metrics`), under its names here: `tool/<tool>/<count>`."""
    return {f"tool/{name}/{count}": value for count, value in counts.items()}


# --- environment ------------------------------------------------------------------------------------------

ENVIRONMENT_MESSAGES: Final = "environment/messages"
"""Mean number of the environment's messages in a response; results of its tools are calls."""
ENVIRONMENT_ENDED: Final = "environment/ended"
"""Share of responses that the environment ended by its answer to their last turn."""
TURN_LIMIT: Final = "environment/turn_limit"
"""Share of responses that ended at `rollout.environment.max_turns`."""


def environment_counts(counts: Mapping[str, float]) -> dict[str, float]:
    """What the environment counted since its start, under its names here: `environment/count/<count>`."""
    return {f"environment/count/{count}": value for count, value in counts.items()}


def agent_counts(counts: Mapping[str, float]) -> dict[str, float]:
    """What became of the agent programs since the start, and of what they asked: `agent/<count>`.

    Programs that "crashed", "timed_out" or were "silent" (asked for nothing); requests answered by "turns", or
    "refused" with an error.
    """
    return {f"agent/{name}": float(count) for name, count in counts.items()}


# --- response ---------------------------------------------------------------------------------------------

RESPONSE_TOKENS: Final = "response/tokens"
"""Mean tokens of a response, sampled and observed."""
SAMPLED_TOKENS: Final = "response/sampled_tokens"
OBSERVED_TOKENS: Final = "response/observed_tokens"
MAX_RESPONSE: Final = "response/max_tokens"
"""Tokens of the longest response."""
TURNS: Final = "response/turns"
TRUNCATED: Final = "response/truncated"
"""Share of responses cut at the token limit."""
EPISODE_SECONDS: Final = "response/episode_seconds"
"""Mean seconds of an episode."""
BRANCHES: Final = "response/branches"
"""Responses of an episode beside its last, on average; of agent programs that change their history. Each is one of the
responses above."""

# --- selection: what a step does not learn from ---------------------------------------------------------------

SELECTION_ROUNDS: Final = "selection/rounds"
"""Rounds in which the prompts of a step were played; more than one only with dynamic sampling."""
SELECTION_FAILED: Final = "selection/failed_groups"
"""Groups left out because tools spoilt so many of their episodes that nothing is left to compare."""
SELECTION_ZERO_VARIANCE: Final = "selection/zero_variance_groups"
"""Groups left out because all their rewards are equal."""
SELECTION_OUT_OF_RANGE: Final = "selection/out_of_range_groups"
"""Groups left out because of the share of their members that is rewarded."""
SELECTION_UNDECIDED: Final = "selection/undecided_groups"
"""Groups left out because the grader could not decide too many of their answers."""
SELECTION_SURPLUS: Final = "selection/surplus_groups"
"""Groups left out because the batch was full."""
SELECTION_MISSING: Final = "selection/missing_groups"
"""Groups that the batch lacked after the last round of dynamic sampling."""

_MASKED: Final = "selection/masked/"


def masked(reason: str) -> str:
    """Trajectories in the batch that carry no loss for this reason; see `torl.training.masking`."""
    return _MASKED + reason


# --- learner: the keys of its report, prefixed --------------------------------------------------------------

LOSS: Final = "learner/loss"
# Entropy, clip fraction and the gaps are means over the sampled tokens that the learner computes: trajectories without
# an advantage are left out where nothing else moves the policy, so hard problems remain as groups become uniform.
ENTROPY: Final = "learner/entropy"
GRADIENT_NORM: Final = "learner/gradient_norm"
LEARNING_RATE: Final = "learner/learning_rate"
CLIP_FRACTION: Final = "learner/clip_fraction"
LOGPROB_GAP_MEAN: Final = "learner/logprob_gap_mean"
"""Mean |trainer's logprob - engine's| over these tokens."""
LOGPROB_GAP_MAX: Final = "learner/logprob_gap_max"
LOGPROB_GAP_KL: Final = "learner/logprob_gap_kl"

# --- time, in seconds ---------------------------------------------------------------------------------------

TIME_STEP: Final = "time/step"
"""The whole step, from its first prompt to its new weights; without evaluation, and without a checkpoint but where
that waits for the learner to have the GPUs again."""
TIME_WAIT: Final = "time/wait_for_rollout"
"""How long the learner waited for the step's episodes."""
TIME_ENGINE_IDLE: Final = "time/engine_idle"
"""How long the engine held no request, from the end of the last step to that of this one."""
TIME_ROLLOUT: Final = "time/rollout"
"""From the first of the step's episodes to the last; with `rollout.max_staleness` much of it is before the step."""
TIME_REWARD: Final = "time/reward"
"""Of the rollout, how long no episode was left and grades were awaited."""
TIME_LEARN: Final = "time/train"
TIME_SYNC: Final = "time/weight_sync"
TIME_EVALUATION: Final = "time/evaluation"
TIME_CHECKPOINT: Final = "time/checkpoint"
"""Seconds that a checkpoint held up the training: it is copied then, and written behind the next steps."""

# --- asynchrony -------------------------------------------------------------------------------------------

STALENESS_MEAN: Final = "rollout/staleness_mean"
"""Updates between the policy that sampled a token and the one that learns from it, over the sampled tokens."""
STALENESS_MAX: Final = "rollout/staleness_max"
SPANNING: Final = "rollout/mixed_version_fraction"
"""Share of trajectories that more than one policy sampled."""
FAILED_EPISODES: Final = "rollout/failed_episodes"
"""Episodes that are missing from their groups because a tool gave no outcome."""
CACHED_SHARE: Final = "rollout/prefix_cache_hit_rate"
"""Share of the prefix that was in the engine's cache, over the turns after the first."""
SPECULATED: Final = "tool/speculated"
"""Runs that began when their block closed, since the start of the process."""
SPECULATIONS_WASTED: Final = "tool/speculated_wasted"
"""Those whose outcome was never asked for."""

# --- data -------------------------------------------------------------------------------------------------

EPOCH: Final = "data/epoch"
TRAINED_GROUPS: Final = "data/trained_groups"
"""Groups whose trajectories entered the loss."""

_EVALUATION: Final = "evaluation/"
_KIND: Final = "by/"


def speculation_counts(speculated: int, wasted: int) -> dict[str, float]:
    """What became of the runs that began early."""
    return {SPECULATED: speculated, SPECULATIONS_WASTED: wasted}


def learner_metrics(report: Mapping[str, float]) -> dict[str, float]:
    """The learner's report under its names here: {"loss": x} becomes {"learner/loss": x}."""
    return {f"learner/{name}": value for name, value in report.items()}


def evaluation_name(set_name: str, name: str) -> str:
    """The name of a metric of one evaluation set in a row: `evaluation/<set>/<name>`."""
    return f"{_EVALUATION}{set_name}/{name}"


def evaluation_metrics(set_name: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Metrics of one evaluation set under their names in a row."""
    return {evaluation_name(set_name, name): value for name, value in metrics.items()}


def kind_name(kind: str, name: str) -> str:
    """The metric of one kind of problems (`run.group_metrics_by`)."""
    return f"{_KIND}{kind}/{name}"


def kinds_of(rows: Iterable[Mapping[str, object]], name: str) -> dict[str, str]:
    """The kinds that rows have this metric of, each with its name there."""
    ending = f"/{name}"
    found = {full for row in rows for full in row if full.startswith(_KIND) and full.endswith(ending)}
    return {full.removeprefix(_KIND).removesuffix(ending): full for full in sorted(found)}


def split_evaluation(name: str) -> tuple[str, str] | None:
    """(set, name) of an evaluation metric, None for all others."""
    if not name.startswith(_EVALUATION):
        return None
    set_name, _, rest = name.removeprefix(_EVALUATION).partition("/")
    return set_name, rest
