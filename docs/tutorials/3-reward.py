# %% [markdown]
# # 3. Your own problems and your own reward
#
# Components are functions or classes in a module of yours. The configuration names them as `module:name`.

# %%
from pathlib import Path

import torl
import torl_lab

Path("my_project.py").write_text(
    '''
"""Problems about products, and a reward for short responses."""

from collections.abc import Iterator
from random import Random

from torl import Problem, Trajectory


def products(count: int = 200, largest: int = 999) -> Iterator[Problem]:
    random = Random(0)
    for number in range(count):
        a, b = random.randint(1, largest), random.randint(1, largest)
        yield Problem(f"product-{number}", f"Let x be the product of {a} and {b}. Find x plus {b}.", str(a * b + b))


def brief(trajectory: Trajectory, limit: int = 100) -> float:
    return float(len(trajectory) <= limit)
''',
    encoding="utf-8",
)

# %% [markdown]
# A reward is a function of a trajectory. Options such as `limit` are its other parameters; their annotations are
# checked. The default reward is a rubric, a weighted sum of parts, to which we add ours.

# %%
Path("train.toml").write_text(
    """
extends = "demo"

[run]
directory = "runs/brief"
steps = 4

[data]
evaluation = {}

[data.train]
name = "my_project:products"
count = 300

[reward]
parts.answer = "math"
parts.brief = { name = "my_project:brief", weight = 0.2, limit = 30 }
""",
    encoding="utf-8",
)
run = torl.train("train.toml")

# %% [markdown]
# Each part is a separate metric.

# %%
for name in ("reward/mean", "reward/part/answer", "reward/part/brief"):
    print(f"{name:18}", *(f"{value:6.3f}" for value in run.metrics[name]))

# %% [markdown]
# ## Is it right?
#
# `verify` audits a run from its own files: metrics, selection and advantages with another implementation, and
# log-probabilities with transformers. A reward of yours has no other implementation: it is called a second time.

# %%
audit = torl_lab.verify(run, logprob_samples=8)
assert audit.ok
print(audit)

# %% [markdown]
# ## A mistake
#
# An unknown option is refused before anything starts; an exception in your function stops the run with the line of
# your code ([errors and remedies](../troubleshooting.md)).

# %%
try:
    torl.train("train.toml", {"reward.parts.brief.limits": 30})
except torl.ConfigError as error:
    print(error)

# %% [markdown]
# A reward that compares the members of a group, or rewards single turns, is a class:
# [extending torl](../extending.md#reward). Next: [your own tool](4-tool.ipynb).
