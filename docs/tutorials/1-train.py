# %% [markdown]
# # 1. Train a model and look at it
#
# torl ships with a base model of 2 million parameters that writes Python now and then, often with mistakes. We train it
# for twelve steps on two cores, without a GPU. [Installation](../install.md) is all that it needs.

# %%
import torl

run = torl.train(
    "demo",
    run={"directory": "runs/first", "steps": 12},
    evaluation={"every_steps": 12, "max_problems": 64, "samples_per_problem": 2},
)

# %% [markdown]
# "demo" is a *preset*: a configuration that ships with torl. Every setting can be overridden, here by keywords. The
# same from a shell:
#
# ```console
# $ torl train demo --run.directory runs/first --run.steps 12 --evaluation.every_steps 12 --evaluation.max_problems 64
# ```
#
# In each step the model answers 16 problems, 8 times each. A correct answer is rewarded with 1, a wrong one with -1.
# GRPO compares the eight responses of a problem: those above the average become more likely, those below less.

# %%
run

# %% [markdown]
# ## What did it learn?
#
# The rows of `run.metrics` are steps, its columns are [metrics](../reference/metrics.md). The code ratio is the
# fraction of responses that call Python.

# %%
for name in ("reward/accuracy", "tool/code_ratio", "tool/pass_ratio"):
    values = run.metrics[name]
    print(f"{name:18} first three steps {sum(values[:3]) / 3:.2f}, last three {sum(values[-3:]) / 3:.2f}")

# %% [markdown]
# ## A response
#
# Every trajectory is recorded. This is a correct response of the last step that called Python. The text between
# "```output" and the next fence came from the sandbox; it carries no loss.

# %%
records = list(run.trajectories(step=11))
shown = next(each.trajectory for each in records if each.grade.correct and each.trajectory.tool_calls)
print(shown.prompt.problem.question, "\n")
print(shown.text)

# %%
call = shown.tool_calls[0]
print(call.outcome.status, repr(call.outcome.text))

# %% [markdown]
# ## The files of a run
#
# Everything above was read from the run's directory: open `report.html` for its curves, or look at all trajectories
# with `torl view runs/first` ([looking at runs](../view.md)).

# %%
print(*sorted(path.name for path in run.directory.iterdir()), sep="\n")

# %% [markdown]
# Fifty steps, as `make demo` trains, lead from 0.10 to 0.62 on problems that were not trained on
# ([results and controls](../demo.md)). Next: [sample and evaluate](2-sample.ipynb).
