# watertight. "make" lists what there is.

GO      ?= go
TOOL     = $(GO) tool -modfile=tools/go.mod
ARGS    ?=
COUNT   ?= 1
PACKAGES = ./...
FUZZTIME ?= 30s
SOAK    ?= 10m
SEED    ?= random
# Of an earlier commit, to compare with: make bench BASE=HEAD~1
BASE    ?=
BENCH   ?= .
# Of bench-peers: how often everything is measured.
ROUNDS  ?= 5

# The demo with exporters is a module of its own; it is run where make is, for its files.
EXPORTING = bin=$$(mktemp -d) && trap 'rm -rf "$$bin"' EXIT INT TERM && $(GO) -C cmd/demo/exporting build -o "$$bin/demo" . && "$$bin/demo"

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-11s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## watch an outage take a bare client down, and the stack stand (ARGS="-scale 10 -json")
	@$(if $(filter -prometheus% --prometheus% -otlp% --otlp%,$(ARGS)),$(EXPORTING),$(GO) run ./cmd/demo) $(ARGS)

.PHONY: test
test: ## all tests, with the race detector, which needs a C compiler
	@if [ "$$($(GO) env GOOS)" != darwin ] && { [ "$$($(GO) env CGO_ENABLED)" != 1 ] || ! command -v $$($(GO) env CC | cut -d' ' -f1) >/dev/null; }; then \
		echo "make test: the race detector needs a C compiler: install gcc or clang, or set CC, and CGO_ENABLED=1" >&2; exit 1; \
	fi
	$(GO) test -race -count=$(COUNT) $(PACKAGES)

.PHONY: check
check: ## formatting, vet, staticcheck, govulncheck, the rules on imports; and costs, alerts, otelhttp, peers
	@unformatted=$$(gofmt -l .); if [ -n "$$unformatted" ]; then echo "gofmt: $$unformatted"; exit 1; fi
	$(GO) vet $(PACKAGES)
	$(GO) mod tidy -diff
	cd compat && $(GO) vet ./... && $(GO) mod tidy -diff
	$(TOOL) staticcheck $(PACKAGES)
	./testdata/imports.sh
	./testdata/vuln.sh
	$(MAKE) costs alerts otelhttp peers

.PHONY: costs
costs: ## what calls may allocate, without the race detector, which allocates too (15 s)
	$(GO) test -count=1 -run 'Cost|Fits|Memory|Goroutine' ./transport ./cache ./otel ./internal/...

.PHONY: alerts
alerts: ## the alerts and the dashboard: against a real export, and by promtool where there is one
	$(GO) -C cmd/demo/exporting mod tidy -diff
	$(GO) -C cmd/demo/exporting vet ./...
	$(GO) -C cmd/demo/exporting tool -modfile=../../../tools/go.mod staticcheck ./...
	$(GO) -C cmd/demo/exporting test -count=1 ./...
	@if command -v promtool >/dev/null; then promtool check rules testdata/alerts.yaml && promtool test rules testdata/alerts_test.yaml; \
	else echo "alerts: the rules were not tested: there is no promtool (Debian: apt-get install prometheus)"; fi

.PHONY: otelhttp
otelhttp: ## the three ways to live with otelhttp, in a module beside
	$(GO) -C otel/otelhttptest mod tidy -diff
	$(GO) -C otel/otelhttptest vet ./...
	$(GO) -C otel/otelhttptest tool -modfile=../../tools/go.mod staticcheck ./...
	$(GO) -C otel/otelhttptest test -race -count=$(COUNT) ./...

.PHONY: e2e
e2e: ## the outage before a real Prometheus, Alertmanager and Chromium, installed where that is allowed
	@$(GO) -C cmd/demo/exporting run ./e2e

.PHONY: conformance
conformance: ## the public suite of tests for HTTP caches, with node, through the demo's proxy
	@$(GO) run ./testdata/conformance

.PHONY: compat
compat: ## other people's clients, and their own tests, over the stack (FULL=1: all of them)
	cd compat && $(GO) test -count=1 ./... && $(GO) run ./suites $(if $(FULL),-full)

.PHONY: cover
cover: ## statement coverage of policy, cache and transport
	$(GO) test -count=1 -coverpkg=./policy,./cache,./transport -coverprofile=cover.out ./policy ./cache ./transport/...
	@./testdata/cover.sh cover.out

.PHONY: bench
bench: ## benchmarks (BENCH='^BenchmarkCall$$' for some; BASE=commit compares with that commit, side by side)
	@if [ -z "$(BASE)" ]; then $(GO) test -run '^$$' -bench '$(value BENCH)' -benchmem ./transport ./cache ./otel; \
	else ./testdata/bench.sh '$(BASE)' '$(value BENCH)'; fi

.PHONY: bench-peers
bench-peers: ## other people's libraries beside it, into bench/RESULTS.md (16 min; ROUNDS=1 for less; BENCH='Call|Stale' is printed only)
	@$(GO) -C bench run ./report -rounds $(ROUNDS) $(if $(filter-out .,$(BENCH)),-bench '$(value BENCH)')

.PHONY: peers
peers: ## what other people's libraries get wrong, and its benchmarks once, in a module beside (1 min)
	$(GO) -C bench mod tidy -diff
	$(GO) -C bench vet ./...
	$(GO) -C bench tool -modfile=../tools/go.mod staticcheck ./...
	$(GO) -C bench test -race -count=$(COUNT) ./...
	LARGE=1 $(GO) -C bench test -run '^$$' -bench . -skip Hosts100000 -benchtime 1x . >/dev/null

.PHONY: fuzz
fuzz: ## every fuzz target for FUZZTIME (30s)
	@./testdata/fuzz.sh $(FUZZTIME)

.PHONY: soak
soak: ## 200 callers, 50 hosts, every fault at random (SOAK=60s; SEED=n repeats its decisions)
	SOAK='$(SOAK)' SEED='$(SEED)' $(GO) test -race -count=1 -timeout 0 -v -run Everything ./transport/soak
