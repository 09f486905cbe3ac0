# %% [markdown]
# # 6. Read a run
#
# A run's directory has everything: metrics, trajectories with tokens and log-probabilities, checkpoints. We train a few
# steps to have one.

# %%
from collections import Counter

import torl
import torl_lab

torl.train(
    "demo", run={"directory": "runs/read", "steps": 5}, evaluation={"max_problems": 64}, checkpoint={"every_steps": 5}
)
run = torl.Run("runs/read")  # any run, also while it is written
print(*run.outcome, sep="\n")

# %% [markdown]
# ## Which numbers to look at
#
# [Metrics](../reference/metrics.md) has the meaning of each name. These are the first to read:
#
# | metric | healthy | if not |
# |---|---|---|
# | `reward/accuracy` | rises, as does that of evaluations | the rows below |
# | `reward/zero_variance_groups` | far below 1 | easier or harder problems: equal rewards teach nothing |
# | `response/truncated` | small | raise `rollout.max_response_tokens` |
# | `learner/entropy` | falls slowly | a collapse stops exploration: lower learning rate, `clip_high` |
# | `learner/gradient_norm` | steady | spikes: lower learning rate |
# | `learner/logprob_gap_on_policy` | near 0, constant | the engine computes another policy ([weights](../weights.md)) |
# | `tool/pass_ratio` | rises | the model's code fails: read some trajectories |
# | `rollout/failed_episodes` | 0 or missing | the host fails, not the model: read the log |

# %%
names = (
    "reward/accuracy",
    "reward/zero_variance_groups",
    "response/truncated",
    "learner/entropy",
    "learner/gradient_norm",
    "learner/logprob_gap_on_policy",
    "tool/pass_ratio",
)
for name in names:
    print(f"{name:30}", *(f"{value:9.3g}" for value in run.metrics[name]))

# %% [markdown]
# ## Trajectories
#
# Curves hide what the model does. How do responses end, and which mistakes does its code make?

# %%
records = list(run.trajectories())
print(Counter(str(record.trajectory.finish_reason) for record in records))
calls = [call for record in records for call in record.trajectory.tool_calls]
print(Counter(call.outcome.error for call in calls))

# %% [markdown]
# A wrong answer although the code ran is worth reading.

# %%
wrong = next(
    record.trajectory
    for record in records
    if not record.grade.correct and any(call.outcome.ok for call in record.trajectory.tool_calls)
)
print(wrong.prompt.problem.question, "Reference:", wrong.prompt.problem.answer, "\n")
print(wrong.text)

# %% [markdown]
# ## Is the run what it says?
#
# The audit recomputes tokens, rewards, advantages, metrics and log-probabilities from the files.

# %%
audit = torl_lab.verify(run, logprob_samples=8)
assert audit.ok
print(audit)

# %% [markdown]
# `torl view runs/read` shows all of this in the browser, token by token ([looking at runs](../view.md)), and
# `torl report A B` draws the curves of several runs over each other.
