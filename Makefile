# Each target does all set-up by itself; `make setup` ends at once when nothing has changed.
.PHONY: setup broker demo test test-slow test-all test-nightly stress faults mutants lint bench nexmark archive docs screenshots wheel up down lock clean

PYTHON = .venv/bin/python
# Processes of tests, which share an engine (5 GB).
WORKERS = 2
# Runs that `make stress` makes side by side.
RUNS = 300
# Kills that `make faults` makes, and minutes after which it ends all the same.
KILLS = 1000
MINUTES = 60

setup:
	@tools/setup

# The jars of the Kafka broker that tests start (44 MB), fetched once.
broker: setup
	@$(PYTHON) -m tidemark_streaming.kafka.broker

# `make demo KAFKA=1` streams through a Kafka broker, which it starts.
demo: setup
	@.venv/bin/tidemark demo $(if $(KAFKA),--kafka)

PYTEST = $(PYTHON) -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --durations 15

# The tests that a change usually breaks.
test: setup broker
	$(PYTEST) -m "not slow"

# The other tests of each rule: modules and tests that are marked as slow say why.
test-slow: setup broker
	$(PYTEST) -m "slow and not nightly"

# Both of them in one session, which starts the engine once.
test-all: setup broker
	$(PYTEST) -m "not nightly"

# Further variants of slow tests, and long campaigns.
test-nightly: setup archive broker
	$(PYTEST) -m nightly

stress: setup
	$(PYTHON) tests/stress.py --runs $(RUNS)

# Kills under load: so many, or for so long. `SEED=` chooses the same kills again.
faults: setup archive broker
	PYTHONPATH=tests $(PYTHON) -m campaign --kills $(KILLS) --minutes $(MINUTES) \
		$(if $(SEED),--seed $(SEED))

# Changes the pure modules in thousands of small ways, and counts those that no test notices; a part
# of the names chooses some of them: `make mutants ONLY=watermarks`.
mutants: setup
	$(PYTHON) tools/mutants.py --workers $(WORKERS) $(if $(ONLY),--only $(ONLY))

lint: setup
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/basedpyright
	.venv/bin/lint-imports
	$(PYTHON) tools/lint_language.py
	$(PYTHON) tools/readability.py

bench: setup
	$(PYTHON) -m benchmarks
	$(PYTHON) -m benchmarks.increments
	$(PYTHON) -m benchmarks.checks

# The queries of NEXMark as batch, as stream, and written by hand: equal rows, and seconds.
nexmark: setup
	$(PYTHON) -m benchmarks.nexmark

# Makes engines start sooner, for a minute now and 270 MB; `tidemark down` does it in the background.
archive: setup
	@$(PYTHON) -m tidemark_streaming.home.archive_warmup

# The documents as a site, into `build/site`; whatever it warns of is an error.
docs: setup
	$(PYTHON) -m sphinx --quiet --fail-on-warning --keep-going -d build/doctrees docs build/site

# The pictures of the README, of the platform that `make demo` leaves.
screenshots: setup
	$(PYTHON) tools/screenshots.py

# The package, into `dist/`; it takes nothing of the developers' environment.
wheel:
	@tools/wheel

up: setup
	@.venv/bin/tidemark up

down: setup
	@.venv/bin/tidemark down

# The locks hold hashes and no address, so that any index can serve them.
LOCK = .venv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --no-emit-index-url --no-emit-find-links
lock: setup
	$(LOCK) --upgrade --extra dev -o requirements.lock pyproject.toml
	echo uv | $(LOCK) --upgrade --no-annotate -o tools/bootstrap.lock -
	echo hatchling | $(LOCK) --upgrade --no-annotate -o tools/wheel.lock -

clean: down
	rm -rf .venv .engine build .pytest_cache .ruff_cache .hypothesis .import_linter_cache
