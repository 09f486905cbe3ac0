"""The names of all metrics, with their definitions and units.

A row of `metrics.jsonl` maps these names to numbers, and has `step`, the number of steps before it, and `time`, when it
was written, in seconds since 1970. A ratio whose denominator is zero is missing from the row. Rows of evaluations have
the same names after `evaluation/<set>/`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

# --- reward -----------------------------------------------------------------------------------------------

REWARD_MEAN: Final = "reward/mean"
"""Mean total reward of a response: the reward at its end plus its turn rewards."""
REWARD_TURNS: Final = "reward/turns"
"""Mean sum of turn rewards per response. Only logged if turns are rewarded."""
ACCURACY: Final = "reward/accuracy"
"""Fraction of responses whose final answer is correct."""
GREEDY_ACCURACY: Final = "reward/greedy_accuracy"
"""Accuracy of one greedy response per problem (evaluations only)."""
TOO_LONG: Final = "problems/prompt_too_long"
"""Number of problems of the set whose prompts are too long; each accuracy counts them as not solved."""
SOLVED: Final = "reward/solved"
"""Fraction of problems with at least one correct response: pass@k for groups of k."""
VALID_FORMAT: Final = "reward/valid_format"
"""Fraction of responses in the format that the reward requires; 1 if it requires none."""
ANSWERED: Final = "reward/answered"
"""Fraction of responses with a complete boxed answer."""
GRADER_TIMEOUTS: Final = "reward/grader_timeouts"
"""Number of responses whose answer the grader did not compare in time."""
GRADER_ERRORS: Final = "reward/grader_errors"
"""Number of responses whose answer the grader failed on."""
UNIFORM_GROUPS: Final = "reward/zero_variance_groups"
"""Fraction of groups (of at least two) whose total rewards are all equal: most estimators learn nothing from them."""
REWARD_VARIANT: Final = "reward/variant/"
"""Prefix of the mean reward of each variant of the prompts."""
REWARD_PART: Final = "reward/part/"
"""Prefix of the names of reward parts."""


def variant_reward(variant: str) -> str:
    """Return `reward/variant/<variant>`: the mean total reward of the responses to one of the template's prompts.

    Only logged if the template gives several prompts for a problem.
    """
    return REWARD_VARIANT + variant


def reward_part(name: str) -> str:
    """Return `reward/part/<part>`: the mean of a part of the reward, over the responses that have it."""
    return REWARD_PART + name


def reward_counts(counts: Mapping[str, float]) -> dict[str, float]:
    """Return `reward/count/<count>`: the counts of the reward since its start (`Reward.metrics`)."""
    return {f"reward/count/{count}": value for count, value in counts.items()}


# --- tool: figure 5 of ToRL, and additions of ZeroTIR ----------------------------------------------------------

CODE_RATIO: Final = "tool/code_ratio"
"""Responses with at least one code block / responses."""
GREEDY_CODE_RATIO: Final = "tool/greedy_code_ratio"
"""Code ratio of one greedy response per problem (evaluations only)."""
PASS_RATIO: Final = "tool/pass_ratio"
"""Successful runs / runs."""
PASS_RATIO_CORRECT: Final = "tool/pass_ratio_correct"
"""Pass ratio within correct responses."""
PASS_RATIO_INCORRECT: Final = "tool/pass_ratio_incorrect"
"""Pass ratio within incorrect responses."""
EXECUTED_RATIO: Final = "tool/executed_ratio"
"""Code blocks that ran / code blocks written."""
BEFORE_ANSWER_RATIO: Final = "tool/before_answer_ratio"
"""Code blocks that begin before the final answer / code blocks written; 0 without an answer."""
CODE_BLOCKS_PER_RESPONSE: Final = "tool/code_blocks_per_response"
"""Code blocks / responses: the code ratio of ZeroTIR."""
CALLS_PER_TRAJECTORY: Final = "tool/calls_per_trajectory"
"""Tool calls / trajectories, including calls without code."""
RIGHT_TOOL: Final = "tool/correct_tool"
"""Fraction of responses with tool calls that call only the tool named in the problem's metadata (`tool`). Only logged
if problems name one."""
CALLS_WITHOUT_CODE: Final = "tool/unexecuted_calls"
"""Tool calls without a run (no closed block, malformed, beyond the limit) / tool calls."""
RECOVERED_ERRORS: Final = "tool/recovered_errors"
"""Correct responses in which a run failed and a later run succeeded / responses."""
CODE_LINES: Final = "tool/code_lines"
"""Mean number of lines of a code block, without empty lines and comments: trivial code is short."""
CODE_NAMES: Final = "tool/code_names"
"""Mean number of distinct names that a code block calls or defines."""
CROSS_CHECKED: Final = "tool/cross_checked"
"""Responses that state a boxed answer and then run code that prints output / responses. Only the first such run counts,
and only boxed answers are found."""
CROSS_CHECK_AGREED: Final = "tool/cross_check_agreed"
"""Fraction of the cross-checked responses in which the last line printed is the answer stated before."""
CROSS_CHECK_CORRECTED: Final = "tool/cross_check_corrected"
"""Fraction of the cross-checked responses with another last line that have a correct final answer."""
CROSS_CHECK_CHANGED: Final = "tool/cross_check_changed"
"""Fraction of the cross-checked responses whose final answer is not the answer stated before the run."""
RAN_BEFORE_ANSWER: Final = "tool/ran_before_answer"
"""Responses with a successful run before their first boxed answer / responses with a successful run."""
RAN_AFTER_ANSWER: Final = "tool/ran_after_answer"
"""Responses with a successful run after their first boxed answer / responses with a successful run."""
REASONED_BEFORE_CODE: Final = "tool/reasoned_before_code"
"""Responses with at least 30 words of text before their first code block / responses with code."""
CHANGED_CODE: Final = "tool/changed_code"
"""Responses in which a run shares less than half of its lines with the run before it / responses with at least two
runs. Lines of both that are equal except for spaces count, relative to the distinct lines of both."""
INVENTED_RESULTS: Final = "tool/invented_results"
"""Responses in which the model wrote a tool result itself / responses. Only logged for formats that mark results."""
CODE_LINES_HARD: Final = "tool/code_lines_hard"
"""Mean number of lines of a code block in groups (of at least two) with an accuracy below 1/2."""
CODE_LINES_EASY: Final = "tool/code_lines_easy"
"""Mean number of lines of a code block in groups (of at least two) with an accuracy of at least 1/2."""
WAIT_SHARE: Final = "tool/wait_fraction"
"""Seconds that episodes waited for tools / seconds of the episodes."""

_STATUS: Final = "tool/status/"
_ERROR: Final = "tool/error/"


def status_fraction(status: str) -> str:
    """Return `tool/status/<status>`: runs with this `OutcomeStatus` / runs."""
    return _STATUS + status


def error_fraction(exception_type: str) -> str:
    """Return `tool/error/<exception>`: runs that ended with this exception / runs."""
    return _ERROR + exception_type


def tool_counts(name: str, counts: Mapping[str, float]) -> dict[str, float]:
    """Return `tool/<tool>/<count>`: the counts of a tool since its start (`Tool.metrics`).

    The sandbox of `python` counts "shared" (runs that were answered with the outcome of an equal one), "retried" (runs
    whose worker died) and "workers_replaced". Other tools count "calls", "retried", "unavailable" (calls that failed
    after all retries) and "cut" (truncated results), MCP servers also "connected" (connections that were made).
    """
    return {f"tool/{name}/{count}": value for count, value in counts.items()}


# --- environment ------------------------------------------------------------------------------------------

ENVIRONMENT_MESSAGES: Final = "environment/messages"
"""Mean number of the environment's messages in a response, without the results of its tools."""
ENVIRONMENT_ENDED: Final = "environment/ended"
"""Fraction of responses that the environment ended."""
TURN_LIMIT: Final = "environment/turn_limit"
"""Fraction of responses that ended at `rollout.environment.max_turns`."""


def environment_counts(counts: Mapping[str, float]) -> dict[str, float]:
    """Return `environment/count/<count>`: the counts of the environment since its start.

    It counts "episodes", "retried", "failed", "cut" (truncated texts) and "unclosed" (sessions whose `close` failed).
    """
    return {f"environment/count/{count}": value for count, value in counts.items()}


def agent_counts(counts: Mapping[str, float]) -> dict[str, float]:
    """Return `agent/<count>`: the counts of agent programs and their requests since the start.

    Programs count as "crashed", "timed_out" or "no_request", requests as "turns" or, after an error, "refused".
    """
    return {f"agent/{name}": float(count) for name, count in counts.items()}


# --- response ---------------------------------------------------------------------------------------------

RESPONSE_TOKENS: Final = "response/tokens"
"""Mean number of tokens of a response, observations included."""
SAMPLED_TOKENS: Final = "response/sampled_tokens"
"""Mean number of sampled tokens of a response."""
OBSERVED_TOKENS: Final = "response/observed_tokens"
"""Mean number of observation tokens of a response."""
MAX_RESPONSE: Final = "response/max_tokens"
"""Number of tokens of the longest response."""
TURNS: Final = "response/turns"
"""Mean number of turns of a response."""
TRUNCATED: Final = "response/truncated"
"""Fraction of responses truncated at the token limit."""
EPISODE_SECONDS: Final = "response/episode_seconds"
"""Mean duration of an episode, in seconds."""
BRANCHES: Final = "response/branches"
"""Mean number of further responses per episode, for agent programs that change their history. Each counts as a response
in the metrics above."""

# --- selection: trajectories that a step does not learn from -------------------------------------------------

SELECTION_ROUNDS: Final = "selection/rounds"
"""Number of sampling rounds of a step; more than 1 only with dynamic sampling."""
SELECTION_FAILED: Final = "selection/failed_groups"
"""Number of groups dropped because too few of their episodes are left to compare; not those without any."""
SELECTION_ZERO_VARIANCE: Final = "selection/zero_variance_groups"
"""Number of groups dropped because all their rewards are equal."""
SELECTION_OUT_OF_RANGE: Final = "selection/out_of_range_groups"
"""Number of groups dropped because their fraction of rewarded members is outside `selection.accuracy_range`."""
SELECTION_UNDECIDED: Final = "selection/undecided_groups"
"""Number of groups dropped because the grader failed on too many of their answers."""
SELECTION_SMALL: Final = "selection/small_groups"
"""Number of groups dropped because member filters left too few members."""
SELECTION_SURPLUS: Final = "selection/surplus_groups"
"""Number of groups dropped because the batch was full."""
SELECTION_MISSING: Final = "selection/missing_groups"
"""Number of groups missing from the batch after the last round of dynamic sampling."""

_MASKED: Final = "selection/masked/"


_DROPPED_GROUPS: Final = "selection/dropped_groups/"
_DROPPED_MEMBERS: Final = "selection/dropped_members/"


def dropped_groups(name: str) -> str:
    """Return `selection/dropped_groups/<name>`: groups dropped by a filter of `selection.groups`."""
    return _DROPPED_GROUPS + name


def dropped_members(name: str) -> str:
    """Return `selection/dropped_members/<name>`: trajectories dropped by a filter of `selection.members`."""
    return _DROPPED_MEMBERS + name


def is_dropped_groups(metric: str) -> bool:
    """Whether a metric is the number of groups dropped by a filter of `selection.groups`."""
    return metric.startswith(_DROPPED_GROUPS)


def masked(reason: str) -> str:
    """Return `selection/masked/<reason>`: trajectories masked for this reason (`torl.training.selection`)."""
    return _MASKED + reason


# --- learner --------------------------------------------------------------

LOSS: Final = "learner/loss"
"""Loss of the policy, with all its terms."""
IMITATION_LOSS: Final = "learner/imitation_loss"
"""Term of the loss for imitated tokens: their weighted cross-entropy, divided by their number."""
ENTROPY: Final = "learner/entropy"
"""Mean entropy at the sampled tokens that the learner computes, in nats. Trajectories without an advantage are skipped
if no other term moves the policy, so hard problems remain as groups become uniform."""
GRADIENT_NORM: Final = "learner/gradient_norm"
"""Global gradient norm before clipping."""
CHANGED_WEIGHTS: Final = "learner/changed_weights"
"""Fraction of a sample of the policy's weights, in the precision of `learner.dtype`, that an optimizer step changed."""
LEARNING_RATE: Final = "learner/learning_rate"
"""Learning rate of the policy."""
CLIP_FRACTION: Final = "learner/clip_fraction"
"""Fraction of the computed sampled tokens whose importance ratio was clipped."""
DUAL_CLIP_FRACTION: Final = "learner/dual_clip_fraction"
"""Fraction of the computed sampled tokens whose gradient the dual clip removed; 0 for a loss without one."""
APPROXIMATE_KL: Final = "learner/approximate_kl"
"""Estimated KL divergence of the policy before the step's updates from the policy in them (k3), in nats per computed
sampled token. About 0 with one optimizer step."""
REFERENCE_KL: Final = "learner/reference_kl"
"""Mean of `algorithm.kl.estimator` over the computed sampled tokens: the KL divergence of the policy from the reference
model, in nats per token. Only logged with a reference model."""
IMPORTANCE_WEIGHT: Final = "learner/importance_weight"
"""Mean weight of a computed sampled token by `algorithm.importance_correction`. Only logged with a correction."""
IMPORTANCE_MASKED: Final = "learner/importance_masked"
"""Fraction of the computed sampled tokens to which the correction gives the weight 0. Only logged with a correction."""
LOGPROB_GAP_MEAN: Final = "learner/logprob_gap_mean"
"""Mean |trainer logprob - engine logprob| over the computed sampled tokens, in nats."""
LOGPROB_GAP_ON_POLICY: Final = "learner/logprob_gap_on_policy"
"""The same mean over the tokens that the trained policy itself sampled, which leaves rounding. It stops the run if the
two hold different weights (`learner.max_logprob_gap`)."""
LOGPROB_GAP_PROBE: Final = "learner/logprob_gap_probe"
"""The same mean over a few tokens that the engine samples after the weight transfer before the step; with several
replicas, the largest of theirs. Only in runs whose batches cannot show the difference: asynchronous ones, and those
whose engine samples from another distribution."""
ON_POLICY_FRACTION: Final = "learner/on_policy_fraction"
"""Fraction of the computed sampled tokens that the trained policy itself sampled."""
LOGPROB_GAP_MAX: Final = "learner/logprob_gap_max"
"""Maximum |trainer logprob - engine logprob| over the computed sampled tokens, in nats."""
LOGPROB_GAP_KL: Final = "learner/logprob_gap_kl"
"""Estimated KL divergence of the engine from the trainer, in nats per token."""

LEARNED_TOKENS: Final = "learner/tokens"
"""Number of tokens of the computed samples, prompts included. A prompt counts once for each of its samples, also if a
row has it once; a sample counts once for each of `algorithm.epochs`."""
TRAINED_TOKENS: Final = "learner/sampled_tokens"
"""Number of sampled tokens of the computed samples, once for each epoch; in fine-tuning, of tokens with a loss."""
IMITATED_TOKENS: Final = "learner/imitated_tokens"
"""Number of tokens with an imitation weight. Only logged if there are any."""
SAMPLES: Final = "learner/samples"
"""Number of computed samples (responses), once for each epoch."""
ROWS: Final = "learner/rows"
"""Number of rows that the samples were packed into (`learner.max_row_tokens`), over all ranks and optimizer steps."""
UPDATES: Final = "learner/updates"
"""Number of optimizer steps of the policy; 0 if no sample of the batch moves it."""
UPDATE_SECONDS: Final = "learner/update_seconds"
"""Time of these optimizer steps on the first rank: forward, backward and update, in seconds."""
UPDATE_TIME: Final = "learner/seconds"
"""Time of all optimizer steps, the critic's as well, with packing and the exchange with the ranks, in seconds."""
VALUE_MEAN: Final = "learner/critic_value_mean"
"""Mean value that the critic gives a sampled token."""
SQUARED_ERROR: Final = "learner/critic_squared_error"
"""Mean squared difference of value and return at a sampled token."""
VALUE_ERROR_MAX: Final = "learner/critic_error_max"
"""Maximum |value - return| over the sampled tokens."""
EXPLAINED_VARIANCE: Final = "learner/critic_explained_variance"
"""1 - variance(returns - values) / variance(returns) over the sampled tokens, with the values before the step: 1 for a
perfect critic, 0 for one that predicts nothing."""


def critic_metric(metric: str) -> str:
    """Return `learner/critic_<name>`: a metric of the learner, of the critic's optimizer steps."""
    return metric.replace("learner/", "learner/critic_", 1)


# --- fine-tuning ------------------------------------------------------------------------------------------

VALIDATION_LOSS: Final = "validation/loss"
"""Mean cross-entropy of the trained tokens of the validation examples, in nats (`torl finetune`). The loss of a step is
`learner/loss`."""
VALIDATION_TOKENS: Final = "validation/tokens"
"""Number of trained tokens of the validation examples."""

# --- time, in seconds ---------------------------------------------------------------------------------------

TIME_STEP: Final = "time/step"
"""Duration of a step, from its first prompt to its new weights. Excludes evaluations, and checkpoints unless these wait
for the GPUs."""
TIME_WAIT: Final = "time/wait_for_rollout"
"""Time that the learner waited for the episodes of the step."""
TIME_ENGINE_IDLE: Final = "time/engine_idle"
"""Time that the engine had no request, from the end of the last step to the end of this one."""
TIME_ROLLOUT: Final = "time/rollout"
"""Time from the first episode of the step to the last grade and the selection of the batch. With
`rollout.max_staleness`, most of it precedes the step."""
TIME_REWARD: Final = "time/reward"
"""Part of the rollout in which all episodes had ended and grades were awaited."""
TIME_LEARN: Final = "time/train"
"""Time of the learner: masks, log-probabilities and values before the update, advantages, optimizer steps, and the
digest of the new weights."""
TIME_SYNC: Final = "time/weight_sync"
"""Time of the weight transfer to the engine."""
TIME_EVALUATION: Final = "time/evaluation"
"""Time of the evaluations."""
TIME_CHECKPOINT: Final = "time/checkpoint"
"""Time that a checkpoint blocks training: it is copied, and written during the next steps."""

# --- asynchrony -------------------------------------------------------------------------------------------

STALENESS_MEAN: Final = "rollout/staleness_mean"
"""Mean number of updates between the policy that sampled a token and the policy that learns from it."""
STALENESS_MAX: Final = "rollout/staleness_max"
"""Maximum number of updates between these policies."""
SPANNING: Final = "rollout/mixed_version_fraction"
"""Fraction of trajectories sampled by more than one policy version."""
FAILED_EPISODES: Final = "rollout/failed_episodes"
"""Number of failed episodes, which are missing from their groups."""
CACHED_SHARE: Final = "rollout/prefix_cache_hit_rate"
"""Fraction of the prefix tokens found in the engine's prefix cache, over the turns after the first."""
SPECULATED: Final = "tool/speculated"
"""Number of runs started when their code block closed, since the start of the process."""
SPECULATIONS_WASTED: Final = "tool/speculated_wasted"
"""Number of these runs whose outcome was never requested."""

# --- health ---------------------------------------------------------------------------------------------------

FINDINGS: Final = "health/diagnoses"
"""Number of the doctor's findings in the run up to this step (`health.mode`)."""

_HEALTH: Final = "health/"


def finding(check: str) -> str:
    """Return `health/<check>`: 1 at a step at which this check of the doctor fires."""
    return _HEALTH + check


def is_finding(metric: str) -> bool:
    """Whether a metric is a finding of the doctor, which depends on earlier steps."""
    return metric.startswith(_HEALTH)


# --- data -------------------------------------------------------------------------------------------------

EPOCH: Final = "data/epoch"
"""Current pass over the problems."""
TRAINED_GROUPS: Final = "data/trained_groups"
"""Number of groups of the batch, also those whose rewards are all equal or whose trajectories are all masked."""
LONG_TEACHER_PROMPTS: Final = "data/long_teacher_prompts"
"""Number of responses that are too long after their prompt of `algorithm.kl.prompt`: the reference model saw them after
the policy's prompt, so that self-distillation learns nothing from them. Only logged with such prompts."""

_EVALUATION: Final = "evaluation/"
_KIND: Final = "by/"


def speculation_counts(speculated: int, wasted: int) -> dict[str, float]:
    """Return the counts of speculative runs by name."""
    return {SPECULATED: speculated, SPECULATIONS_WASTED: wasted}


def scheduled_values(values: Mapping[str, float]) -> dict[str, float]:
    """Return `schedule/<setting>`: the values of the settings that change with the step."""
    return {f"schedule/{name}": value for name, value in values.items()}


def learner_metrics(report: Mapping[str, float]) -> dict[str, float]:
    """Return the values that the learner reports under their names in a row."""
    return {f"learner/{name}": value for name, value in report.items()}


def evaluation_name(set_name: str, name: str) -> str:
    """Return `evaluation/<set>/<name>`: a metric of an evaluation set."""
    return f"{_EVALUATION}{set_name}/{name}"


def evaluation_metrics(set_name: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of an evaluation set under their names in a row."""
    return {evaluation_name(set_name, name): value for name, value in metrics.items()}


def kind_name(kind: str, name: str) -> str:
    """Return `by/<value>/<name>`: a metric of the problems with a value of `run.group_metrics_by`."""
    return f"{_KIND}{kind}/{name}"


def kinds_of(rows: Iterable[Mapping[str, object]], name: str) -> dict[str, str]:
    """Return the values of `run.group_metrics_by` that rows have this metric of, with its full name."""
    ending = f"/{name}"
    found = {full for row in rows for full in row if full.startswith(_KIND) and full.endswith(ending)}
    return {full.removeprefix(_KIND).removesuffix(ending): full for full in sorted(found)}


def is_evaluation_metric(name: str) -> bool:
    """Whether evaluations may have a metric with this plain name."""
    constants = {value for key, value in globals().items() if key.isupper() and key[0] != "_"}
    is_constant = name in constants and name.startswith(("reward/", "tool/", "response/", "environment/"))
    return (
        is_constant
        or name in (TOO_LONG, FAILED_EPISODES)
        or name.startswith((REWARD_PART, REWARD_VARIANT, _STATUS, _ERROR, _KIND))
    )


def quality(name: str, value: float) -> float:
    """Return a number that is higher for a better value of an evaluation metric: of a loss, its negative."""
    return -value if name == VALIDATION_LOSS else value


def split_evaluation(name: str) -> tuple[str, str] | None:
    """Split the name of an evaluation metric into (set, name); None for other names."""
    if not name.startswith(_EVALUATION):
        return None
    set_name, _, rest = name.removeprefix(_EVALUATION).partition("/")
    return set_name, rest
