# %% [markdown]
# # 2. Sample and evaluate a model
#
# `torl.Policy` is a model with a running engine, its tools and its reward. It works in scripts and notebooks.

# %%
import torl

policy = torl.Policy("torl:demo/base_model", extends="demo")
policy.__enter__()  # in a script: `with torl.Policy(...) as policy:`
policy

# %% [markdown]
# ## Sample
#
# A problem has an id, a question and a reference answer. Questions alone work too, but then no response is correct.

# %%
problem = torl.Problem("gcd", "Let x be the greatest common divisor of 84 and 120. Find x plus 30.", "42")
groups = policy.sample([problem], samples_per_problem=8)
groups

# %% [markdown]
# The responses to one problem are a *group*. Each member has its trajectory and its grade.

# %%
for member in groups[0].members:
    trajectory, grade = member.trajectory, member.grade
    print(f"reward {grade.reward:2.0f}  answer {grade.answer!s:8} calls {len(trajectory.tool_calls)}  {trajectory!r}")

# %% [markdown]
# ## Tokens
#
# A trajectory holds the sampled token ids, so nothing is encoded again for training. The mask is true for sampled
# tokens; the result of a call is not sampled and has no loss.

# %%
trajectory = max((member.trajectory for member in groups[0].members), key=lambda each: len(each.tool_calls))
print("tokens", len(trajectory), "of which sampled", int(trajectory.loss_mask_T.sum()))
print(trajectory.text)

# %% [markdown]
# ## Evaluate
#
# An evaluation plays a problem set greedily and by samples, with and without tools, from the same seeds.

# %%
problems = "torl:demo/problems/heldout.jsonl"
for max_tool_calls in (None, 0):
    evaluation = policy.evaluate(problems, name="heldout", max_tool_calls=max_tool_calls)
    print("without tools" if max_tool_calls == 0 else "with tools   ", f"{evaluation.metrics['reward/accuracy']:.3f}")

# %%
policy.close()

# %% [markdown]
# From a shell, `torl evaluate MODEL --suite problems.jsonl --tools both` prints the same with confidence intervals
# ([from data to a table](../from-data-to-table.md)). Next: [your own reward](3-reward.ipynb).
