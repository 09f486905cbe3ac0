"""All metrics, each declared once: its name in a row, its meaning and how it is shown.

A row of `metrics.jsonl` maps their names to numbers, and has `step`, the number of steps before it, and `time`, when it
was written, in seconds since 1970. A ratio whose denominator is zero is missing from the row. Rows of evaluations have
the same names after `evaluation/<set>/`.
"""

import ast
import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, Self


class Metric(str):
    """The name of a metric, with all that is known of the metric; in a row, in JSON and in TOML it is a text.

    A copy or a pickle of it is the name alone.

    Attributes:
        label: Name in tables and charts.
        short: Name in narrow columns.
        form: Format of a value, such as ".2f".
        better: The better values, "higher" or "lower". None if neither is.
    """

    __slots__ = ("better", "form", "label", "short")

    label: str
    short: str
    form: str
    better: Literal["higher", "lower"] | None

    def __new__(
        cls,
        name: str,
        label: str | None = None,
        *,
        short: str | None = None,
        form: str = ".4g",
        better: Literal["higher", "lower"] | None = None,
    ) -> Self:
        """Declare a metric. Its label is the last part of its name, and its short label the label, unless given."""
        self = super().__new__(cls, name)
        self.form, self.better = form, better
        self.label = label or name.rpartition("/")[2].replace("_", " ")
        self.short = short or self.label
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    @property
    def meaning(self) -> str:
        """Definition and unit: the text below the metric in this file."""
        return _meanings()[self]

    def show(self, value: float | None) -> str:
        """Return a value as text, "-" without one."""
        return "-" if value is None else format(value, self.form)


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """Metrics that differ by what a run names: its tools, the parts of its reward, its evaluation sets.

    Attributes:
        pattern: Name in a row, with `<...>` for each part that a run names.
    """

    pattern: str

    @property
    def prefix(self) -> str:
        """The beginning of all names of the family."""
        return self.pattern.partition("<")[0]

    @property
    def meaning(self) -> str:
        """Definition and unit: the text below the family in this file."""
        return _meanings()[self.pattern]

    def __call__(self, *parts: str) -> str:
        """Return the name of the metric with these parts."""
        left = iter(parts)
        return re.sub("<[^>]+>", lambda _: next(left), self.pattern)

    def __contains__(self, name: str) -> bool:
        return name.startswith(self.prefix)

    def row(self, values: Mapping[str, float], *parts: str) -> dict[str, float]:
        """Return values by their full names; each key is the last part of a name, after `parts`."""
        return {self(*parts, name): value for name, value in values.items()}


@cache
def _meanings() -> Mapping[str, str]:
    """Return the text below each metric and each family by its name or pattern."""
    return {
        str(node.value.args[0].value): inspect.cleandoc(str(text.value.value))
        for node, text in pairwise(ast.parse(Path(__file__).read_text(encoding="utf-8")).body)
        if isinstance(node, ast.AnnAssign)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.args[0], ast.Constant)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


# --- reward -----------------------------------------------------------------------------------------------

REWARD_MEAN: Final = Metric("reward/mean", "reward", form="+.3f", better="higher")
"""Mean total reward of a response: the reward at its end plus its turn rewards."""
REWARD_TURNS: Final = Metric("reward/turns", "turn rewards")
"""Mean sum of turn rewards per response. Only logged if turns are rewarded."""
ACCURACY: Final = Metric("reward/accuracy", form=".3f", better="higher")
"""Fraction of responses whose final answer is correct."""
GREEDY_ACCURACY: Final = Metric("reward/greedy_accuracy", short="greedy", form=".3f", better="higher")
"""Accuracy of one greedy response per problem (evaluations only)."""
TOO_LONG: Final = Metric("problems/prompt_too_long", better="lower")
"""Number of problems of the set whose prompts are too long; each accuracy counts them as not solved."""
SOLVED: Final = Metric("reward/solved", "solved problems", better="higher")
"""Fraction of problems with at least one correct response: pass@k for groups of k."""
VALID_FORMAT: Final = Metric("reward/valid_format", better="higher")
"""Fraction of responses in the format that the reward requires; 1 if it requires none."""
ANSWERED: Final = Metric("reward/answered", "responses with an answer", form=".3f", better="higher")
"""Fraction of responses with a complete boxed answer."""
GRADER_TIMEOUTS: Final = Metric("reward/grader_timeouts", better="lower")
"""Number of responses whose answer the grader did not compare in time."""
GRADER_ERRORS: Final = Metric("reward/grader_errors", better="lower")
"""Number of responses whose answer the grader failed on."""
UNIFORM_GROUPS: Final = Metric("reward/zero_variance_groups", "groups with equal rewards")
"""Fraction of groups (of at least two) whose total rewards are all equal: most estimators learn nothing from them."""
variant_reward: Final = MetricFamily("reward/variant/<variant>")
"""Mean total reward of the responses to one of the template's prompts. Only logged if the template gives several
prompts for a problem."""
reward_part: Final = MetricFamily("reward/part/<part>")
"""Mean of a part of the reward, over the responses that have it."""
reward_count: Final = MetricFamily("reward/count/<count>")
"""Counts of the reward since its start (`Reward.metrics`)."""

# --- tool -----------------------------------------------------------------------------------------------------

CODE_RATIO: Final = Metric("tool/code_ratio", short="code", form=".2f")
"""Responses with at least one code block / responses (ToRL, figure 5a)."""
GREEDY_CODE_RATIO: Final = Metric("tool/greedy_code_ratio", short="greedy", form=".2f")
"""Code ratio of one greedy response per problem (evaluations only)."""
PASS_RATIO: Final = Metric("tool/pass_ratio", short="pass", form=".2f", better="higher")
"""Successful runs / runs (ToRL, figure 5b)."""
PASS_RATIO_CORRECT: Final = Metric("tool/pass_ratio_correct", "pass ratio in correct responses", form=".2f")
"""Pass ratio within correct responses (ToRL, figure 5c)."""
PASS_RATIO_INCORRECT: Final = Metric("tool/pass_ratio_incorrect", "pass ratio in incorrect responses", form=".2f")
"""Pass ratio within incorrect responses (ToRL, figure 5c)."""
EXECUTED_RATIO: Final = Metric("tool/executed_ratio", "executed code blocks", form=".2f")
"""Code blocks that ran / code blocks written (ToRL, figure 5d)."""
BEFORE_ANSWER_RATIO: Final = Metric("tool/before_answer_ratio", "code blocks before the answer", form=".2f")
"""Code blocks that begin before the final answer / code blocks written; 0 without an answer (ToRL, figure 5d)."""
CODE_BLOCKS_PER_RESPONSE: Final = Metric("tool/code_blocks_per_response", "code blocks of a response", form=".3f")
"""Code blocks / responses: the code ratio of ZeroTIR."""
CALLS_PER_TRAJECTORY: Final = Metric("tool/calls_per_trajectory", "tool calls of a response", short="calls", form=".2f")
"""Tool calls / trajectories, including calls without code."""
RIGHT_TOOL: Final = Metric("tool/correct_tool")
"""Fraction of responses with tool calls that call only the tool named in the problem's metadata (`tool`). Only logged
if problems name one."""
CALLS_WITHOUT_CODE: Final = Metric("tool/unexecuted_calls")
"""Tool calls without a run (no closed block, malformed, beyond the limit) / tool calls."""
RECOVERED_ERRORS: Final = Metric("tool/recovered_errors")
"""Correct responses in which a run failed and a later run succeeded / responses."""
CODE_LINES: Final = Metric("tool/code_lines", "lines of a code block")
"""Mean number of lines of a code block, without empty lines and comments: trivial code is short."""
CODE_NAMES: Final = Metric("tool/code_names", "names of a code block")
"""Mean number of distinct names that a code block calls or defines."""
CROSS_CHECKED: Final = Metric("tool/cross_checked", "cross-checked responses")
"""Responses that state a boxed answer and then run code that prints output / responses. Only the first such run counts,
and only boxed answers are found."""
CROSS_CHECK_AGREED: Final = Metric("tool/cross_check_agreed", "cross-checks that agree")
"""Fraction of the cross-checked responses in which the last line printed is the answer stated before."""
CROSS_CHECK_CORRECTED: Final = Metric("tool/cross_check_corrected", "correct answers after a contradiction")
"""Fraction of the cross-checked responses with another last line that have a correct final answer."""
CROSS_CHECK_CHANGED: Final = Metric("tool/cross_check_changed", "answers changed after a cross-check")
"""Fraction of the cross-checked responses whose final answer is not the answer stated before the run."""
RAN_BEFORE_ANSWER: Final = Metric("tool/ran_before_answer", "code before the first answer")
"""Responses with a successful run before their first boxed answer / responses with a successful run."""
RAN_AFTER_ANSWER: Final = Metric("tool/ran_after_answer", "code after the first answer")
"""Responses with a successful run after their first boxed answer / responses with a successful run."""
REASONED_BEFORE_CODE: Final = Metric("tool/reasoned_before_code")
"""Responses with at least 30 words of text before their first code block / responses with code."""
CHANGED_CODE: Final = Metric("tool/changed_code")
"""Responses in which a run shares less than half of its lines with the run before it / responses with at least two
runs. Lines of both that are equal except for spaces count, relative to the distinct lines of both."""
INVENTED_RESULTS: Final = Metric("tool/invented_results", better="lower")
"""Responses in which the model wrote a tool result itself / responses. Only logged for formats that mark results."""
CODE_LINES_HARD: Final = Metric("tool/code_lines_hard", "lines of a code block in hard groups")
"""Mean number of lines of a code block in groups (of at least two) with an accuracy below 1/2."""
CODE_LINES_EASY: Final = Metric("tool/code_lines_easy", "lines of a code block in easy groups")
"""Mean number of lines of a code block in groups (of at least two) with an accuracy of at least 1/2."""
WAIT_SHARE: Final = Metric("tool/wait_fraction")
"""Seconds that episodes waited for tools / seconds of the episodes."""
status_fraction: Final = MetricFamily("tool/status/<status>")
"""Runs with this `OutcomeStatus` / runs."""
error_fraction: Final = MetricFamily("tool/error/<exception>")
"""Runs that ended with this exception / runs."""
tool_count: Final = MetricFamily("tool/<tool>/<count>")
"""Counts of a tool since its start (`Tool.metrics`). The sandbox of `python` counts "shared" (runs that were answered
with the outcome of an equal one), "retried" (runs whose worker died) and "workers_replaced". Other tools count
"calls", "retried", "unavailable" (calls that failed after all retries) and "cut" (truncated results), MCP servers
also "connected" (connections that were made)."""

# --- environment ------------------------------------------------------------------------------------------

ENVIRONMENT_MESSAGES: Final = Metric("environment/messages", "messages of the environment")
"""Mean number of the environment's messages in a response, without the results of its tools."""
ENVIRONMENT_ENDED: Final = Metric("environment/ended", "responses ended by the environment")
"""Fraction of responses that the environment ended."""
TURN_LIMIT: Final = Metric("environment/turn_limit", "responses at the limit of turns")
"""Fraction of responses that ended at `rollout.max_turns`."""
environment_count: Final = MetricFamily("environment/count/<count>")
"""Counts of the environment since its start. It counts "episodes", "retried", "failed", "cut" (truncated texts) and
"unclosed" (sessions whose `close` failed)."""
agent_count: Final = MetricFamily("agent/<count>")
"""Counts of agent programs and their requests since the start. Programs count as "crashed", "timed_out" or
"no_request", requests as "turns" or, after an error, "refused"."""

# --- response ---------------------------------------------------------------------------------------------

RESPONSE_TOKENS: Final = Metric("response/tokens", "response tokens", short="tokens", form=".0f")
"""Mean number of tokens of a response, observations included."""
SAMPLED_TOKENS: Final = Metric("response/sampled_tokens")
"""Mean number of sampled tokens of a response."""
OBSERVED_TOKENS: Final = Metric("response/observed_tokens")
"""Mean number of observation tokens of a response."""
MAX_RESPONSE: Final = Metric("response/max_tokens", "tokens of the longest response")
"""Number of tokens of the longest response."""
TURNS: Final = Metric("response/turns")
"""Mean number of turns of a response."""
TRUNCATED: Final = Metric("response/truncated", "truncated responses", short="cut", form=".2f", better="lower")
"""Fraction of responses truncated at the token limit."""
EPISODE_SECONDS: Final = Metric("response/episode_seconds")
"""Mean duration of an episode, in seconds."""
BRANCHES: Final = Metric("response/branches")
"""Mean number of further responses per episode, for agent programs that change their history. Each counts as a response
in the metrics above."""

# --- selection: trajectories that a step does not learn from -------------------------------------------------

SELECTION_ROUNDS: Final = Metric("selection/rounds", "sampling rounds")
"""Number of sampling rounds of a step; more than 1 only with dynamic sampling."""
SELECTION_FAILED: Final = Metric("selection/failed_groups")
"""Number of groups dropped because too few of their episodes are left to compare; not those without any."""
SELECTION_SMALL: Final = Metric("selection/small_groups")
"""Number of groups dropped because member filters left too few members."""
SELECTION_SURPLUS: Final = Metric("selection/surplus_groups")
"""Number of groups dropped because the batch was full."""
SELECTION_MISSING: Final = Metric("selection/missing_groups")
"""Number of groups missing from the batch after the last round of dynamic sampling."""
dropped_groups: Final = MetricFamily("selection/dropped_groups/<name>")
"""Groups dropped by a filter of `selection.groups`."""
dropped_members: Final = MetricFamily("selection/dropped_members/<name>")
"""Trajectories dropped by a filter of `selection.members`."""
masked: Final = MetricFamily("selection/masked/<reason>")
"""Trajectories masked for this reason (`torl.training.selection`)."""
RENAMED: Mapping[str, str] = MappingProxyType(
    {
        "selection/zero_variance_groups": dropped_groups("zero_variance"),
        "selection/out_of_range_groups": dropped_groups("accuracy_outside"),
        "selection/undecided_groups": dropped_groups("undecided"),
    }
)
"""The metrics of earlier runs that have another name now. Those runs counted 0 for a filter that they did not have."""

# --- learner --------------------------------------------------------------

LOSS: Final = Metric("learner/loss", form=".4f")
"""Loss of the policy, with all its terms."""
IMITATION_LOSS: Final = Metric("learner/imitation_loss")
"""Term of the loss for imitated tokens: their weighted cross-entropy, divided by their number."""
ENTROPY: Final = Metric("learner/entropy", form=".3f")
"""Mean entropy at the sampled tokens that the learner computes, in nats. Trajectories without an advantage are skipped
if no other term moves the policy, so hard problems remain as groups become uniform."""
GRADIENT_NORM: Final = Metric("learner/gradient_norm", short="gradient", form=".3f")
"""Global gradient norm before clipping."""
CHANGED_WEIGHTS: Final = Metric("learner/changed_weights")
"""Fraction of a sample of the policy's weights, in the precision of `learner.dtype`, that an optimizer step changed."""
LEARNING_RATE: Final = Metric("learner/learning_rate", short="rate", form=".2e")
"""Learning rate of the policy."""
CLIP_FRACTION: Final = Metric("learner/clip_fraction")
"""Fraction of the computed sampled tokens whose importance ratio was clipped."""
DUAL_CLIP_FRACTION: Final = Metric("learner/dual_clip_fraction")
"""Fraction of the computed sampled tokens whose gradient the dual clip removed; 0 for a loss without one."""
APPROXIMATE_KL: Final = Metric("learner/approximate_kl")
"""Estimated KL divergence of the policy before the step's updates from the policy in them (k3), in nats per computed
sampled token. About 0 with one optimizer step."""
REFERENCE_KL: Final = Metric("learner/reference_kl")
"""Mean of `algorithm.kl.estimator` over the computed sampled tokens: the KL divergence of the policy from the reference
model, in nats per token. Only logged with a reference model."""
IMPORTANCE_WEIGHT: Final = Metric("learner/importance_weight")
"""Mean weight of a computed sampled token by `algorithm.importance_correction`. Only logged with a correction."""
IMPORTANCE_MASKED: Final = Metric("learner/importance_masked")
"""Fraction of the computed sampled tokens to which the correction gives the weight 0. Only logged with a correction."""
LOGPROB_GAP_MEAN: Final = Metric("learner/logprob_gap_mean", "mean log-probability gap")
"""Mean |trainer logprob - engine logprob| over the computed sampled tokens, in nats."""
LOGPROB_GAP_ON_POLICY: Final = Metric("learner/logprob_gap_on_policy")
"""The same mean over the tokens that the trained policy itself sampled, which leaves rounding. It stops the run if the
two hold different weights (`learner.max_logprob_gap`)."""
LOGPROB_GAP_PROBE: Final = Metric("learner/logprob_gap_probe")
"""The same mean over a few tokens that the engine samples after the weight transfer before the step; with several
replicas, the largest of theirs. Only in runs whose batches cannot show the difference: asynchronous ones, and those
whose engine samples from another distribution."""
ON_POLICY_FRACTION: Final = Metric("learner/on_policy_fraction")
"""Fraction of the computed sampled tokens that the trained policy itself sampled."""
LOGPROB_GAP_MAX: Final = Metric("learner/logprob_gap_max", "maximum log-probability gap")
"""Maximum |trainer logprob - engine logprob| over the computed sampled tokens, in nats."""
LOGPROB_GAP_KL: Final = Metric("learner/logprob_gap_kl")
"""Estimated KL divergence of the engine from the trainer, in nats per token."""
LEARNED_TOKENS: Final = Metric("learner/tokens", "learned tokens", short="tokens", form=".0f")
"""Number of tokens of the computed samples, prompts included. A prompt counts once for each of its samples, also if a
row has it once; a sample counts once for each of `algorithm.epochs`."""
TRAINED_TOKENS: Final = Metric("learner/sampled_tokens", "trained tokens")
"""Number of sampled tokens of the computed samples, once for each epoch; in fine-tuning, of tokens with a loss."""
IMITATED_TOKENS: Final = Metric("learner/imitated_tokens")
"""Number of tokens with an imitation weight. Only logged if there are any."""
SAMPLES: Final = Metric("learner/samples")
"""Number of computed samples (responses), once for each epoch."""
ROWS: Final = Metric("learner/rows")
"""Number of rows that the samples were packed into (`learner.max_row_tokens`), over all ranks and optimizer steps."""
UPDATES: Final = Metric("learner/updates")
"""Number of optimizer steps of the policy; 0 if no sample of the batch moves it."""
UPDATE_SECONDS: Final = Metric("learner/update_seconds")
"""Time of these optimizer steps on the first rank: forward, backward and update, in seconds."""
UPDATE_TIME: Final = Metric("learner/seconds", "update time")
"""Time of all optimizer steps, the critic's as well, with packing and the exchange with the ranks, in seconds."""
VALUE_MEAN: Final = Metric("learner/critic_value_mean")
"""Mean value that the critic gives a sampled token."""
SQUARED_ERROR: Final = Metric("learner/critic_squared_error")
"""Mean squared difference of value and return at a sampled token."""
VALUE_ERROR_MAX: Final = Metric("learner/critic_error_max")
"""Maximum |value - return| over the sampled tokens."""
EXPLAINED_VARIANCE: Final = Metric("learner/critic_explained_variance")
"""1 - variance(returns - values) / variance(returns) over the sampled tokens, with the values before the step: 1 for a
perfect critic, 0 for one that predicts nothing."""
of_critic: Final = MetricFamily("learner/critic_<name>")
"""A metric of the learner, of the critic's optimizer steps."""

# --- fine-tuning ------------------------------------------------------------------------------------------

VALIDATION_LOSS: Final = Metric("validation/loss", "validation loss", form=".4f", better="lower")
"""Mean cross-entropy of the trained tokens of the validation examples, in nats (`torl finetune`). The loss of a step is
`learner/loss`."""
VALIDATION_TOKENS: Final = Metric("validation/tokens", "validation tokens")
"""Number of trained tokens of the validation examples."""

# --- time ---------------------------------------------------------------------------------------------------

TIME_STEP: Final = Metric("time/step", "seconds of a step", short="seconds", form=".1f")
"""Duration of a step in seconds, from its first prompt to its new weights. Excludes evaluations, and checkpoints unless
these wait for the GPUs."""
TIME_WAIT: Final = Metric("time/wait_for_rollout", "waiting for episodes", short="sampling")
"""Seconds that the learner waited for the episodes of the step."""
TIME_ENGINE_IDLE: Final = Metric("time/engine_idle")
"""Seconds that the engine had no request, from the end of the last step to the end of this one."""
TIME_ROLLOUT: Final = Metric("time/rollout", "playing episodes", short="rollout")
"""Seconds from the first episode of the step to the last grade and the selection of the batch. With
`rollout.max_staleness`, most of it precedes the step."""
TIME_REWARD: Final = Metric("time/reward", "waiting for grades", short="reward")
"""Seconds of the rollout in which all episodes had ended and grades were awaited."""
TIME_LEARN: Final = Metric("time/train", "learning")
"""Seconds of the learner: masks, log-probabilities and values before the update, advantages, optimizer steps, and the
digest of the new weights."""
TIME_SYNC: Final = Metric("time/weight_sync", "weight transfer", short="weights")
"""Seconds of the weight transfer to the engine."""
TIME_EVALUATION: Final = Metric("time/evaluation", "evaluations")
"""Seconds of the evaluations."""
TIME_CHECKPOINT: Final = Metric("time/checkpoint", "checkpoints")
"""Seconds that a checkpoint blocks training: it is copied, and written during the next steps."""

# --- asynchrony -------------------------------------------------------------------------------------------

STALENESS_MEAN: Final = Metric("rollout/staleness_mean")
"""Mean number of updates between the policy that sampled a token and the policy that learns from it."""
STALENESS_MAX: Final = Metric("rollout/staleness_max")
"""Maximum number of updates between these policies."""
SPANNING: Final = Metric("rollout/mixed_version_fraction")
"""Fraction of trajectories sampled by more than one policy version."""
FAILED_EPISODES: Final = Metric("rollout/failed_episodes", better="lower")
"""Number of failed episodes, which are missing from their groups."""
CACHED_SHARE: Final = Metric("rollout/prefix_cache_hit_rate")
"""Fraction of the prefix tokens found in the engine's prefix cache, over the turns after the first."""
SPECULATED: Final = Metric("tool/speculated", "speculative runs")
"""Number of runs started when their code block closed, since the start of the process."""
SPECULATIONS_WASTED: Final = Metric("tool/speculated_wasted", "wasted speculative runs")
"""Number of these runs whose outcome was never requested."""

# --- health ---------------------------------------------------------------------------------------------------

FINDINGS: Final = Metric("health/diagnoses")
"""Number of the doctor's findings in the run up to this step (`health.mode`)."""
finding: Final = MetricFamily("health/<check>")
"""1 at a step at which this check of the doctor fires."""

# --- data -------------------------------------------------------------------------------------------------

EPOCH: Final = Metric("data/epoch")
"""Current pass over the problems."""
TRAINED_GROUPS: Final = Metric("data/trained_groups")
"""Number of groups of the batch, also those whose rewards are all equal or whose trajectories are all masked."""
LONG_TEACHER_PROMPTS: Final = Metric("data/long_teacher_prompts")
"""Number of responses that are too long after their prompt of `algorithm.kl.prompt`: the reference model saw them after
the policy's prompt, so that self-distillation learns nothing from them. Only logged with such prompts."""
scheduled_value: Final = MetricFamily("schedule/<setting>")
"""Value of a setting that changes with the step."""
evaluation_name: Final = MetricFamily("evaluation/<set>/<name>")
"""A metric of an evaluation set."""
kind_name: Final = MetricFamily("by/<value>/<name>")
"""A metric of the problems with a value of `run.group_metrics_by`."""


METRICS: Final[Mapping[str, Metric]] = {each: each for each in list(globals().values()) if isinstance(each, Metric)}
"""All metrics by their names."""
FAMILIES: Final = tuple(each for each in list(globals().values()) if isinstance(each, MetricFamily))
"""All families of metrics."""


def speculation_counts(speculated: int, wasted: int) -> dict[str, float]:
    """Return the counts of speculative runs by name."""
    return {SPECULATED: speculated, SPECULATIONS_WASTED: wasted}


def tool_counts(name: str, counts: Mapping[str, float]) -> dict[str, float]:
    """Return the counts of a tool by name."""
    return tool_count.row(counts, name)


def environment_counts(counts: Mapping[str, float]) -> dict[str, float]:
    """Return the counts of the environment by name."""
    return environment_count.row(counts)


def scheduled_values(values: Mapping[str, float]) -> dict[str, float]:
    """Return the values of the settings that change with the step, by name."""
    return scheduled_value.row(values)


def critic_metric(metric: str) -> str:
    """Return the name of a metric of the learner in the optimizer steps of the critic."""
    return of_critic(metric.removeprefix("learner/"))


def learner_metrics(report: Mapping[str, float]) -> dict[str, float]:
    """Return the values that the learner reports under their names in a row."""
    return {f"learner/{name}": value for name, value in report.items()}


def evaluation_metrics(set_name: str, metrics: Mapping[str, float]) -> dict[str, float]:
    """Return the metrics of an evaluation set under their names in a row."""
    return evaluation_name.row(metrics, set_name)


def kinds_of(rows: Iterable[Mapping[str, object]], name: str) -> dict[str, str]:
    """Return the values of `run.group_metrics_by` that rows have this metric of, with its full name."""
    ending = f"/{name}"
    found = {full for row in rows for full in row if full in kind_name and full.endswith(ending)}
    return {full.removeprefix(kind_name.prefix).removesuffix(ending): full for full in sorted(found)}


def is_evaluation_metric(name: str) -> bool:
    """Whether evaluations may have a metric with this plain name."""
    is_declared = name in METRICS and name.startswith(("reward/", "tool/", "response/", "environment/"))
    families = (reward_part, variant_reward, status_fraction, error_fraction, kind_name)
    return is_declared or name in (TOO_LONG, FAILED_EPISODES) or any(name in family for family in families)


def quality(name: str, value: float) -> float:
    """Return a number that is higher for a better value of an evaluation metric."""
    metric = METRICS.get((split_evaluation(name) or ("", name))[1])
    return -value if metric is not None and metric.better == "lower" else value


def split_evaluation(name: str) -> tuple[str, str] | None:
    """Split the name of an evaluation metric into (set, name); None for other names."""
    if name not in evaluation_name:
        return None
    set_name, _, plain = name.removeprefix(evaluation_name.prefix).partition("/")
    return set_name, plain
