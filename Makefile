# `make demo` and `make test` install all they need first; everything else is a step of theirs.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PEERS := $(VENV)/peers
UV := $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python
TORCH := torch==2.13.0

.PHONY: demo demo-table algorithm-table test test-slow mutants test-peers peers fuzz lint format install guest clean
.DEFAULT_GOAL := install

demo: install guest
	$(BIN)/python -m torl.train configs/demo.toml --run.directory runs/demo-$$(date +%Y%m%d-%H%M%S)

demo-table: install guest
	$(BIN)/python benchmarks/demo_table.py

algorithm-table: install guest
	$(BIN)/python benchmarks/algorithm_table.py

test: install guest
	cargo test --release --workspace
	$(BIN)/python -m pytest -m "not slow and not gpu"

test-slow: install guest
	$(BIN)/python -m pytest -m slow --timeout 7200

# Mistakes planted one by one in a copy: does a test notice each? (make mutants MUTANTS="python --only rollout/")
mutants: install guest
	$(BIN)/python tests/mutants/run.py $(MUTANTS)

# The estimators and losses against the functions of TRL and verl, which live in an environment of their own.
test-peers: peers
	$(PEERS)/bin/python -m pytest tests/peers

peers: install $(PEERS)/installed

$(PEERS)/installed: requirements/peers.txt $(VENV)/installed
	rm -rf $(PEERS)
	$(BIN)/python -m venv $(PEERS)
	$(BIN)/python -c "import sysconfig; print('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))" \
		> $$($(PEERS)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/torl.pth
	$(BIN)/uv pip install --quiet --python $(PEERS)/bin/python --no-deps -r requirements/peers.txt
	touch $@

# Each target for so many seconds: make fuzz FUZZ_SECONDS=3600
FUZZ_SECONDS ?= 300
fuzz:
	cargo install --quiet --locked --root target/tools cargo-fuzz@0.13.2
	cd crates/sandbox && for target in protocol host_calls; do \
	../../target/tools/bin/cargo-fuzz fuzz run --sanitizer none $$target -- -max_total_time=$(FUZZ_SECONDS) || exit 1; done

lint: install
	cargo fmt --all --check
	cargo fmt --check --manifest-path crates/sandbox/fuzz/Cargo.toml
	cargo clippy --release --workspace --all-targets -- -D warnings
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest torl._core

format:
	cargo fmt --all
	cargo fmt --manifest-path crates/sandbox/fuzz/Cargo.toml
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The sandbox's interpreter, prepared once for a machine: about a minute.
guest: install
	$(BIN)/python -m torl.sandbox check

install: $(VENV)/installed
	$(BIN)/maturin develop --release --uv --quiet

$(VENV)/installed: requirements/cpu.txt requirements/dev.txt
	@# A torch that satisfies the pin (a CPU build, say) is used where the system has one.
	@if $(PYTHON) -c "import sys, torch; sys.exit(torch.__version__.split('+')[0] != '$(TORCH)'.split('==')[1])" 2>/dev/null; \
	then $(PYTHON) -m venv --system-site-packages $(VENV); else $(PYTHON) -m venv $(VENV); fi
	$(BIN)/python -m pip install --quiet uv==0.13.8
	$(UV) "$(TORCH)"
	$(UV) --no-deps -r requirements/cpu.txt -r requirements/dev.txt
	touch $@

clean:
	rm -rf $(VENV) target crates/sandbox/fuzz/target runs
