"""Mistakes that a test must notice: (file in python/torl, text, what it becomes, the tests to run).

The tests are words for pytest, relative to tests/, where " -k " begins a choice of names. Keep the texts short: a file
that is rewritten should rarely take its mistakes with it.
"""

_EXPERIENCE = "unit/test_experience.py"
_EVALUATE = "unit/test_evaluate.py"
_COMMAND = "integration/test_evaluate_command.py -k without_the_tool"
_GRADER = "integration/test_reward_grader.py -k grades or form or forgets or no_failed_code"
_EQUIVALENCE = "property/test_reward_equivalence.py"
_ANSWERS = "unit/test_reward_answers.py"
_TOKEN_ADVANTAGES = "property/test_algorithms_token_advantages.py"
_ADVANTAGES = "unit/test_algorithms_advantages.py"
_LOSSES = "unit/test_algorithms_losses.py"
_POLICY = "unit/test_learner_policy.py"
_SELECTION = "unit/test_algorithms_selection.py"
_SAMPLES = "unit/test_algorithms_samples.py"
_BATCH = "unit/test_learner_batch.py"
_MINI_BATCHES = "unit/test_learner_mini_batches.py"
_EPISODE = "unit/test_rollout_one_episode.py"
_TOOL = "unit/test_rollout_tool.py"
_OBSERVATION = "unit/test_rollout_observation.py"
_SCHEDULER = "unit/test_rollout_scheduler.py"
_TOKENIZER = "unit/test_rollout_tokenizer.py"
_PROMPTS = "unit/test_data_prompts.py"
_PROBLEMS = "unit/test_data_problems.py"
_SAMPLER = "property/test_data_sampler.py"
_DYNAMICS = "unit/test_metrics_dynamics.py"
_RECORDS = "unit/test_metrics_records.py"
_CHANNEL = "unit/test_weight_transfer_channel.py"
_VERIFY = "integration/test_train_verify.py -k "

MUTANTS: list[tuple[str, str, str, str]] = [
    # --- what a step is made of
    ("experience.py", "if not oldest <= version <= step:", "if False:", _EXPERIENCE),
    ("experience.py", "step - self._config.rollout.max_staleness)", "step - 9)", _EXPERIENCE),
    ("experience.py", "normalize=self._config.algorithm.normalize_rewards", "normalize=False", _EXPERIENCE),
    ("experience.py", "crashes > _CRASH_SHARE * len(outcomes)", "crashes == len(outcomes)", _EXPERIENCE),
    ("experience.py", "len(outcomes) >= _CALLS_TO_JUDGE and ", "", _EXPERIENCE),
    ("experience.py", ', step, "shuffled rewards")', ', "shuffled rewards")', _EXPERIENCE),
    ("experience.py", "batch = set(kept[:wanted])", "batch = set(kept)", _EXPERIENCE),
    ("experience.py", "self._next - policy_version <= ", "self._next - policy_version < ", _EXPERIENCE),
    ("experience.py", "limit, reward.overlong_buffer)", "limit, 0)", _EXPERIENCE),
    # --- evaluation
    ("evaluate.py", "replace(player.settings, temperature=temperature)", "player.settings", _EVALUATE),
    ("evaluate.py", "prompts[: config.max_problems]", "prompts", _EVALUATE),
    ("evaluate.py", 'label=f"{name}-{label}"', "label=label", _EVALUATE),
    (
        "evaluate.py",
        "trajectories.sort(key=lambda trajectory: (trajectory.group, trajectory.sample))",
        "pass",
        _EVALUATE,
    ),
    ("evaluate.py", 'changes["max_tool_calls"] = 0', 'changes["max_tool_calls"] = 1', _COMMAND),
    ("evaluate.py", 'changes["max_problems"] = options.max_problems', "pass", _COMMAND),
    # --- rewards
    ("reward/grader.py", "process.ask(reference, answer,", "process.ask(answer, reference,", _GRADER),
    ("reward/grader.py", "                self._crashes_in_a_row = 0\n", "", _GRADER),
    ("reward/grader.py", "-?[1-9][0-9]{0,29}|0", "-?[0-9]{1,30}", _EQUIVALENCE),
    ("reward/grader.py", "max(LONGEST_ANSWER, 2 * len(reference))", "LONGEST_ANSWER", _EQUIVALENCE),
    ("reward/grader.py", "if verdict.correct and valid else", "if verdict.correct else", _GRADER),
    ("reward/grader.py", "call.ran and not call.outcome.ok", "not call.outcome.ok", _GRADER),
    ("reward/equivalence.py", "verify(gold, target,", "verify(target, gold,", _EQUIVALENCE),
    ("reward/answers.py", "text.count(tag) != 1", "text.count(tag) < 1", _ANSWERS),
    ("reward/answers.py", " and not after.strip()", "", _ANSWERS),
    ("reward/answers.py", "box_opened[0] > last.start", "box_opened[0] < last.start", _ANSWERS),
    ("algorithms/rewards.py", "- (limit - buffer)", "- limit", _SELECTION),
    ("algorithms/rewards.py", "rewards_N.std(ddof=1)", "rewards_N.std()", _EXPERIENCE),
    # --- advantages
    (
        "algorithms/advantages.py",
        'normalize or estimator in ("reinforce_plus_plus", "reinforce_plus_plus_baseline")',
        'normalize or estimator == "reinforce_plus_plus"',
        _TOKEN_ADVANTAGES,
    ),
    (
        "algorithms/advantages.py",
        "token_rewards_M is not None or discount != 1",
        "token_rewards_M is not None",
        _TOKEN_ADVANTAGES,
    ),
    ("algorithms/advantages.py", "rewards_N + _core.row_sums", "rewards_N - _core.row_sums", _TOKEN_ADVANTAGES),
    (
        "algorithms/advantages.py",
        'group_advantages("dr_grpo", rewards_N',
        'group_advantages("rloo", rewards_N',
        _TOKEN_ADVANTAGES,
    ),
    ("algorithms/advantages.py", "len(rewards) == 1 or min(rewards)", "min(rewards)", _ADVANTAGES),
    ("algorithms/advantages.py", "-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)", "-1e9, LOG_RATIO_LIMIT)", _ADVANTAGES),
    ("algorithms/samples.py", "-algorithm.kl_coefficient", "algorithm.kl_coefficient", _SAMPLES),
    ("algorithms/samples.py", "array[len(sample) - response_tokens :]", "array[:response_tokens]", _SAMPLES),
    # --- losses
    ("algorithms/losses.py", "_k3(token_log_ratio.detach())", "_k3(-token_log_ratio.detach())", _LOSSES),
    ("algorithms/losses.py", "torch.maximum(unclipped, clipped)", "torch.minimum(unclipped, clipped)", _LOSSES),
    (
        "algorithms/losses.py",
        "weight = ratio.clamp(1 - clip_low, 1 + clip_high)",
        "weight = ratio.clamp(1 - clip_low, 1 + clip_low)",
        _LOSSES,
    ),
    ("algorithms/losses.py", "(advantages < 0) & (per_token > ceiling)", "per_token > ceiling", _LOSSES),
    ("algorithms/losses.py", ".clamp(max=high)", ".clamp(min=low, max=high)", _LOSSES),
    ("algorithms/losses.py", "torch.maximum(errors, clipped) / 2", "clipped / 2", _LOSSES),
    ("algorithms/losses.py", "return -x\n", "return x\n", _LOSSES),
    (
        "algorithms/aggregation.py",
        "(trajectories * np.maximum(tokens_N, 1))",
        "(len(tokens_N) * np.maximum(tokens_N, 1))",
        _LOSSES,
    ),
    ("algorithms/aggregation.py", "1 / max(1.0, tokens_N.sum())", "1 / len(tokens_N)", _BATCH),
    ("learner/objective.py", "per_token = per_token * weights", "pass", _POLICY),
    ("learner/objective.py", "per_token + algorithm.kl_coefficient", "per_token - algorithm.kl_coefficient", _POLICY),
    ("learner/objective.py", "per_token - algorithm.entropy_bonus", "per_token + algorithm.entropy_bonus", _POLICY),
    # --- selection
    (
        "algorithms/selection.py",
        "low < sum(correct) / len(correct) < high",
        "low <= sum(correct) / len(correct) <= high",
        _SELECTION,
    ),
    ("algorithms/selection.py", "FinishReason.LENGTH and not grade.correct", "FinishReason.LENGTH", _SELECTION),
    ("algorithms/selection.py", "if grade.correct and invents_output", "if invents_output", _SELECTION),
    ("algorithms/selection.py", "> config.mask_repetition_above", "< config.mask_repetition_above", _SELECTION),
    ("algorithms/selection.py", ' if trajectory.format == "torl" else 0', "", _SELECTION),
    # --- batches
    ("learner/batch.py", "predictor_K=target_place_K - 1", "predictor_K=target_place_K", _BATCH),
    ("learner/batch.py", "if counts[index] and not (", "if not (", _BATCH),
    (
        "learner/batch.py",
        "np.arange(length, dtype=np.int32) for",
        "np.arange(1, length + 1, dtype=np.int32) for",
        _BATCH,
    ),
    ("learner/mini_batches.py", "repr((key, epoch))", "repr(key)", _MINI_BATCHES),
    ("learner/mini_batches.py", "sum(values) if name in _SUMS else ", "", _MINI_BATCHES),
    (
        "learner/mini_batches.py",
        "(returns - values).var(dtype=np.float64)",
        "((returns - values) ** 2).mean(dtype=np.float64)",
        _MINI_BATCHES,
    ),
    # --- episodes
    ("rollout/episode.py", "await episode.tool.close()", "pass", _EPISODE),
    ("rollout/episode.py", "end_at_void_turn and not self._has_answer()", "end_at_void_turn", _EXPERIENCE),
    ("rollout/episode.py", "encode(observation)[: self._remaining()]", "encode(observation)", _EPISODE),
    ("rollout/episode.py", '.endswith(b"\\n")\n    return True', '.endswith(b"\\n")\n    return False', _EPISODE),
    ("rollout/episode.py", "self.prompt.problem.id, self.sample, turn)", "self.prompt.problem.id, turn)", _EPISODE),
    ("rollout/episode.py", "derive_seed(settings.seed, step, prompt", "derive_seed(settings.seed, prompt", _EPISODE),
    ("rollout/episode.py", "len(sampled.token_ids) - kept\n", "0\n", _EPISODE),
    (
        "rollout/tool.py",
        "            early.task.cancel()\n            early.task.add",
        "            early.task.add",
        _TOOL,
    ),
    ("rollout/tool.py", "if self._early.code == code:", "if False:", _TOOL),
    ("rollout/tool.py", "if outcome.ok and self._state", "if self._state", _TOOL),
    ("rollout/tool.py", "self._session.fork()", "self._session", _TOOL),
    ("rollout/formats.py", "if rest.startswith(overshoot):", "if False:", _OBSERVATION),
    (
        "rollout/formats.py",
        'TurnEnd(b"```output", at_line_start) if calls <',
        'TurnEnd(b"```output", at_line_start) if calls <=',
        _OBSERVATION,
    ),
    (
        "rollout/formats.py",
        "TurnEnd(None, at_line_start) if calls <",
        "TurnEnd(None, at_line_start) if calls <=",
        _OBSERVATION,
    ),
    ("rollout/formats.py", "> self.max_observation_tokens", ">= self.max_observation_tokens", _OBSERVATION),
    (
        "rollout/observation.py",
        "_LIMIT_LINES.get(outcome.status) or outcome.exception_line",
        "outcome.exception_line or _LIMIT_LINES.get(outcome.status)",
        _OBSERVATION,
    ),
    ("rollout/observation.py", "text[len(text) - half :]", "text[half:]", _OBSERVATION),
    ("rollout/observation.py", 'outcome.stdout.rstrip("\\n")', "outcome.stdout.strip()", _OBSERVATION),
    (
        "rollout/scheduler.py",
        "sorted(group.trajectories, key=lambda trajectory: trajectory.sample)",
        "group.trajectories",
        _SCHEDULER,
    ),
    (
        "rollout/scheduler.py",
        "for task in left:\n            task.cancel()",
        "pass",
        f"{_SCHEDULER} --timeout 60 -k leaves_nothing",
    ),
    ("rollout/slots.py", "self._sampling + self._waiting < _BEGUN_FACTOR", "0 < _BEGUN_FACTOR", _SCHEDULER),
    ("rollout/slots.py", "source = self._sources[0]", "source = self._sources[-1]", _SCHEDULER),
    # --- tokenizers and data
    ("rollout/tokenizer.py", "value if isinstance(value, list)", "value[:1] if isinstance(value, list)", _TOKENIZER),
    ("rollout/tokenizer.py", "self._backend.no_truncation()", "pass", _TOKENIZER),
    ("rollout/tokenizer.py", "self._backend.no_padding()", "pass", _TOKENIZER),
    ("rollout/tokenizer.py", "encode_special_tokens = True", "encode_special_tokens = False", _TOKENIZER),
    ("data/templates.py", "head + question + tail", "head + question.strip() + tail", _PROMPTS),
    ("data/prompts.py", "len(token_ids) > max_prompt_tokens", "len(token_ids) >= max_prompt_tokens", _PROMPTS),
    ("data/problems.py", "> _LARGEST_UNANSWERED_SHARE * rows", ">= _LARGEST_UNANSWERED_SHARE * rows", _PROBLEMS),
    ("data/sampler.py", "self._shared = missing", "self._shared = 0", _SAMPLER),
    ("data/sampler.py", "{self._seed}/{self._epoch}/", "{self._seed}/", _SAMPLER),
    ("data/sampler.py", "self._deferred = tuple(deferred)", "self._deferred = ()", _SAMPLER),
    # --- measurements and records
    (
        "metrics/dynamics.py",
        "sum(turn.cached_tokens for trajectory in trajectories for turn in trajectory.turns[1:])",
        "sum(turn.cached_tokens for trajectory in trajectories for turn in trajectory.turns)",
        _DYNAMICS,
    ),
    ("metrics/dynamics.py", "len(np.unique(each)) > 1", "len(np.unique(each)) > 0", _DYNAMICS),
    ("metrics/dynamics.py", "step - np.concatenate(versions)", "np.concatenate(versions) - step", _DYNAMICS),
    ("metrics/dynamics.py", "for grade in group}) == 1", "for grade in group}) <= 2", _DYNAMICS),
    ("metrics/dynamics.py", "block.start < answer.start", "block.start > answer.start", _DYNAMICS),
    ("metrics/records.py", 'if not line.endswith(b"\\n"):', "if False:", _RECORDS),
    (
        "metrics/records.py",
        "None if isinstance(value, float) and not math.isfinite(value) else value",
        "value",
        _RECORDS,
    ),
    ("metrics/records.py", "outcome.stdout[:LONGEST_OUTPUT]", "outcome.stdout", _RECORDS),
    ("metrics/records.py", "if any(len(array) != len(trajectory)", "if any(False", _RECORDS),
    # --- weights
    (
        "weight_transfer.py",
        "                if wrong:\n                    continue",
        "                if False:\n                    continue",
        _CHANNEL,
    ),
    ("weight_transfer.py", "if not done:", "if False:", _CHANNEL),
    ("weight_transfer.py", "torch.arange(start, start + piece.numel()", "torch.arange(0, piece.numel()", _CHANNEL),
    ("weight_transfer.py", "math.ceil(tensor.nbytes / _ALIGNMENT) * _ALIGNMENT", "tensor.nbytes", _CHANNEL),
    ("train.py", "checksum=self.config.engine.verify_weights", "checksum=False", "unit/test_train_weights.py"),
    # --- whole runs
    (
        "train.py",
        "            await run.synchronise_weights(policy_version=first_step)\n",
        "",
        "integration/test_train_runs.py -k resumes",
    ),
    ("train.py", "samples[index] = without_loss(samples[index])", "pass", f"{_VERIFY}silenced"),
    ("train.py", "temperature=config.rollout.temperature,", "temperature=1.0,", f"{_VERIFY}one_temperature"),
    ("verify.py", "if not oldest <= version <= record.step", "if False", f"{_VERIFY}_version-versions"),
    ("verify.py", "None if code == call.code else", "None if True else", f"{_VERIFY}named"),
    ("verify.py", "if trajectory.rollout_logprobs_T[observed].any() or (", "if (", f"{_VERIFY}named"),
    ("verify.py", " or (trajectory.policy_versions_T[observed] != -1).any():", ":", f"{_VERIFY}named"),
    ("verify.py", "_ADVANTAGE_TOLERANCE = 2e-5", "_ADVANTAGE_TOLERANCE = 2.0", f"{_VERIFY}_advantage-advantages"),
    ("verify.py", '"float32": (1e-5, 1e-3)', '"float32": (1.0, 9.0)', f"{_VERIFY}_logprob-logprobs"),
]

# Changes that no test can notice, each with the reason: (file, text, what it becomes, why). They are not tried.
UNNOTICEABLE: list[tuple[str, str, str, str]] = [
    (
        "rollout/episode.py",
        'self.at_line_start = observation.endswith("\\n")',
        "self.at_line_start = True",
        "an observation of either format ends with a newline, unless the response ends with it",
    ),
    (
        "reward/equivalence.py",
        "isinstance(target, Basic) and target in (nan, zoo)",
        "False",
        "math-verify 0.9 says itself that they equal nothing; the guard is for versions that raise",
    ),
    (
        "rollout/scheduler.py",
        "            slots.remove(start_next)\n            for other in running:\n                other.cancel()",
        "            pass",
        "the generator's `finally` does both as soon as the consumer takes the episode that failed",
    ),
    (
        "rollout/episode.py",
        "if start < kept:",
        "if True:",
        "a part that begins behind what is kept is empty, and appending nothing changes nothing",
    ),
]
