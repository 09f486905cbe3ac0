"""Mistakes that a test must notice: (file in python, text, what it becomes, the tests to run).

The tests are words for pytest, relative to tests/, where " -k " begins a choice of names. Keep the texts short: a file
that is rewritten should rarely take its mistakes with it.
"""

_TRUST = "torl/base/test_trust.py"
_DOCTOR = "lab/doctor/test_doctor.py"
_OTHER_CHECKS = "lab/doctor/test_other_packages.py"
_VIEW_INDEX = "lab/view/test_index.py"
_REMOVED = "torl/base/test_removed.py"
_VIEW_SELECTION = "lab/view/test_selection.py"
_VIEW_SERVER = "lab/view/test_server.py"
_VIEW_REPLAY = "lab/view/test_replay.py"
_HTTP = "torl_sandbox/servers/http.py"
_COMPRESSED = "torl/commands/test_serve_compressed.py"
_SLOW = "sandbox/test_serve_slow_clients.py"
_REPLIES = "torl/base/runtime/test_http_replies.py"
_ODD_FILES = "torl/run/records/test_odd_files.py"
_EXPERIENCE = "torl/training/test_experience.py"
_STEP = "torl/training/test_step.py"
_STEP_PROBLEMS = "torl/training/test_step_problems.py"
_HEALTH = "torl/training/test_health.py"
_STEP_RECORDS = "torl/training/test_step_records.py"
_SELECTION = "torl/training/test_selection.py"
_MASKING = "torl/training/test_masking.py"
_CLUSTER_CALLS = "torl/base/runtime/test_cluster_calls.py"
_SAMPLES = "torl/training/test_samples.py"
_TEACHER_PROMPTS = "torl/training/test_teacher_prompts.py"
_PLACEMENT = "torl/run/placement/test_placement.py"
_EXPORTING = "torl/learner/test_exporting.py"
_TURN_SCHEDULER = "torl/components/engine/test_scheduler.py"
_EMBEDDINGS = "torl/components/engine/test_embeddings.py"
_LEDGER = "torl/run/placement/test_ledger.py"
_CORES = "torl/run/placement/test_cores.py"
_DEATHS = "torl/components/engine/test_deaths.py"
_ARGUMENTS = "torl/components/engine/test_arguments.py"
_PLACEMENT_ROWS = "torl/run/placement/test_rows.py"
_RESIDENCY = "torl/training/test_residency.py"
_EVALUATION = "torl/rollout/test_evaluation.py"
_STATISTICS = "lab/evaluation/test_statistics.py"
_STREAM = "torl/components/data/test_stream.py"
_SERIES = "torl/run/display/test_series.py"
_CONSOLE = "torl/run/display/test_console.py"
_BEHAVIORS = "torl/run/records/test_behaviors.py"
_RESULTS = "lab/evaluation/test_results.py"
_PREPARING = "lab/curation/test_preparing.py"
_SOLUTIONS = "lab/curation/test_solutions.py"
_FORMS = "torl/components/programs/test_forms.py"
_FORM_VERDICTS = "torl/components/programs/test_form_verdicts.py"
_CURRICULUM = "torl/components/data/test_curriculum.py"
_PAIRS = "torl/components/grading/test_pairs.py"
_SCORED_TURNS = "torl/components/rewards/test_scored_turns.py"
_JUDGED = "torl/components/rewards/test_judged.py"
_EPISODE = "torl/rollout/test_one_episode.py"
_EPISODE_LAWS = "torl/rollout/test_episode_laws.py"
_CALLS = "torl/rollout/test_calls.py"
_CHAT = "torl/components/formats/test_chat.py"
_CALLS = "torl/components/formats/test_chat_calls.py"
_AGENT_LAWS = "torl/rollout/agents/test_conversation_laws.py"
_AGENT_SERVER = "torl/rollout/agents/test_server.py"
_AGENT_PROGRAMS = "torl/rollout/agents/test_programs.py"
_AGENT_REQUESTS = "torl/rollout/agents/test_requests.py"
_BRANCHES = "torl/rollout/test_episode_branches.py"
_GRADING = "torl/rollout/test_grading.py"
_SCHEDULER = "torl/rollout/test_scheduler.py"
_BOUNDED = "torl/components/tools/test_bounded.py"
_ENVIRONMENT = "torl/rollout/test_environment.py"
_STACKS = "torl/base/runtime/test_hangs.py"
_TRL_CLASS = "torl/components/interop/test_environments_trl_class.py"
_SEARCH = "torl/components/tools/test_search.py"
_FAILED_EPISODES = "torl/training/test_failed_episodes.py"
_OBSERVATION = "torl/components/formats/test_observation.py"
_TOOL = "torl/components/tools/test_python.py"
_SHUFFLED = "torl/components/tools/test_shuffled.py"
_BOXED = "torl/components/rewards/test_boxed.py"
_BOXED_PROCESSES = "torl/components/rewards/test_boxed_processes.py"
_CHILDREN = "torl/base/runtime/test_children.py"
_GRADER = "torl/components/grading/test_grader.py"
_NOTATION = "torl/components/grading/test_notation.py"
_NUMERALS = "torl/components/grading/test_numerals.py"
_LAWS = "torl/components/grading/test_laws.py"
_CHOICES = "torl/components/grading/test_choices.py"
_EQUIVALENCE = "torl/components/grading/test_equivalence.py"
_ANSWERS = "torl/components/text/test_answers.py"
_ANSWER_TAGS = "torl/components/text/test_answer_tags.py"
_TOKEN_ADVANTAGES = "torl/components/algorithms/test_token_advantages.py"
_ESTIMATORS_2026 = "torl/components/algorithms/test_advantages_2026.py"
_ALGORITHM_OPTIONS = "torl/components/algorithms/test_options.py"
_ALGORITHM_REWARDS = "torl/components/algorithms/test_rewards.py"
_LOSSES = "torl/components/algorithms/test_losses.py"
_POLICY = "torl/learner/test_policy.py"
_ATTENTION = "torl/learner/test_attention.py"
_HEAD = "torl/learner/test_head.py"
_CUDA = "cuda_contract/test_cuda_"
_LORA = "torl/learner/test_lora.py"
_FROZEN = "torl/learner/test_frozen.py"
_BATCH = "torl/learner/test_batch.py"
_SHARING = "torl/learner/test_rows.py"
_MINI_BATCHES = "torl/learner/test_mini_batches.py"
_TURNS = "torl/components/text/test_turns.py"
_TOKENIZER = "torl/components/text/test_tokenizer.py"
_PROMPTS = "torl/components/text/test_prompts.py"
_PROBLEMS = "torl/components/data/test_problems.py"
_PUBLIC_SETS = "torl/components/data/test_public_sets.py"
_FIELDS = "torl/components/data/test_example_fields.py"
_BROKEN_ROWS = "torl/components/data/test_broken_rows.py"
_SAMPLER = "torl/components/data/test_sampler.py"
_DYNAMICS = "torl/run/records/test_dynamics.py"
_ROWS = "torl/run/records/test_rows.py"
_WRITERS = "torl/run/records/test_writers.py"
_RUN_DIRECTORY = "torl/run/records/test_run_directory.py"
_CHANNEL = "torl/components/weights/test_channel.py"
_NODES = "torl/components/weights/test_nodes.py"
_CLUSTER_ROLES = "torl/base/runtime/test_cluster_roles.py"
_OPTIONS = "torl/base/test_options.py"
_CONFIG = "torl/run/config/test_config.py"
_CHECKS = "lab/audit/test_checks.py"
_FORMULAS = "lab/audit/test_formulas.py"
_AUDIT_TOKENS = "lab/audit/test_tokens.py"
_PLANTED = "lab/audit/test_planted_formulas.py"
_EXPANSION = "torl/base/test_expansion.py"
_AUDIT_RECORDS = "lab/audit/test_records.py"
_PROBE = "torl/training/test_probe.py"
_AUDIT_ORDER = "lab/audit/test_order.py"
_STARTS = "lab/audit/test_starts.py"
_KILLED = "lab/audit/test_receipt.py -k killed"
_AUDIT_UPDATES = "lab/audit/test_updates.py"
_RESUMED = "torl/training/test_startup.py"
_VERIFY = "lab/audit/test_train_verify.py -k "
_CHEATS = "torl/components/programs/test_cheats.py -k "
_GUEST = "torl/components/programs/guest"

MUTANTS: list[tuple[str, str, str, str]] = [
    # --- what a program may learn of its tests, and what its reports may claim
    (f"{_GUEST}/proxies.py", 'return name == "ne"', "return True", f"{_CHEATS}equality"),
    (
        f"{_GUEST}/operators.py",
        'if is_plain(other) and (not may_see(proxy) or (is_order and not slot(proxy, "_side").trusting)):',
        "if False:",
        f"{_CHEATS}differences",
    ),
    (f"{_GUEST}/proxies.py", "if is_plain(item) and not may_see(self):", "if False:", f"{_CHEATS}membership"),
    (f"{_GUEST}/proxies.py", "name in _PREDICATES or ", "", f"{_CHEATS}predicates"),
    (
        f"{_GUEST}/play.py",
        'return with_role(value, "class") if name in self._classes else value',
        'return with_role(value, "class")',
        f"{_CHEATS}entry",
    ),
    (f"{_GUEST}/test_side.py", "__all__ = ()", '__all__ = ("abs", "len", "sorted", "solve")', f"{_CHEATS}exports"),
    (
        f"{_GUEST}/play.py",
        "if isinstance(error, AssertionError):",
        "if False:",
        f"{_CHEATS}suppresses",
    ),
    (
        f"{_GUEST}/play.py",
        "if not own or isinstance(error, AssertionError | unittest.SkipTest):",
        "if False:",
        f"{_CHEATS}suppresses",
    ),
    (f"{_GUEST}/play.py", "            _permit(name, encoded)\n", "", f"{_CHEATS}format"),
    (f"{_GUEST}/side.py", " and not module.startswith(_FORBIDDEN)", "", f"{_CHEATS}steers"),
    (
        "torl/components/programs/code_judge.py",
        'if played["unknown"] or played["suspended"]:',
        'if played["suspended"]:',
        f"{_CHEATS}empty",
    ),
    ("torl/components/programs/judge.py", ' and place == f"{index}.{len(found)}"', "", f"{_CHEATS}replies"),
    (
        "torl/components/programs/code_judge.py",
        "if self.has_started else None",
        "",
        "torl/components/programs/test_unusual.py -k syntax",
    ),
    (
        "torl/components/programs/output.py",
        "len(result) == len(expected) == len(found)",
        "len(result) == len(expected)",
        "torl/components/programs/test_transfer.py",
    ),
    # --- what files of others may name
    ("torl/base/trust.py", "if not is_trusted():", "if False:", _TRUST),
    ("torl/base/options/choices.py", "if not is_trusted() and not is_of_recipe(name):", "if False:", _TRUST),
    ("torl/base/options/choices.py", "reading=current_reading(),", "reading=None,", _TRUST),
    ("torl/base/options/choices.py", "with continued(reading):", "with continued(None):", _TRUST),
    ("torl/run/config/command_line.py", "for name in config_class.outputs:", "for name in ():", _TRUST),
    (
        "torl/components/hub/models.py",
        'elif setting and isinstance(value, str) and "/" in value:',
        "elif False:",
        _TRUST,
    ),
    (
        "torl/components/hub/models.py",
        "if path.exists() and not path.is_dir():",
        "if False:",
        "torl/run/records/test_odd_files.py",
    ),
    ("torl/base/inputs.py", "if content > allowed_bytes(stored, free):", "if content < 0:", _EXPANSION),
    ("torl/base/columnar.py", "    if has_lists:", "    if False:", _EXPANSION),
    ("torl/base/columnar.py", " or not field(batch, 3):", " or True:", _EXPANSION),
    ("torl_lab/exchange/atif.py", ' and step.get("llm_call_count") != 0', "", "lab/exchange/test_records_exchange.py"),
    (
        "torl/components/hub/models.py",
        'if require_plain not in session.event_hooks["response"]:',
        "if False:",
        _REPLIES,
    ),
    ("torl/base/options/signatures.py", ").__module__ == module_name", ") is not None", f"{_TRUST} -k way_around"),
    (
        "torl/base/options/signatures.py",
        "error.name in _MOVED",
        "error.name is None",
        "torl/base/test_options.py -k moved",
    ),
    ("torl/run/records/run_directory.py", "with reading_unless_open():", "if True:", f"{_TRUST} -k open_no_block"),
    # --- what a step is made of
    (
        "torl_sandbox/servers/uvicorn_server.py",
        "self._head_bytes > _MAX_HEAD and",
        "False and",
        f"{_SLOW} -k without_end",
    ),
    ("torl_sandbox/servers/uvicorn_server.py", ">= _MAX_PIPELINED", "< 0", f"{_SLOW} -k reads_no_answers"),
    ("torl_sandbox/servers/asgi.py", "self._size > self._max_bytes and", "False and", f"{_SLOW} -k large_chunked"),
    ("torl_sandbox/servers/asgi.py", "while not self._complete and", "while False and", f"{_SLOW} -k whole_request"),
    (
        _HTTP,
        'if encoding := compression(given.get("content-encoding", [])):',
        "if encoding := None:",
        _COMPRESSED,
    ),
    ("torl/base/runtime/http.py", "auto_decompress=False, headers=PLAIN_REPLIES, ", "", _REPLIES),
    ("torl/base/runtime/http.py", "if len(body) > max_bytes:", "if False:", _REPLIES),
    (_HTTP, " <= _MAX_PORT", " >= 0", "sandbox/test_http_refusal.py"),
    ("torl_lab/view/indexing.py", "self.unreadable.append(", "str(", _ODD_FILES),
    ("torl/run/records/receipt.py", "os.path.lexists(path)", "path.exists()", _ODD_FILES),
    ("torl/base/inputs.py", "_require_regular(found.st_mode, path)", "pass", _ODD_FILES),
    ("torl/training/step.py", "if not oldest <= version <= step:", "if False:", _STEP),
    ("torl/training/step.py", "tuple(with_normalized_rewards(batch)) if", "batch if", _STEP),
    ("torl/training/step.py", ', step, "shuffled rewards")', ', "shuffled rewards")', _STEP),
    ("torl/training/selection.py", "batch = chosen.kept[:wanted]", "batch = chosen.kept", _STEP),
    ("torl/training/step.py", " if prompt.problem.id not in problems]", "]", _STEP),
    (
        "torl/training/step.py",
        "await require_working_tools(self.player.tools, step_played.trajectories)",
        "pass",
        _STEP,
    ),
    ("torl/training/health.py", "crashes[name] > _MAX_CRASH_FRACTION * count", "crashes[name] == count", _STEP),
    ("torl/training/health.py", "count >= _MIN_CALLS and ", "", _STEP),
    ("torl/training/health.py", "if not gap <= limit:", "if gap > limit:", _HEALTH),
    ("torl/training/health.py", "self._first_gaps[name] = gap", "pass", _HEALTH),
    ("torl/training/health.py", "(LOGPROB_GAP_PROBE, True)", "(LOGPROB_GAP_PROBE, self._exact)", _HEALTH),
    ("torl/components/engine/vllm/options.py", "cache not in (", "None not in (", _HEALTH),
    ("torl/training/probe.py", "config.rollout.max_staleness > 0 or ", "", _PROBE),
    ("torl/training/probe.py", "if versions - {version}:", "if False:", _PROBE),
    ("torl/training/probe.py", "replica=index % replicas", "replica=0", _PROBE),
    ("torl/training/probe.py", "self._engine.forget(request.episode)", "pass", _PROBE),
    ("torl/learner/publishing.py", "timeout_seconds=self._settings.timeout_seconds", "timeout_seconds=600", _CHANNEL),
    ("torl/training/probe.py", "prompt[version // count % count]", "prompt[0]", _PROBE),
    ("torl/learner/publishing.py", "if not conversions:", "if True:", "torl/learner/test_model_families.py -k leave"),
    ("torl/learner/exporting.py", "        for _ in stream:\n            pass\n", "", _EXPORTING),
    ("torl/learner/exporting.py", "shard, size = {}, 0", "size = 0", _EXPORTING),
    (
        "torl/components/engine/vllm/weights.py",
        "    for module in _embeddings(model):\n        info",
        "    for module in ():\n        info",
        _EMBEDDINGS,
    ),
    ("torl/components/engine/vllm/blocks.py", "if has_room and end //", "if end //", _TURN_SCHEDULER),
    (
        "torl/components/engine/vllm/blocks.py",
        " and end // block_tokens <= blocks.num_cached_block.get(request_id, 0):",
        ":",
        _TURN_SCHEDULER,
    ),
    (
        "torl/components/engine/vllm/scheduler.py",
        "row if self._starts is None else self._starts[row]",
        "row",
        _TURN_SCHEDULER,
    ),
    (
        "torl/components/engine/vllm/scheduler.py",
        "elif scan is not None and request.status != RequestStatus.FINISHED_STOPPED:",
        "elif scan is not None and not stopped:",
        "torl/components/engine/test_vllm.py -k turn_ends",
    ),
    (
        "torl_lab/replay/calls.py",
        'row["tool_calls"][:number]:',
        'row["tool_calls"][:0]:',
        "lab/audit/test_regrading.py -k again_in_one",
    ),
    ("torl/components/engine/vllm/weights.py", "for head in heads:", "for head in modules:", _EMBEDDINGS),
    ("torl/components/engine/vllm/weights.py", "for head in heads:", "for head in ():", _EMBEDDINGS),
    ("torl/learner/rows.py", "learned(versions) == policy_version", "learned(versions) >= 0", _BATCH),
    ("torl/training/selection.py", "reward=grade.total)", "reward=grade.reward)", _STEP),
    ("torl/training/selection.py", "replace(grade, turn_rewards=())", "grade", _STEP),
    ("torl/training/experience.py", "<= self._max_staleness:", "<= self._max_staleness + 1:", _EXPERIENCE),
    ("torl/training/experience.py", "self._problems.end(step)", "pass", _EXPERIENCE),
    ("torl/training/step_problems.py", "if self._plays_ahead:", "if False:", _EXPERIENCE),
    ("torl/training/step_problems.py", "[name for _, name in self._taken] + ", "", _EXPERIENCE),
    ("torl/training/step_problems.py", "if each[0] != step]", "]", _EXPERIENCE),
    ("torl/training/step_problems.py", "self._record(self._held.pop(step))", "pass", _EXPERIENCE),
    ("torl/training/step_problems.py", " and prompt.problem.id not in taken", "", _STEP_PROBLEMS),
    ("torl/training/step_problems.py", "self._waiting = waiting", "self._waiting = []", _STEP_PROBLEMS),
    ("torl/training/step_problems.py", "if len(found) < len(set(names)):", "if False:", _STEP_PROBLEMS),
    # --- selection
    (
        "torl/components/algorithms/selection.py",
        "low < group.credited_fraction < high",
        "low < group.accuracy < high",
        _SELECTION,
    ),
    (
        "torl/components/algorithms/selection.py",
        "len(group.members) > above",
        "len(group.members) >= above",
        _SELECTION,
    ),
    ("torl/training/selection.py", "len(group.members) < min_group_size", "not group.members", _SELECTION),
    (
        "torl/components/algorithms/masks.py",
        "LENGTH and not member.grade.credited",
        "LENGTH and not member.grade.correct",
        _MASKING,
    ),
    ("torl/recipes/zerotir/__init__.py", "(grade.valid_format and some_succeeded)", "some_succeeded", _MASKING),
    (
        "torl/components/algorithms/masks.py",
        "member.trajectory.text) > above",
        "member.trajectory.text) < above",
        _MASKING,
    ),
    ("torl/base/types/grades.py", "len(self.members) > 1 and ", "", _SELECTION),
    ("torl/base/types/problems.py", "position < each.weight", "position > each.weight", _PROMPTS),
    (
        "torl/rollout/scheduler.py",
        'prompt.problem.id, sample, "prompt variant"',
        'prompt.problem.id, "prompt variant"',
        _SCHEDULER,
    ),
    ("torl/base/types/grades.py", "self.reward + sum(self.grade.turn_rewards)", "self.reward", _SELECTION),
    ("torl/recipes/zerotir/__init__.py", "repeated_trigrams(text) > MAX", "repeated_trigrams(text) < MAX", _MASKING),
    (
        "torl/components/algorithms/masks.py",
        "sample.ref_logprobs[sample.loss_mask].mean",
        "sample.ref_logprobs.mean",
        _MASKING,
    ),
    (
        "torl/components/algorithms/masks.py",
        "mean(dtype=np.float64))) > above",
        "mean(dtype=np.float64))) < above",
        _MASKING,
    ),
    # --- samples and records of a step
    ("torl/training/samples.py", "algorithm.kl.coefficient * kl_M", "-algorithm.kl.coefficient * kl_M", _SAMPLES),
    ("torl/training/step.py", "array[len(sample) - response_tokens :]", "array[:response_tokens]", _SAMPLES),
    ("torl/training/samples.py", "turn.stop - 1 for turn", "turn.start for turn", _SAMPLES),
    ("torl/training/samples.py", "sample.token_rewards is not None and not sample", "False and not sample", _SAMPLES),
    ("torl/training/samples.py", "if algorithm.normalize_advantages:", "if False:", _SAMPLES),
    ("torl/training/step.py", "sample.advantages[sample.loss_mask].mean", "sample.advantages.mean", _SAMPLES),
    ("torl/training/step.py", "for group in played.groups:", "for group in played.batch:", _STEP_RECORDS),
    ("torl/training/step.py", "mean_advantage(sample), arrays)", "mean_advantage(sample))", _STEP_RECORDS),
    ("torl/components/grading/differences.py", "close * max(abs(one), abs(other))", "close", _PAIRS),
    (
        "torl/components/grading/numerals.py",
        "return _FLOAT.sub(lambda found: _scaled(found[1], found[2]), text)",
        "return text",
        _NOTATION,
    ),
    ("torl/components/grading/units.py", "one.isdisjoint(other) or power", "one != other or power", _NUMERALS),
    ("torl/components/grading/differences.py", "and gold != target", "and False", _NUMERALS),
    (
        "torl/components/grading/equivalence.py",
        "return bases[0] == bases[1]",
        "return bases[0][0] == bases[1][0]",
        _NUMERALS,
    ),
    ("torl/training/step.py", "if sample is None:", "if False:", _STEP_RECORDS),
    # --- evaluation
    ("torl_lab/evaluation/estimates.py", "comb(samples - correct, k)", "comb(samples - correct, 1) ** k", _STATISTICS),
    ("torl_lab/evaluation/estimates.py", "right or answer is not None", "answer is not None", _STATISTICS),
    (
        "torl_lab/evaluation/estimates.py",
        "** 2 for each in found.values())) / len(found)\n    above",
        "** 2 for each in found.values()))\n    above",
        _STATISTICS,
    ),
    ("torl_lab/evaluation/estimates.py", "binary_variance + 1)", "binary_variance)", _STATISTICS),
    ("torl_lab/evaluation/estimates.py", " + unit**2", "", _STATISTICS),
    ("torl_lab/evaluation/estimates.py", " / (samples - 1) + binary", " / samples + binary", _STATISTICS),
    ("torl_lab/evaluation/estimates.py", " + binary_variance / samples", "", _STATISTICS),
    ("torl_lab/evaluation/results.py", "self.for_model and _samples(measure) > 1", "self.for_model", _RESULTS),
    ("torl_lab/evaluation/estimates.py", "min(initial=1.0)", "max(initial=1.0)", _STATISTICS),
    ("torl_lab/evaluation/tables.py", " and len(values_P) == SIZES[name]", "", _RESULTS),
    ("torl/rollout/transcript.py", 'f"{episode.number}:{', 'f"{episode.sample}:{', "lab/evaluation/test_playing.py"),
    ("torl_lab/evaluation/results.py", "values_P - others_P", "others_P - values_P", _RESULTS),
    (
        "torl_lab/evaluation/results.py",
        "np.append(values, np.zeros(len(too_long)))",
        "np.array(values)",
        _RESULTS,
    ),
    (
        "torl/rollout/played_output.py",
        "self.played and self._read(record, subject) != content.encode()",
        "False",
        _RESULTS,
    ),
    ("torl/rollout/played_output.py", "self.played and changed", "False", "torl/rollout/test_played_output.py"),
    (
        "torl/rollout/played_output.py",
        'known["stamp"] == stamp',
        'known["stamp"][:4] == stamp[:4]',
        "torl/rollout/test_played_output.py",
    ),
    (
        "torl/rollout/grading.py",
        "return None if unknown.was_read else scored",
        "return scored",
        "lab/audit/test_regrading.py",
    ),
    (
        "torl_lab/evaluation/results.py",
        "[place[problem] for problem in variant.problems[name]]",
        "list(place.values())",
        _RESULTS,
    ),
    ("torl/rollout/group_file.py", "if count == samples", "if count", _RESULTS),
    # --- data
    (
        "torl/components/data/stream.py",
        "deferred=frozenset(taken), shared=missing",
        "deferred=frozenset(), shared=0",
        _STREAM,
    ),
    ("torl/components/data/stream.py", "while len(self._buffer) < self._size", "while True", _STREAM),
    (
        "torl/components/data/stream.py",
        '(state["drawn"], state.get("problems"))',
        "(self._drawn, self._digest.hexdigest())",
        _STREAM,
    ),
    (
        "torl/components/hub/datasets.py",
        "if missing := sorted(",
        "if missing := not sorted(",
        "torl/components/hub/test_hub.py",
    ),
    ("torl/run/display/series.py", "(first[value] + last[value]) / 2", "first[value]", _SERIES),
    ("torl/run/display/live_screen.py", "has_calls, -accuracy", "has_calls, accuracy", _CONSOLE),
    ("torl/run/display/live_screen.py", "if character.isprintable() else", "if True else", _CONSOLE),
    ("torl_lab/view/panels.py", "if len(runs) == 1:", "if False:", "lab/report/test_page.py -k charts_hold"),
    (
        "torl_lab/view/saved.py",
        'ascii_json(recorded).replace("<", "\\\\u003c")',
        "ascii_json(recorded)",
        "lab/report/test_page.py -k model_output",
    ),
    (
        "torl_lab/report/page.py",
        '"finished": not missing_steps(run)',
        '"finished": missing_steps(run) > 0',
        "lab/report/test_page.py -k loaded_again",
    ),
    ("torl_lab/view/panels.py", "if panel.title in owners", "if False", "torl/base/test_plugins.py -k taken"),
    ("torl/base/plugins.py", "if each.name in own", "if False", "torl/base/test_plugins.py -k taken"),
    (
        "torl/run/records/metric_names.py",
        'metric.better == "lower" else',
        'metric.better == "higher" else',
        "torl/run/records/test_metric_names.py",
    ),
    (
        "torl/run/records/behaviors.py",
        "member.grade.correct for member in disagreed",
        "1 for member in disagreed",
        _BEHAVIORS,
    ),
    ("torl_lab/curation/similarity.py", ".astype(int) + self._shared_sizes(sizes)", ".astype(int)", _PREPARING),
    ("torl_lab/curation/similarity.py", "shared >= np.minimum(", "shared > np.minimum(", _PREPARING),
    ("torl_lab/curation/similarity.py", "(frequency[order] > 1)", "(frequency[order] > 2)", _PREPARING),
    ("torl_lab/curation/contamination.py", "count > _MAX_PHRASE_COUNT", "count > 99", _PREPARING),
    ("torl_lab/curation/contamination.py", "evaluated) >= _MIN_OVERLAP:", "evaluated) >= 0:", _PREPARING),
    (
        "torl_lab/curation/contamination.py",
        "sum(symbols) >= _MIN_OVERLAP_OF_SYMBOLS",
        "False and sum(symbols) >= 0.9",
        _PREPARING,
    ),
    ("torl_lab/curation/contamination.py", "place - ngram.offset", "place", _PREPARING),
    ("torl_lab/curation/verifiability.py", "found[0] if found[1] or not", "found[0] if not", _PREPARING),
    ("torl/components/data/values.py", "if len(boxes) > 1:", "if False:", _PUBLIC_SETS),
    ("torl/components/data/rows.py", "words & _LOSS:", "False:", _FIELDS),
    ("torl/components/data/rows.py", "if name in known or not has_value(value):", "if True:", _FIELDS),
    ("torl/components/data/rows.py", "value not in (0, 1)", "False", _FIELDS),
    ("torl/components/data/rows.py", "not (_words(name) <= _LOSS or _may_be_mark(value))", "False", _FIELDS),
    (
        "torl/components/data/rows.py",
        "_words(name) <= _LOSS or _may_be_mark(value)",
        "_may_be_mark(value)",
        _FIELDS,
    ),
    ("torl/components/data/examples.py", "            require_whole_question(location, unread)\n", "", _FIELDS),
    ("torl/components/data/example_files.py", " if name not in columns.values()", "", _FIELDS),
    (
        "torl/components/data/dialogues.py",
        "if is_list and all(",
        "if False and all(",
        "torl/components/data/test_public_rows.py",
    ),
    ("torl/training/example_reader.py", "require_whole_question(problem.id, unread)", "pass", _FIELDS),
    (
        "torl_lab/exchange/messages.py",
        'messages and messages[0].get("role") != "assistant"',
        "False",
        "lab/exchange/test_records_exchange.py",
    ),
    ("torl_lab/exchange/messages.py", "seen[group] += 1", "pass", "lab/exchange/test_records_exchange.py"),
    (
        "torl_lab/exchange/messages.py",
        "next(known, others)",
        "next(known, {})",
        "lab/exchange/test_records_exchange.py",
    ),
    ("torl/components/data/dialogues.py", "if not is_trained and (asking", "if False and (asking", _FIELDS),
    ("torl/components/data/dialogues.py", "len(texts) != 1 or others", "len(texts) != 1", _FIELDS),
    ("torl/components/data/dialogues.py", 'messages[0]["content"].strip() != system.strip()', "False", _FIELDS),
    ("torl/components/data/example_tools.py", '"function": {**ordered, **function}', '"function": function', _FIELDS),
    (
        "torl/components/data/verl_rows.py",
        'message["role"] == "system" and not',
        "False and not",
        "torl/components/data/test_problem_fields.py",
    ),
    ("torl/components/text/prompt_encoder.py", "if token_ids[-1:] == ends and", "if False and", _FIELDS),
    ("torl/components/text/example_encoder.py", "texts[0] != texts[1]", "True", _FIELDS),
    ("torl/learner/exporting.py", "[*ends, *missing]", "ends", _EXPORTING),
    ("torl/components/data/layout.py", "not in values for name, values", "in values for name, values", _PUBLIC_SETS),
    ("torl/components/data/public_sets.py", "<= _TOLERANCE * self.rows", "<= self.rows", _PUBLIC_SETS),
    ("torl/components/data/rows.py", "if len(self._contents) == before:", "if False:", _BROKEN_ROWS),
    ("torl/rollout/evaluation.py", "if len(sources) < 2:", "if sources:", "torl/rollout/test_evaluation_sets.py"),
    ("torl_lab/curation/selecting.py", "remaining // len(open_strata)", "remaining", _PREPARING),
    (
        "torl/components/data/curriculum.py",
        "before + sign if sign * before > 0 else sign",
        "before + sign",
        _CURRICULUM,
    ),
    ("torl/components/data/curriculum.py", " and passed < 2 * len(self)", " and passed < 1", _CURRICULUM),
    ("torl/components/grading/differences.py", "Decimal(percentage[1]) != Decimal(reference)", "False", _PAIRS),
    ("torl/components/grading/notation.py", "return with_latex_calls(text)", "return text", _EQUIVALENCE),
    ("torl/components/grading/units.py", "if is_letter and not (found[2] and", "if False and not (found[2] and", _LAWS),
    (
        "torl/components/grading/expressions.py",
        "ConversionConfig(lowercase_symbols=False)",
        "ConversionConfig()",
        _LAWS,
    ),
    ("torl/components/grading/layout.py", ".lower() if is_words else first == second", ".lower()", _CHOICES),
    ("torl/components/grading/equivalence.py", "small_choice(answer) == gold[0]", "small_choice(answer)", _CHOICES),
    ("torl/components/grading/units.py", "if not any(others):", "if False:", _LAWS),
    (
        "torl_lab/curation/command.py",
        "default=0) < 2:",
        "default=0) < 1:",
        "lab/curation/test_curation.py -k one_epoch",
    ),
    ("torl/components/grading/comparison.py", "maxn=_MAX_DIGITS, strict=True", "chop=True", _LAWS),
    (
        "torl/components/rewards/judge.py",
        "Grade(float(grade.valid_format), correct=True)",
        "Grade(1.0, correct=True)",
        _JUDGED,
    ),
    ("torl/recipes/agent_prm/__init__.py", "texts.append(text[", "texts.append(turn.text[", _SCORED_TURNS),
    ("torl/recipes/agent_prm/__init__.py", "last = last if score is None else score", "last = 0.0", _SCORED_TURNS),
    ("torl/components/rewards/judge.py", "if len(answer) > MAX_ANSWER_CHARACTERS:", "if False:", _JUDGED),
    ("torl/rollout/evaluation.py", '{**config.rollout, "temperature": temperature}', "config.rollout", _EVALUATION),
    (
        "torl/rollout/model_directory.py",
        "problems.bind()()), evaluation.max_problems",
        "problems.bind()()), None",
        "torl/rollout/test_opening.py",
    ),
    ("torl/rollout/evaluation.py", "metrics[name] * played", "metrics[name]", _EVALUATION),
    ("torl/rollout/evaluation.py", 'batch_id=f"{name}-{label}"', "batch_id=label", _EVALUATION),
    (
        "torl/rollout/evaluation.py",
        "groups.sort(key=lambda group: order[group.prompt.problem.id])",
        "pass",
        _EVALUATION,
    ),
    ("torl/rollout/evaluation.py", "{**config.rollout, ", "{", _EVALUATION),
    ("torl/rollout/evaluation.py", "if self.greedy else {}", "if False else {}", _EVALUATION),
    # --- rewards
    (
        "torl/recipes/dapo/__init__.py",
        "group.max_response_tokens, self.options.buffer",
        "group.max_response_tokens, 1",
        _BOXED,
    ),
    ("torl/components/rewards/math.py", "verdict.correct and valid else", "verdict.correct else", _BOXED),
    ("torl/components/rewards/rubric.py", "{part: weight * share for", "{part: share for", _BOXED),
    ("torl/components/rewards/math.py", "self._find(trajectory.answer_text)", "self._find(trajectory.text)", _BOXED),
    ("torl/recipes/dapo/__init__.py", "self.buffer >= limit", "self.buffer > limit", _BOXED),
    (
        "torl/components/rewards/math.py",
        "grade_async(reference, answer, shortcuts=False)",
        "grade_async(answer, reference, shortcuts=False)",
        f"{_BOXED_PROCESSES} -k exchanged",
    ),
    ("torl/recipes/dapo/__init__.py", "tokens - (limit - buffer)", "tokens - limit", _BOXED),
    ("torl/recipes/torl/__init__.py", "call.ran and not call.outcome.ok", "not call.outcome.ok", _BOXED),
    ("torl/components/rewards/math.py", "trajectory.finish_reason is FinishReason.STOP and ", "", _BOXED),
    (
        "torl/base/runtime/processes/children.py",
        "isinstance(error, TimeoutError) and self._process.poll() is None",
        "False",
        f"{_CHILDREN} -k busy",
    ),
    (
        "torl/base/runtime/processes/children.py",
        "        os.dup2(null, 0)\n",
        "",
        f"{_CHILDREN} -k in_turn",
    ),
    ("torl/components/grading/pool.py", "                self._crashes_in_a_row = 0\n", "", f"{_GRADER} -k forgets"),
    ("torl/components/grading/verdict.py", "-?[1-9][0-9]{0,29}|0", "-?[0-9]{1,30}", _EQUIVALENCE),
    (
        "torl/components/grading/verdict.py",
        "> _CLEARLY_DIFFERENT * max(Fraction(1), abs(one), abs(other))",
        "> 0",
        _EQUIVALENCE,
    ),
    ("torl/components/grading/verdict.py", "int(found[1] + numerator)", "int(numerator)", _EQUIVALENCE),
    ("torl/components/grading/verdict.py", "(?:0|[1-9]\\d*)", "\\d*", _EQUIVALENCE),
    ("torl/components/grading/pool.py", "1 if self._has_spare else 2", "1", f"{_GRADER} -k delays_no_other"),
    ("torl/components/grading/equivalence.py", "same(gold, target,", "same(target, gold,", _EQUIVALENCE),
    ("torl/components/grading/equivalence.py", "if error is not None:", "if False:", _EQUIVALENCE),
    ("torl/recipes/zerotir/__init__.py", "text.count(tag) != 1", "text.count(tag) < 1", _ANSWER_TAGS),
    ("torl/components/text/answers.py", "box_opened[0] > last_start", "box_opened[0] < last_start", _ANSWERS),
    ("torl/components/algorithms/reward_advantages.py", "rewards_N.std(ddof=1)", "rewards_N.std()", _ALGORITHM_REWARDS),
    (
        "torl/components/algorithms/losses/divergence.py",
        "clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT)\n",
        "clamp(max=LOG_RATIO_LIMIT)\n",
        _LOSSES,
    ),
    # --- advantages
    ("torl/components/algorithms/turns.py", "returns_K[turns + 1]", "returns_K[turns]", _TOKEN_ADVANTAGES),
    ("torl/components/algorithms/turns.py", "] += rewards_N", "] += 0", _TOKEN_ADVANTAGES),
    ("torl/components/algorithms/reward_advantages.py", 'baseline == "turn"', 'baseline == "group"', _TOKEN_ADVANTAGES),
    ("torl/recipes/gtpo/__init__.py", "not (made or number)", "not made", _BOXED),
    ("torl/training/samples.py", "turn.start : turn.stop] = number", "turn.start : turn.stop - 1] = number", _SAMPLES),
    ("torl/components/algorithms/token_advantages.py", "is None and discount == 1", "is None", _TOKEN_ADVANTAGES),
    (
        "torl/components/algorithms/token_advantages.py",
        "_core.whiten(returns_M, lengths_N, mask_M)",
        "returns_M",
        _TOKEN_ADVANTAGES,
    ),
    (
        "torl/components/algorithms/advantages.py",
        "final_rewards + _core.row_sums",
        "final_rewards - _core.row_sums",
        _TOKEN_ADVANTAGES,
    ),
    (
        "torl/components/algorithms/token_advantages.py",
        'group_advantages("dr_grpo", inputs.',
        'group_advantages("rloo", inputs.',
        _TOKEN_ADVANTAGES,
    ),
    (
        "torl/components/algorithms/reward_advantages.py",
        "kernel, inputs.totals",
        "kernel, inputs.rewards_N",
        _TOKEN_ADVANTAGES,
    ),
    (
        "torl/components/algorithms/reward_advantages.py",
        "@requires(min_group_size=2)\ndef rloo",
        "def rloo",
        _ALGORITHM_OPTIONS,
    ),
    (
        "torl/components/algorithms/reward_advantages.py",
        'group_advantages("dr_grpo", totals_N',
        'group_advantages("rloo", totals_N',
        _ESTIMATORS_2026,
    ),
    ("torl/recipes/simpletir/__init__.py", "sum(complete) < at_least", "sum(complete) <= at_least", _SELECTION),
    ("torl/run/config/learning.py", "if wanted and self.aggregation.name not in wanted", "if wanted", _CONFIG),
    ("torl/run/config/learning.py", "has_kl_term or self._loss_has_all_tokens", "has_kl_term", _CONFIG),
    ("torl/run/config/training.py", "if each.target is zero_variance]", "if False]", _CONFIG),
    ("torl/base/removed.py", 'section.get("name") not in removed.of', "False", _REMOVED),
    ("torl/base/removed.py", "given if name == key else ", "", _REMOVED),
    ("torl/base/removed_settings.py", '("all" if parameters else "optimizer")', '"optimizer"', _REMOVED),
    (
        "torl/base/removed_settings.py",
        '"current_policy" if is_current else path',
        'path or "current_policy"',
        _REMOVED,
    ),
    (
        "torl/rollout/agents/episode.py",
        "self.player.settings.max_turns or _MAX_TURNS",
        "_MAX_TURNS",
        "torl/rollout/agents/test_server.py",
    ),
    ("torl/base/removed_settings.py", "values[1] if values[0] else 1", "values[1]", _REMOVED),
    ("torl/base/removed.py", "{first: value, **others}", "{**others, first: value}", _REMOVED),
    ("torl_lab/audit/metrics.py", "found == 0 and name in", "name in", "lab/audit/test_records.py"),
    ("torl/training/experience.py", "len(seen) <= max_tokens", "len(token_ids) <= max_tokens", _TEACHER_PROMPTS),
    ("torl/training/experience.py", "too_long += not fits", "too_long += fits", _TEACHER_PROMPTS),
    # --- losses
    ("torl/components/algorithms/losses/policy.py", "k3(inputs.log_ratio()", "k3(-inputs.log_ratio()", _LOSSES),
    (
        "torl/components/algorithms/losses/policy.py",
        "unclipped.maximum(clipped)",
        "unclipped.minimum(clipped)",
        _LOSSES,
    ),
    (
        "torl/components/algorithms/losses/policy.py",
        "(advantages < 0) & (per_token > ceiling)",
        "per_token > ceiling",
        _LOSSES,
    ),
    ("torl/components/algorithms/losses/correction.py", "(weights < bounds.low) | ", "", _LOSSES),
    (
        "torl/components/algorithms/losses/correction.py",
        "self.high < self.low",
        "self.high <= self.low",
        _ALGORITHM_OPTIONS,
    ),
    ("torl/components/algorithms/losses/policy.py", " / counts.clamp(min=1)", "", _LOSSES),
    ("torl/components/algorithms/losses/value.py", "errors.maximum(clipped) / 2", "clipped / 2", _LOSSES),
    ("torl/components/algorithms/losses/kl.py", "return -_log_ratio(inputs)\n", "return _log_ratio(inputs)\n", _LOSSES),
    (
        "torl/components/algorithms/aggregation.py",
        "max(1, present_N.sum()) * np.maximum",
        "len(present_N) * np.maximum",
        _LOSSES,
    ),
    ("torl/components/algorithms/aggregation.py", "1 / max(1.0, tokens_N.sum())", "1 / len(tokens_N)", _BATCH),
    ("torl/learner/objective.py", "per_token = per_token * weights", "pass", _POLICY),
    (
        "torl/learner/objective.py",
        "per_token + algorithm.kl.coefficient",
        "per_token - algorithm.kl.coefficient",
        _POLICY,
    ),
    ("torl/learner/model/head.py", "else logits.float() / temperature", "else logits.float()", _HEAD),
    ("torl/learner/model/head.py", "logprob_gradient_K / ctx.temperature", "logprob_gradient_K", _HEAD),
    ("torl/learner/model/head.py", ".add_(entropy_K[:, None]).mul_(", ".mul_(", _HEAD),
    ("torl/learner/model/head_kernels.py", "total * rescaling", "total", "cuda_contract/test_cuda_head.py"),
    ("torl/learner/model/head.py", "if logits_dtype == weight.dtype:", "if True:", _HEAD),
    ("torl/learner/model/head.py", "sum_K.mul_(rescaling_K)", "sum_K", _HEAD),
    ("torl/learner/model/head.py", "weighted_K.mul_(rescaling_K)", "weighted_K", _HEAD),
    ("torl/learner/model/head.py", "stored, ctx.stored = ctx.stored[::-1], []", "stored = ctx.stored[::-1]", _HEAD),
    (
        "torl/learner/model/head.py",
        "hidden_gradient = torch.zeros_like(hidden_KD, dtype=torch.float32)",
        "hidden_gradient = torch.zeros_like(hidden_KD)",
        _HEAD,
    ),
    ("torl/learner/model/attention.py", "window = (-1, 0)", "window = (-1, -1)", _ATTENTION),
    (
        "torl/learner/model/attention.py",
        "torch.tensor([0, *accumulate(lengths)]",
        "torch.tensor([*accumulate(lengths)]",
        _ATTENTION,
    ),
    # --- the learner on CUDA
    ("torl/learner/model/loading.py", "with device:", 'with torch.device("cpu"):', f"{_CUDA}ranks.py"),
    (
        "torl/learner/model/loading.py",
        "                _copy_constants(",
        "                print(",
        "torl/learner/test_loading.py -k exact",
    ),
    (
        "torl/learner/deepspeed_engine.py",
        '"communication_data_type": "fp32"',
        '"dump_state": False',
        f"{_CUDA}learner.py",
    ),
    ("torl/learner/offload.py", "self._move_shards(_to_host)", "pass", f"{_CUDA}state_moves.py"),
    ("torl/learner/offload.py", "if not parameter.requires_grad:", "if False:", f"{_CUDA}ranks.py -k 3-lora"),
    ("torl/learner/rank.py", "self._reference_mover.offload()", "pass", f"{_CUDA}ranks.py -k 2-critic"),
    (
        "torl/learner/update.py",
        "torch.stack(list(sums.values()))",
        "torch.stack(list(sums.values())).cpu()",
        f"{_CUDA}ranks.py",
    ),
    (
        "torl/learner/process_group.py",
        "precision_reduction = False",
        "precision_reduction = True",
        f"{_CUDA}ranks.py",
    ),
    ("torl/learner/process_group.py", "        _require_safe_allocator()\n", "", f"{_CUDA}learner.py -k rounded"),
    ("torl/learner/model/head.py", "size % _PART_MULTIPLE if", "0 if", f"{_HEAD} -k aligned"),
    (
        "torl/learner/optimizer_shards.py",
        "if engine.zero_optimization_stage() == 3:",
        'if hasattr(engine.optimizer, "grad_position"):',
        f"{_CUDA}ranks.py -k parts_in",
    ),
    (
        "torl/components/engine/vllm/arguments.py",
        "if on_cpu and setup.on_gpus:",
        "if False:",
        "torl/components/engine/test_devices.py",
    ),
    (
        "torl/run/placement/machine.py",
        'visible_gpus("" if hidden else list_gpus()',
        "visible_gpus(list_gpus()",
        _PLACEMENT,
    ),
    ("torl/learner/model/lora.py", "if isinstance(layer, Conv1D)]", "if False]", f"{_LORA} -k refused"),
    (
        "torl/learner/model/lora.py",
        "layers = {name: layer for name, layer in causal_lm.named_modules() if layer is not head}",
        "layers = dict(causal_lm.named_modules())",
        "torl/learner/test_adapters.py",
    ),
    (
        "torl/learner/publishing.py",
        "for name, buffer in saved_buffers(engine.module).items():",
        "for name, buffer in ():",
        "torl/learner/test_model_families.py -k leave",
    ),
    (
        "torl/learner/rank.py",
        "require_separate_samples(self.engine)",
        "pass",
        "torl/learner/test_loading.py -k mixes",
    ),
    (
        "torl/learner/rank.py",
        "require_separate_samples(self._reference)",
        "pass",
        "torl/learner/test_loading.py -k mixes",
    ),
    ("torl/learner/model/lora.py", "if torch.equal(compact.float(), base.weight):", "if True:", _FROZEN),
    ("torl/learner/model/lora.py", "base.weight.data = compact", "pass", _FROZEN),
    (
        "torl/run/placement/learner_bytes.py",
        "return policy, self._states(shape.trunk_parameters + shape.hidden + 1)",
        "return policy, self._states(trained)",
        "torl/run/placement/test_states.py -k critic",
    ),
    # --- batches
    ("torl/learner/rows.py", "self.start + offsets - 1)", "self.start + offsets)", _BATCH),
    ("torl/learner/rows.py", "(prompt_start if shared else start) + first - 1", "start + first - 1", _BATCH),
    (
        "torl/learner/rows.py",
        "add(sample.token_ids[shared:], shared, prompt)",
        "add(sample.token_ids[shared:], 0, prompt)",
        _BATCH,
    ),
    (
        "torl/learner/rows.py",
        "add(sample.token_ids[shared:], shared, prompt)",
        "add(sample.token_ids[shared:], shared, None)",
        _SHARING,
    ),
    ("torl/learner/shared_prompts.py", "sample.loss_mask | (weights > 0)", "sample.loss_mask", _SHARING),
    ("torl/learner/shared_prompts.py", "(keys + 1) // 2)", "0)", _BATCH),
    ("torl/learner/shared_prompts.py", "    if ranks > 1:", "    if False:", _BATCH),
    ("torl/learner/shared_prompts.py", "< _MIN_SAVING * sum(", "< 0 * sum(", _BATCH),
    ("torl/learner/model/attention.py", ".tril(before)", ".tril()", _ATTENTION),
    ("torl/learner/batch.py", "(counts[index] and not (", "(not (", _BATCH),
    ("torl/learner/optimizer_steps.py", "repr((key, epoch))", "repr(key)", _MINI_BATCHES),
    ("torl/learner/optimizer_steps.py", "(returns - values).var(", "((returns - values) ** 2).mean(", _MINI_BATCHES),
    # --- episodes
    ("torl/rollout/episode.py", "await episode.tools.close()", "pass", _EPISODE),
    ("torl/components/formats/format.py", "not calls and find_answer(turn.text) is None", "not calls", _EPISODE),
    (
        "torl/rollout/episode.py",
        "append_observation(token_ids[: self._remaining()], ",
        "append_observation(token_ids, ",
        _EPISODE,
    ),
    (
        "torl/rollout/transcript.py",
        '.endswith(b"\\n")\n    return True',
        '.endswith(b"\\n")\n    return False',
        _EPISODE,
    ),
    ("torl/rollout/transcript.py", "self.problem, self.sample, number)", "self.problem, number)", _EPISODE),
    ("torl/rollout/episode.py", "self.seed, batch_id, prompt", "self.seed, prompt", _EPISODE),
    (
        "torl/rollout/episode.py",
        "self.settings.max_tool_calls - len(self.transcript.tool_calls)",
        "self.settings.max_tool_calls",
        _EPISODE,
    ),
    ("torl/rollout/transcript.py", "min(stop, kept)", "stop", _EPISODE_LAWS),
    ("torl/rollout/transcript.py", "shorten_outcome(call.outcome)", "call.outcome", _EPISODE),
    ("torl/rollout/transcript.py", "start_version=episode.start_version,", "", _EPISODE),
    ("torl/components/engine/vllm/options.py", '.get("hf_overrides")', '.get("")', "torl/rollout/test_opening.py"),
    (
        "torl/components/text/vocabulary.py",
        'len(data[: block.start].decode("utf-8", errors="replace"))',
        "block.start",
        _TURNS,
    ),
    ("torl/rollout/calls.py", "task.cancel()\n            task.add", "task.add", _CALLS),
    ("torl/rollout/calls.py", "task.cancel()  # if another", "pass  # if another", _CALLS),
    ("torl/rollout/calls.py", "== [[request]]:", "== []:", _CALLS),
    ("torl/rollout/calls.py", "self._session(request.tool).fork()", "self._session(request.tool)", _CALLS),
    ("torl/rollout/calls.py", "self._sessions[tool] = calls.session", "pass", _CALLS),
    ("torl/rollout/calls.py", "self._early[tool].requests != requests[", "[] != requests[", _CALLS),
    ("torl/rollout/calls.py", "await asyncio.wait([before])", "pass", _CALLS),
    ("torl/rollout/calls.py", "None if self.is_stateless or not", "None if not", _CALLS),
    ("torl/rollout/calls.py", " or not tool.speculative", "", _CALLS),
    ("torl/rollout/calls.py", "= clean_outcome(await", "= (await", _CALLS),
    ("torl/rollout/calls.py", "if isinstance(value, str) else value", "if False else value", _CALLS),
    (
        "torl/rollout/environment.py",
        "map(replace_surrogates, reply.user_messages)",
        "reply.user_messages",
        _ENVIRONMENT,
    ),
    (
        "torl/components/rewards/reward.py",
        "chain([grade.reward], grade.turn_rewards, ",
        "chain([grade.reward], ",
        _GRADING,
    ),
    ("torl/components/rewards/reward.py", "if grade.turn_rewards and", "if False and", _GRADING),
    (
        "torl/rollout/scheduler.py",
        "sorted(self.trajectories, key=lambda trajectory: trajectory.sample_index)",
        "self.trajectories",
        _SCHEDULER,
    ),
    ("torl/rollout/scheduler.py", "if failed > allowed:", "if False:", _FAILED_EPISODES),
    ("torl/rollout/scheduler.py", "min(_MIN_ALLOWED_FAILURES, episodes // 2)", "0", _FAILED_EPISODES),
    ("torl/rollout/transcript.py", "if not all(map(math.isfinite, sampled.logprobs)):", "if False:", _EPISODE),
    ("torl/api/event_loop.py", "signal.signal(signal.SIGINT, note)", "pass", "torl/api/test_api_interrupt.py"),
    (
        "torl/run/config/loading.py",
        "table[parent] = default_table_at(config_class, tree, parents[:depth])",
        "pass",
        _CONFIG,
    ),
    ("torl/training/selection.py", ">= config.min_group_size", ">= 1", _FAILED_EPISODES),
    ("torl/rollout/group_file.py", "if len(group.trajectories) < samples:", "if False:", _FAILED_EPISODES),
    (
        "torl/components/tools/wrappers.py",
        "self._attempt(session.fork(), arguments)",
        "self._attempt(session, arguments)",
        _BOUNDED,
    ),
    (
        "torl/components/tools/search_index.py",
        "np.lexsort((candidates, -scores[candidates]))",
        "np.argsort(scores[candidates])",
        _SEARCH,
    ),
    ("torl/components/tools/search_index.py", " {digest}", "", _SEARCH),
    ("torl/components/tools/wrappers.py", "async with self._slots:", "if True:", _BOUNDED),
    ("torl/components/tools/wrappers.py", "if mistakes := self._mistakes(arguments):", "if False:", _BOUNDED),
    ("torl/components/tools/wrappers.py", "None if tool.checks_arguments else ", "", _BOUNDED),
    (
        "torl/components/formats/format.py",
        " and set(required) <= {argument}:",
        ":",
        "torl/components/test_extending.py",
    ),
    ("torl/__main__.py", "found = plugins(COMMANDS, OWN)", "found = {}", "torl/base/test_plugins.py"),
    ("torl_sandbox/output.py", "return 128 + signal.SIGPIPE", "return 0", "sandbox/test_sandbox_command.py"),
    ("torl/components/tools/retry.py", " and not retry_component_errors:", " and False:", _BOUNDED),
    ("torl/base/guard.py", "if task is None or task.cancelling():", "if True:", _BOUNDED),
    ("torl/base/guard.py", "if task is None or task.cancelling():", "if False:", _BOUNDED),
    ("torl/base/runtime/processes/supervision.py", "daemon=True", "daemon=False", "torl/base/runtime/test_threads.py"),
    (
        "torl/base/runtime/processes/supervision.py",
        "error = _as_runtime_error(raised)\n        except Exception",
        "error = raised\n        except Exception",
        "torl/base/runtime/test_threads.py",
    ),
    ("torl/base/guard.py", "task.cancelling():", "not task.cancelling():", _GRADING),
    ("torl/rollout/scheduler.py", "await asyncio.gather(*unfinished, return_exceptions=True)", "pass", _SCHEDULER),
    (
        "torl/rollout/slots.py",
        "self._sampling + self._waiting < _MAX_STARTED_FACTOR",
        "0 < _MAX_STARTED_FACTOR",
        _SCHEDULER,
    ),
    # --- formats and tools
    ("torl/components/formats/format.py", "call if number < calls_left else TOO_MANY_CALLS", "call", _CHAT),
    ("torl/components/formats/chat/chat_format.py", "and not user_messages:", ":", _CHAT),
    ("torl/components/formats/chat/calls.py", "parse_constant=_refuse, ", "", _CHAT),
    ("torl/components/formats/chat/calls.py", "math.isfinite(number)", "True", _CHAT),
    ("torl/components/formats/chat/calls.py", "json.dumps(value, ensure_ascii=False).encode()", "pass", _CHAT),
    ("torl/components/formats/chat/families.py", '[*parts, Markup("<|im_end|>")]', "parts", _CHAT),
    ("torl/components/formats/chat/families.py", 'user\\n"), content, Markup', 'user\\n"), Markup', _CHAT),
    ("torl/components/formats/chat/families.py", "header, content, Markup", "content, Markup", _CHAT),
    (
        "torl/components/formats/chat/chat_format.py",
        "_, position = self.read_call(text, mark, thinks=thinks)",
        "position = mark.end()",
        _CALLS,
    ),
    ("torl/components/formats/chat/chat_format.py", "return None  # without tags", "pass  # without tags", _CHAT),
    ("torl/components/formats/chat/chat_format.py", "stop = stop if is_json else start", "stop = start", _CALLS),
    ("torl/components/formats/chat/chat_format.py", "if end < 0:", "if False:", _CHAT),
    ("torl/components/formats/chat/calls.py", "thinks = opened or (", "thinks = (", _CALLS),
    (
        "torl/components/formats/chat/calls.py",
        "return (thoughts, others, text[start:]) if thinks else",
        "return",
        _CALLS,
    ),
    ("torl/components/formats/chat/calls.py", "thinks, start = False, ", "thinks, start = True, ", _CALLS),
    ("torl/components/formats/chat/calls.py", "    if call:\n", "    if False:\n", _CALLS),
    ("torl/components/formats/chat/calls.py", "if len(value) < len(pairs):", "if False:", _CALLS),
    ("torl/components/formats/chat/calls.py", "return begin + stop, True", "return begin + length, True", _CALLS),
    ("torl/components/formats/chat/headers.py", "and not thinks and", "and", _CALLS),
    (
        "torl/components/formats/chat/headers.py",
        "isinstance(call, ToolRequest) and isinstance(value, dict)",
        "isinstance(value, dict)",
        _CALLS,
    ),
    ("torl/components/formats/chat/headers.py", " and not _KEYS.isdisjoint(value)", "", _CALLS),
    (
        "torl/components/formats/chat/headers.py",
        "stop if is_json else start)",
        "start)",
        "torl/components/formats/test_tags_in_text.py",
    ),
    (
        "torl/components/formats/chat/headers.py",
        "if end[0] == _CALL and position == len(text):",
        "if end[0] == _CALL:",
        _CALLS,
    ),
    (
        "torl/components/formats/results.py",
        "if not all(call.is_malformed for call in each.calls)",
        "if False",
        "torl/components/formats/test_results.py",
    ),
    ("torl/rollout/transcript.py", "self.is_closed or (self.scan.overshoot", "(self.scan.overshoot", _CHAT),
    ("torl/rollout/episode.py", "scanned.is_closed and has_room:", "has_room:", _ENVIRONMENT),
    ("torl/rollout/environment.py", "self._answered = turn", "pass", _ENVIRONMENT),
    (
        "torl/rollout/environment.py",
        "next(of_environment if each.tool in environment.tools else",
        "next(",
        _ENVIRONMENT,
    ),
    ("torl/rollout/environment.py", "await session.close()", "pass", _ENVIRONMENT),
    ("torl/rollout/environment.py", "async with self.bounded.slots:", "if True:", _ENVIRONMENT),
    ("torl/base/runtime/processes/hangs.py", "max(start, self._answers.get(component, start))", "start", _STACKS),
    ("torl/base/runtime/processes/hangs.py", "except Exception:", "except BaseException:", _STACKS),
    ("torl/rollout/calls.py", 'open_calls.open(f"the tool {request.tool!r}")', 'open_calls.open("")', _CALLS),
    (
        "torl/components/environments/bounded.py",
        "await self.close_session(session)\n            raise",
        "raise",
        _ENVIRONMENT,
    ),
    (
        "torl/components/environments/bounded.py",
        "retry_component_errors=True",
        "retry_component_errors=False",
        _ENVIRONMENT,
    ),
    ("torl/components/interop/trl.py", "if self._is_reusable:", "if True:", _TRL_CLASS),
    ("torl/components/interop/trl.py", 'last["content"] + observation', 'last["content"]', _TRL_CLASS),
    ("torl/rollout/startup.py", "stack.push_async_callback(environment.close)", "pass", "torl/rollout/test_opening.py"),
    ("torl/components/rewards/reward.py", "weights.get(name, 1.0) * value", "value", _ENVIRONMENT),
    ("torl_lab/audit/replay.py", "if turns != rollout.max_turns:", "if False:", _ENVIRONMENT),
    (
        "torl_lab/audit/replay.py",
        "[message.text for message in messages]",
        "['No.'] * len(messages)",
        _ENVIRONMENT,
    ),
    ("torl/rollout/episode.py", " and started < calls_left", "", _CHAT),
    ("torl/components/text/tokenizer.py", "if isinstance(part, Markup) else [part]", "", _CHAT),
    ("torl/components/text/vocabulary.py", " if names.get(index) not in visible", "", _CHAT),
    ("torl/components/formats/observation.py", "if not data.startswith(overshoot):", "if True:", _OBSERVATION),
    ("torl/components/formats/blocks.py", "turn.blocks[-1].code", "turn.blocks[0].code", _OBSERVATION),
    (
        "torl/components/formats/observation.py",
        "not fits(observation, limit)",
        "not fits(observation, limit - 1)",
        _OBSERVATION,
    ),
    (
        "torl/components/formats/observation.py",
        "_LIMIT_LINES.get(outcome.status) or outcome.text",
        "outcome.text",
        _OBSERVATION,
    ),
    ("torl/components/formats/observation.py", 'outcome.text.rstrip("\\n")', "outcome.text.strip()", _OBSERVATION),
    (
        "torl/components/formats/observation.py",
        "max(0, too_long - 1)",
        "too_long",
        "torl/components/formats/test_search_r1.py",
    ),
    (
        "torl/components/text/answers.py",
        "in reversed(closed)",
        "in closed",
        "torl/components/rewards/test_exact_match.py",
    ),
    ("torl/recipes/tora/__init__.py", "outcome.ok and not outcome.text.strip()", "False", _OBSERVATION),
    ("torl/recipes/tora/__init__.py", "outcome.status is OutcomeStatus.TIMEOUT", "False", _OBSERVATION),
    ("torl/components/tools/python.py", "        if outcome.ok:\n", "        if True:\n", _TOOL),
    ("torl/components/tools/python.py", "[*self.successful]", "self.ran_well", _TOOL),
    ("torl/components/programs/sandbox_host.py", "self._kept_bytes > self._max_bytes", "False", f"{_TOOL} -k bounded"),
    (
        "torl/components/programs/sandbox_host.py",
        "_PROGRAMS_PER_WORKER = 2",
        "_PROGRAMS_PER_WORKER = 99",
        f"{_TOOL} -k bounded",
    ),
    ("torl/components/tools/python.py", "type(self)(self.program.fork())", "self", _TOOL),
    (
        "torl/components/tools/python.py",
        "self.interpreter.run_async(code, seed=self.seed)",
        "self.interpreter.run_async(code)",
        _TOOL,
    ),
    ("torl/components/tools/wrappers.py", " if other_seed != seed]", "]", _SHUFFLED),
    ("torl/components/tools/wrappers.py", "self._random.choice(others)", "others[0]", _SHUFFLED),
    # --- tokenizers and data
    (
        "torl/components/text/tokenizer.py",
        "value if isinstance(value, list)",
        "value[:1] if isinstance(value, list)",
        _TOKENIZER,
    ),
    (
        "torl/components/text/tokenizer.py",
        "Tokenizer(backend.model)",
        "Tokenizer.from_str(backend.to_str())",
        _TOKENIZER,
    ),
    (
        "torl/recipes/torl/__init__.py",
        'return TEMPLATE.replace("{problem}", problem.question, 1)',
        'return TEMPLATE.replace("{problem}", problem.question.strip(), 1)',
        _PROMPTS,
    ),
    ("torl/components/text/prompts.py", "> self._max_prompt_tokens", ">= self._max_prompt_tokens", _PROMPTS),
    ("torl/components/data/problems.py", "> MAX_INVALID_FRACTION * rows", ">= MAX_INVALID_FRACTION * rows", _PROBLEMS),
    ("torl/components/data/sampler.py", "self._shared = missing", "self._shared = 0", _SAMPLER),
    ("torl/components/data/sampler.py", "self._deferred = tuple(deferred)", "self._deferred = ()", _SAMPLER),
    ("torl/base/seeds.py", "{type(part).__name__}:", "", "torl/base/test_seeds.py"),
    # --- choices and configuration
    ("torl/base/options/choices.py", 'options.pop("name", self.default)', 'options.pop("name", None)', _OPTIONS),
    ("torl/base/options/choices.py", '{"name": name, option: value}', '{"name": name}', _OPTIONS),
    ("torl/base/options/choices.py", "partial(self.target, **self._keywords())", "self.target", _OPTIONS),
    ("torl/base/options/signatures.py", "elif indent > 4 and meanings:", "elif False:", _OPTIONS),
    ("torl/base/options/choices.py", "self.options.model_dump(), *values)", "{}, *values)", _OPTIONS),
    ("torl/run/config/loading.py", "table.clear()  # the options of another choice", "pass", _CONFIG),
    ("torl/run/config/loading.py", '(not name.endswith(".name"), name.count("."))', 'name.count(".")', _CONFIG),
    ("torl/run/config/loading.py", "text if is_text and not isinstance(value, str) else value", "value", _CONFIG),
    ("torl/run/config/loading.py", "table[parent] = choice.expand(table[parent])", "pass", _CONFIG),
    ("torl/run/config/loading.py", "choice.default or parents[-1]", "choice.default", _CONFIG),
    ("torl/run/config/loading.py", "merged.pop(key, None)", "pass", _CONFIG),
    ("torl/run/config/loading.py", 'if both and (same or "name" not in new) else new', "if both else new", _CONFIG),
    ("torl/run/config/explain.py", "if others:", "if False:", _CONFIG),
    ("torl/run/config/commands.py", "name not in _OTHERS or name in known", "name in known", _CONFIG),
    ("torl/run/config/commands.py", " if name not in others}", "}", _CONFIG),
    # --- measurements and records
    ("torl/run/records/dynamics.py", "trajectory.turns[1:]]", "trajectory.turns]", _DYNAMICS),
    ("torl/run/records/row_types.py", "True in succeeded[succeeded.index(False) :]", "True in succeeded", _DYNAMICS),
    ("torl/run/records/dynamics.py", "len(np.unique(each)) > 1", "len(np.unique(each)) > 0", _DYNAMICS),
    ("torl/base/types/grades.py", "for member in self.members}) == 1", "for member in self.members}) <= 2", _DYNAMICS),
    ("torl/run/records/dynamics.py", "offset + block.start < answer.start", "block.start < answer.start", _DYNAMICS),
    ("torl/run/records/reading.py", 'if not line.endswith(b"\\n"):', "if False:", _WRITERS),
    ("torl/run/records/rows.py", "and not math.isfinite(value) else value for", "and False else value for", _WRITERS),
    ("torl/run/records/row_types.py", "if default is NODEFAULT or value != default:", "if True:", _ROWS),
    ("torl/run/records/row_types.py", "Meta(ge=-sys.float_info.max, le=sys.float_info.max)", "Meta()", _ROWS),
    ("torl/run/records/rows.py", 'if name == "...":', "if False:", _ROWS),
    ("torl/run/records/rows.py", "if any(len(array) != len(trajectory)", "if any(False", _ROWS),
    ("torl/run/records/writers.py", "file_step >= step", "file_step > step", _WRITERS),
    ("torl/run/records/run_directory.py", " if key != _START_KEY]", "]", _RUN_DIRECTORY),
    ("torl/run/records/run_directory.py", "for key in {**before, **now}", "for key in now", _RUN_DIRECTORY),
    ("torl/run/records/run_directory.py", "if changed_keys(directory, config):", "if False:", _RUN_DIRECTORY),
    (
        "torl/run/records/run_directory.py",
        "earlier_file(directory, len(earlier) + 1)",
        "earlier_file(directory, 1)",
        _RUN_DIRECTORY,
    ),
    ("torl/run/records/run_directory.py", " or earlier[-1].read_bytes() != data", " or True", _KILLED),
    ("torl/run/records/receipt.py", "if configs and CONFIG_FILE in entries else {}", "if False else {}", _KILLED),
    ("torl/run/records/writers.py", "facts or {}, configs)", "facts or {}, None)", _KILLED),
    ("torl/run/records/files.py", "fcntl.LOCK_EX", "fcntl.LOCK_SH", _RUN_DIRECTORY),
    # --- weights
    ("torl/components/weights/channel.py", "        if not wrong:\n", "        if True:\n", _CHANNEL),
    ("torl/components/weights/channel.py", "if not done:", "if False:", _CHANNEL),
    ("torl/components/weights/bucket.py", "math.ceil(size / ALIGNMENT) * ALIGNMENT", "size", _CHANNEL),
    (
        "torl/components/weights/bucket.py",
        "torch.arange(start, start + piece.numel(),",
        "torch.arange(0, piece.numel(),",
        _CHANNEL,
    ),
    (
        "torl/components/weights/rendezvous.py",
        "range(sender, self.receivers, self.senders)",
        "range(sender, self.receivers)",
        _CHANNEL,
    ),
    (
        "torl/components/weights/channel.py",
        "if self.end == _STORE_OWNER else local_address_for",
        "if True else local_address_for",
        _CHANNEL,
    ),
    ("torl/components/weights/rendezvous.py", "index * self.senders // len(nodes)", "index % self.senders", _NODES),
    ("torl/components/weights/transports/gloo.py", "payload.clone()", "payload", _NODES),
    (
        "torl/learner/ranks.py",
        "if causes or len(replies) == len(waiting):",
        "if True:",
        "torl/learner/test_ranks_of_nodes.py",
    ),
    (
        "torl/components/engine/remote.py",
        ".replace(str(self._local_log), str(self._log))",
        "",
        "torl/base/runtime/test_cluster_logs.py",
    ),
    (
        "torl/base/runtime/cluster/per_node.py",
        "self._actors[number % len(self._actors)]",
        "self._actors[0]",
        _CLUSTER_ROLES,
    ),
    (
        "torl/base/runtime/cluster/__init__.py",
        "if cluster.is_this_machine",
        "if not cluster.is_this_machine",
        _CLUSTER_ROLES,
    ),
    (
        "torl/base/runtime/cluster/calls.py",
        "self._bytes > _MAX_WAITING_BYTES",
        "self._bytes < 0",
        "torl/base/runtime/test_cluster_calls.py",
    ),
    ("torl/base/runtime/cluster/calls.py", "not isinstance(error, TorlError)", "False", _CLUSTER_CALLS),
    (
        "torl/base/runtime/cluster/calls.py",
        'if message.kind != "item":',
        "if False:",
        "torl/base/runtime/test_cluster_calls.py",
    ),
    (
        "torl/training/checkpoints.py",
        "if not await cluster.run_on(node, Path.exists, marker):",
        "if False:",
        _CLUSTER_ROLES,
    ),
    # --- devices and their memory
    (
        "torl/components/engine/replicas.py",
        "self._make(slot.number, self._load_weights)",
        "self._make(slot.number, True)",
        _DEATHS,
    ),
    (
        "torl/components/engine/replicas.py",
        "_version, self._load_weights = policy_version, False",
        "_version = policy_version",
        _DEATHS,
    ),
    ("torl/components/engine/replicas.py", "policy_version if load_weights else NO_POLICY", "policy_version", _DEATHS),
    (
        "torl/components/engine/vllm/arguments.py",
        "setup.load_weights or drafts or not _is_all_parameters(setup.model)",
        "False",
        _ARGUMENTS,
    ),
    ("torl/run/placement/ledger.py", 'add_bytes(host, {"copy": learner.written * placement.ranks})', "host", _LEDGER),
    (
        "torl/components/engine/vllm/options.py",
        "max(1, self.shape.kv_heads // self",
        "max(0, self.shape.kv_heads // self",
        _LEDGER,
    ),
    ("torl/run/placement/ledger.py", "_times(workers, engine.with_weights())", "engine.with_weights()", _CORES),
    ("torl/run/placement/learner_bytes.py", ' and self.shape.dtype == "bfloat16":', ":", f"{_CORES} -k stored"),
    ("torl/run/placement/fit.py", "machine.host_bytes - machine.host_used_bytes", "machine.host_bytes", _CORES),
    ("torl/training/residency.py", "checksum=self._checksum", "checksum=False", _RESIDENCY),
    (
        "torl/training/residency.py",
        "is not LearnerMemory.RESIDENT:\n            raise",
        "is None:\n            raise",
        _RESIDENCY,
    ),
    ("torl/training/residency.py", "is not EngineMemory.ASLEEP:", "is None:", _RESIDENCY),
    ("torl/commands/plan.py", "read / card.memory / batch", "read / card.memory", "torl/commands/test_plan.py"),
    (
        "torl/run/placement/sides.py",
        "return devices[:learner], devices[-engine:]",
        "return devices, devices",
        _PLACEMENT,
    ),
    ("torl/run/placement/gpus.py", 'int(driver.split(".")[0]) < oldest', "False", _PLACEMENT),
    ("torl/run/placement/fit.py", " - _SPARE * gpus[gpu].memory_bytes", "", _PLACEMENT_ROWS),
    ("torl/run/placement/fit.py", "tokens >= _MIN_FAST_ROW and ", "", _PLACEMENT_ROWS),
    ("torl/run/placement/states.py", "1 << (size - 1).bit_length() if size else 0", "size", _LEDGER),
    ("torl/run/placement/gpus.py", "self.memory_bytes - self.used_bytes", "self.memory_bytes", _LEDGER),
    ("torl/run/placement/fit.py", "max(shortest, (tokens - 1)", "min(shortest, (tokens - 1)", _PLACEMENT_ROWS),
    (
        "torl/run/placement/resolve.py",
        '"while_sampling" if offloads and learner.zero_stage >= 2',
        '"while_sampling" if offloads',
        _PLACEMENT,
    ),
    # --- the audit
    ("torl_lab/audit/checks.py", "max(0, record.step - max_staleness)", "0", _CHECKS),
    ("torl_lab/audit/replay.py", "rollout_logprobs_T <= MAX_LOGPROB", "rollout_logprobs_T <= 1", _AUDIT_TOKENS),
    ("torl_lab/audit/history.py", "exists() and self.may_lack_row(step)", "exists()", _AUDIT_UPDATES),
    (
        "torl_lab/audit/learning.py",
        "above = rest * ceiling if rest else 0.0",
        "above = math.inf",
        _AUDIT_UPDATES,
    ),
    (
        "torl_lab/audit/learning.py",
        "nextafter(0.0, 1.0) if moves",
        "nextafter(0.0, 1.0) * 0 if moves",
        _AUDIT_UPDATES,
    ),
    ("torl_lab/audit/problem_sets.py", " and not source_has_changed():", " and False:", _AUDIT_ORDER),
    ("torl_lab/audit/problem_sets.py", "if not isinstance(error, NotTrustedError) and", "if", _AUDIT_ORDER),
    ("torl/run/records/receipt.py", 'if line["event"] == "row" and line["step"] < step]', "]", _RESUMED),
    ("torl/training/startup.py", "if lost_rows:", "if False:", _RESUMED),
    ("torl/training/startup.py", "if missing:", "if False:", _RESUMED),
    ("torl_lab/audit/checks.py", "record.grade.failure is None and ", "", _CHECKS),
    ("torl_lab/audit/batch.py", 'if self.config.ablation.shuffle != "rewards":', "if True:", _CHECKS),
    ("torl_lab/audit/logprobs.py", "outside * _OUTSIDE", "outside * 0", _CHECKS),
    ("torl_lab/audit/logprobs.py", "sample.top_p + edge, sample.top_p - edge", "sample.top_p, sample.top_p", _CHECKS),
    ("torl_lab/audit/naive/masks.py", "math.exp(-fmean(logprobs))", "math.exp(fmean(logprobs))", _CHECKS),
    ("torl_lab/audit/batch.py", "set(numbers) <= set(whole)", "True", _AUDIT_RECORDS),
    ("torl_lab/audit/batch.py", "sample_index) in kept_episodes for", "sample_index) or True for", _AUDIT_RECORDS),
    ("torl_lab/audit/batch.py", "groups = group_members(self.trained)", "groups = self.groups", _AUDIT_RECORDS),
    ("torl_lab/audit/batch.py", "return self.read_numbers()", "return {}", _AUDIT_UPDATES),
    ("torl_lab/audit/batch.py", "[0 if masked else int(", "[int(", f"{_PLANTED} -k masked"),
    ("torl_lab/audit/history.py", "reversed(self.configs) if first <= step", "reversed(self.configs)", _AUDIT_RECORDS),
    ("torl_lab/audit/history.py", " and not self.finished", "", _AUDIT_RECORDS),
    (
        "torl_lab/audit/checkpoints.py",
        "- 1).checkpoint.keep_last :]",
        "- 1).checkpoint.keep_last * 0 - 1 :]",
        _AUDIT_RECORDS,
    ),
    ("torl_lab/audit/metric_rows.py", "if place(one) >= place(other):", "if False:", _STARTS),
    ("torl_lab/audit/starts.py", "known[name](line[name])", "True", _STARTS),
    ("torl_lab/audit/starts.py", "if copies > earlier:", "if False:", _STARTS),
    ("torl_lab/audit/starts.py", "elif all(later > first for", "elif all(False for", _STARTS),
    ("torl_lab/audit/receipt_records.py", "if name in unwritten:", "if False:", _KILLED),
    (
        "torl_lab/audit/metrics.py",
        "() if all(is_complete(call.outcome) for call in calls) else _OF_OUTPUTS",
        "()",
        _AUDIT_RECORDS,
    ),
    ("torl_lab/audit/metrics.py", "if name not in expected and", "if False and", _AUDIT_RECORDS),
    ("torl_lab/audit/history.py", "if (key in row, row.get(key)) !=", "if False and () !=", _AUDIT_RECORDS),
    ("torl_lab/audit/metric_rows.py", "len(kinds) == 1 and others == allowed[kinds[0]]", "kinds", _AUDIT_RECORDS),
    ("torl_lab/audit/history.py", "if path not in known:", "if False:", _AUDIT_RECORDS),
    (
        "torl_lab/audit/problem_sets.py",
        "if found and found != expected and source_has_changed():",
        "if False:",
        _AUDIT_ORDER,
    ),
    ("torl_lab/audit/problem_sets.py", "each.record_accuracies(accuracies)", "pass", _AUDIT_ORDER),
    ("torl_lab/audit/problem_sets.py", "if config.rollout.max_staleness and (", "if False and (", _AUDIT_ORDER),
    ("torl_lab/audit/problem_sets.py", "and before.max_staleness and", "and", _AUDIT_ORDER),
    (
        "torl_lab/audit/problem_sets.py",
        "before.prompts_per_step != config.rollout.prompts_per_step or ",
        "",
        _AUDIT_ORDER,
    ),
    (
        "torl_lab/audit/checkpoints.py",
        "positions = step + _steps_ahead",
        "positions = step or _steps_ahead",
        _AUDIT_RECORDS,
    ),
    ("torl_lab/audit/batch.py", " or _has_advantage(record)", " or True", _AUDIT_ORDER),
    ("torl_lab/audit/batch.py", "for part in found if part]", "for part in found]", _AUDIT_ORDER),
    ("torl_lab/audit/naive/learner.py", "max(1, total - warmup)", "max(1, total)", _FORMULAS),
    ("torl_lab/audit/advantages.py", "rewards[tokens - 1] += reward", "rewards[0] += reward", _CHECKS),
    ("torl_lab/audit/replay.py", "not (named and outcome.text in lines | {outcome.error}) or ", "", _CHECKS),
    ("torl_lab/audit/naive/estimators.py", "statistics.stdev(group)", "statistics.pstdev(group)", _FORMULAS),
    ("torl/training/health.py", "if config.rollout.top_p < 1:", "if False:", _CHECKS),
    ("torl_lab/audit/replay.py", "if observations != {observation}:", "if False:", _CHAT),
    ("torl_lab/audit/tokens.py", "context.end_token_ids.isdisjoint(", "frozenset().isdisjoint(", _CHAT),
    ("torl_lab/audit/replay.py", "if request != call.request:", "if False:", _AUDIT_TOKENS),
    ("torl_lab/audit/replay.py", "if trajectory.rollout_logprobs_T[observed].any() or (", "if (", _AUDIT_TOKENS),
    ("torl_lab/audit/replay.py", " or (trajectory.policy_versions_T[observed] != -1).any():", ":", _AUDIT_TOKENS),
    ("torl_lab/audit/tokens.py", "if one.blocks != replayed.blocks:", "if False:", _AUDIT_TOKENS),
    ("torl_lab/audit/tokens.py", " and ids[stop:position] == expected[: position - stop]", "", _AUDIT_TOKENS),
    (
        "torl_lab/audit/naive/__init__.py",
        "choice.bind() if formula is None else",
        "choice.bind() if choice else",
        f"{_PLANTED} -k masked",
    ),
    ("torl_lab/audit/naive/samplers.py", "repeated + [name", "[name", _FORMULAS),
    ("torl_lab/audit/naive/selection.py", "right.sort(key=_defects)", "right.reverse()", f"{_PLANTED} -k selected"),
    # --- the viewer
    ("torl/run/records/rows.py", "return check_row(parse_json(text), kind)", "raise", _VIEW_INDEX),
    ("torl_lab/view/indexing.py", " and (stat.st_size > file.size or not file.mtime_ns):", ":", _VIEW_INDEX),
    (
        "torl_lab/view/indexing.py",
        "if file is not None and not _continues(",
        "if False and not _continues(",
        _VIEW_INDEX,
    ),
    (
        "torl_lab/view/index.py",
        'database.execute("DELETE FROM chunks WHERE file = ?", (file.id,))',
        "pass",
        _VIEW_INDEX,
    ),
    ("torl_lab/view/facets.py", "row.correct and has_recovery", "has_recovery", _VIEW_INDEX),
    ("torl/components/formats/results.py", "if ends_with_call and content >= length:", "if False:", _VIEW_INDEX),
    ("torl_lab/view/selection.py", "((self.failures == 1) & ~own)", "~own", _VIEW_SELECTION),
    ("torl_lab/view/selection.py", "np.where(np.isnan(keys), np.inf, keys)", "keys", _VIEW_SELECTION),
    (
        "torl_lab/view/selection.py",
        "equal = np.flatnonzero(keys == bound)",
        "equal = np.flatnonzero(keys > bound)",
        _VIEW_SELECTION,
    ),
    ("torl_lab/view/comparison.py", "common = start + int(different[0])", "common = start", _VIEW_SELECTION),
    ("torl_lab/view/comparison.py", "steps == last[owner]", "steps >= first[owner]", _VIEW_SELECTION),
    ("torl_lab/view/requests.py", 'if request.headers.get(_CHANGE_HEADER) != "1":', "if False:", _VIEW_SERVER),
    ("torl_lab/view/server.py", 'not scope["path"].startswith("/api/")', "True", _VIEW_SERVER),
    ("torl_lab/replay/calls.py", "if session.fork() is not session:", "if False:", _VIEW_REPLAY),
    (
        "torl_lab/view/replay.py",
        "int(batch) if set_name == TRAINING and batch.isdigit() else batch",
        "batch",
        _VIEW_REPLAY,
    ),
    # --- checks of runs
    ("torl_lab/doctor/registry.py", "plugins(GROUP, CHECKS)", "plugins(GROUP)", _OTHER_CHECKS),
    ("torl_lab/doctor/registry.py", "if name not in ignored:", "if True:", _OTHER_CHECKS),
    ("torl_lab/doctor/registry.py", "if name != loaded.id:", "if False:", _OTHER_CHECKS),
    ("torl_lab/doctor/registry.py", "known = [*CHECKS, *plugins(GROUP)]", "known = [*CHECKS]", _OTHER_CHECKS),
    ("torl_lab/doctor/run_check.py", "not isinstance(measured, Measurement)", "False", _OTHER_CHECKS),
    ("torl_lab/doctor/run_check.py", 'self.fires == "above" and value <= limit', "False", _DOCTOR),
    ("torl_lab/doctor/run_check.py", "if self.while_flat and history.is_learning:", "if False:", _DOCTOR),
    # --- whole runs: nothing smaller notices these
    ("torl/api/policy.py", '{"evaluation.rollout.max_tool_calls": max_tool_calls}', "{}", "torl/api/test_api.py"),
    ("torl/training/samples.py", "return mask_samples(samples, masks)", "return samples", f"{_VERIFY}masked"),
    (
        "torl/learner/messages.py",
        "temperature=config.policy_temperature",
        "temperature=1.0",
        f"{_VERIFY}one_temperature",
    ),
    # --- problems with tests
    ("torl/components/programs/forms.py", "[: max(0, max_tests - suite.public)]", "[:max_tests]", _FORMS),
    ("torl/components/programs/forms.py", "and json.loads(text) == values", "", _FORMS),
    ("torl/components/programs/forms_values.py", "max(map(_depth, results)) > depth", "True", _FORMS),
    ("torl/components/programs/forms_fields.py", "elif opcode.name not in _HARMLESS_OPCODES:", "elif False:", _FORMS),
    ("torl/components/programs/forms_rows.py", "assert _equal(result, ", "assert True or (", _FORM_VERDICTS),
    ("torl_lab/curation/solutions.py", "if failed is None:", "if True:", _SOLUTIONS),
    # --- agent programs
    (
        "torl/rollout/agents/episode.py",
        "grows = continued is not None and not continued[0].continued",
        "grows = continued is not None",
        _AGENT_LAWS,
    ),
    ("torl/rollout/agents/episode.py", "message.continued = False", "pass", _AGENT_SERVER),
    (
        "torl/rollout/transcript.py",
        "replace(scanned.turn, start=start, stop=len(self.builder),",
        "replace(scanned.turn,",
        _AGENT_LAWS,
    ),
    ("torl/rollout/agents/messages.py", "return parts if ended else [", "return [", _AGENT_LAWS),
    ("torl/rollout/agents/conversations.py", "content.strip(), [call", "content, [call", _AGENT_REQUESTS),
    ("torl/rollout/agents/conversations.py", 'ids.index(message["tool_call_id"]) if', "place if", _AGENT_REQUESTS),
    (
        "torl/components/text/prompt_encoder.py",
        "self._pattern.sub(lambda found: _number(found[0], escaped), value)",
        "value",
        _AGENT_REQUESTS,
    ),
    ("torl/rollout/agents/player.py", "if episode.host_failure.done():", "if False:", _AGENT_PROGRAMS),
    (
        "torl/components/agents/programs.py",
        "os.killpg(process.pid, signal.SIGKILL)",
        "os.kill(process.pid, signal.SIGKILL)",
        _AGENT_PROGRAMS,
    ),
    (
        "torl/learner/batch.py",
        "sample_weights[episode] = weight",
        "sample_weights[episode] = weight / len(episode)",
        _BRANCHES,
    ),
    ("torl/training/samples.py", "episode=episode)", "episode=None)", _BRANCHES),
    ("torl/base/types/grades.py", "replace(self.grade, turn_rewards=())", "self.grade", _BRANCHES),
]

# Changes that no test can notice, each with the reason: (file, text, what it becomes, why). They are not tried.
EQUIVALENT: list[tuple[str, str, str, str]] = [
    (
        "torl_lab/view/indexing.py",
        "if stat.st_size < file.indexed:",
        "if False:",
        "the checksum of lines that a file no longer has is -1, as that of no file; the guard saves reading it",
    ),
    (
        "torl/rollout/episode.py",
        'self.at_line_start = text.endswith("\\n")',
        "self.at_line_start = True",
        "an observation of either format ends with a newline, unless the response ends with it",
    ),
    (
        "torl/components/grading/equivalence.py",
        "isinstance(target, Basic) and target in (nan, zoo)",
        "False",
        "math-verify 0.9 says itself that they equal nothing; the guard is for versions that raise",
    ),
    (
        "torl/rollout/scheduler.py",
        "            slots.remove(start_next)\n            for other in running:\n                other.cancel()",
        "            pass",
        "the generator's `finally` does both as soon as the consumer takes the episode that failed",
    ),
    (
        "torl/components/weights/channel.py",
        "in_flight[number].wait()",
        "pass",
        "on a CPU a header is sent only when its receiver has taken the bucket before it",
    ),
]
