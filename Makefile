# Fencepost. `make help` lists the targets.
SHELL := /bin/bash
GO ?= go
FUZZTIME ?= 10s
SOAKTIME ?= 30m
CUTS ?= 500
MODELSIZE ?= ci
SEEDS ?= 20000
DIFFERENTIAL ?= 300
FORGE ?= github
BIN := bin/fencepost
LDFLAGS := -s -w
BUILDFLAGS ?= -trimpath
export CGO_ENABLED ?= 0

.DEFAULT_GOAL := help

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

.PHONY: build
build: ## build bin/fencepost and the example check
	$(GO) build $(BUILDFLAGS) -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/fencepost
	$(GO) build $(BUILDFLAGS) -ldflags '$(LDFLAGS)' -o bin/doclinks ./examples/checks/doclinks

.PHONY: deps
deps: ## find or install what try and the tests need (git, PostgreSQL, npm packages)
	@scripts/deps

.PHONY: try
try: ## run the whole system on this machine against a simulated forge (FORGE=github, gitlab, gitea or forgejo)
	@scripts/deps git
	@$(MAKE) --no-print-directory build
	@$(BIN) try --forge $(FORGE) $(TRYFLAGS)

.PHONY: test
test: deps ## run every test, nearly all with the race detector
	@scripts/test

LIBRARY := ./webhook/... ./ledger/... ./gitfetch/... ./runner/...

.PHONY: cross
cross: ## build for macOS, and the library for Windows (lint only type-checks them)
	GOOS=darwin $(GO) build -o /dev/null ./...
	GOOS=windows $(GO) build . $(LIBRARY)

.PHONY: lint
lint: ## gofmt, go vet, staticcheck, tidy, and the modules of bench/
	@test -z "$$(gofmt -l . | tee /dev/stderr)" || { echo "run gofmt -w on the files above"; exit 1; }
	$(GO) vet ./...
	$(GO) run -C tools ./crosscheck .. darwin ./...
	$(GO) run -C tools ./crosscheck .. windows . $(LIBRARY)
	$(GO) tool -modfile=tools/go.mod staticcheck ./...
	$(GO) tool -modfile=tools/go.mod go-check-sumtype -default-signifies-exhaustive=false ./...
	$(GO) mod verify >/dev/null
	$(GO) mod tidy -diff
	$(GO) -C bench/ledger vet ./...
	$(GO) -C bench/fetch vet ./...

.PHONY: check
check: lint test fuzz ## what CI runs

.PHONY: vuln
vuln: ## known vulnerabilities in what the binary uses (needs the network)
	$(GO) tool -modfile=tools/go.mod govulncheck ./...

.PHONY: fuzz
fuzz: ## a round of FUZZTIME for each fuzz target (default 10s), or of FETCHTIME for those of gitfetch
	@scripts/fuzz $(FUZZTIME) $(FETCHTIME)

.PHONY: differential
differential: ## compare DIFFERENTIAL trees (default 300) with what git checks out
	FENCEPOST_DIFFERENTIAL=$(DIFFERENTIAL) $(GO) test -count 1 -v -timeout 60m -run 'TestEveryCheckoutIsGits' ./gitfetch

.PHONY: model
model: ## check the model of the ledger exhaustively, and that its mutants are found
	@scripts/model $(MODELSIZE)

.PHONY: enumerate
enumerate: ## crash ledger and inbox at every call, a million states (LEDGER, INBOX)
	@scripts/enumerate

.PHONY: exhaustive
exhaustive: ## crash, and fail, ledger and inbox at every call of their workloads, in every way
	FENCEPOST_EXHAUSTIVE=1 $(GO) test ./ledger/fileledger -run 'AtEveryCall|TestEveryCallSiteFails' -count 1 -v -timeout 3h
	FENCEPOST_THOROUGH=1 $(GO) test ./internal/inbox -run 'AtAnyCall|TestEveryCallSiteFails' -count 1 -v -timeout 3h

.PHONY: mutate
mutate: ## break the code in each of the ways that a test must notice
	@scripts/mutate

.PHONY: simulate
simulate: ## run SEEDS seeds of the simulation of whole controllers (default 20000); a run that is cut off goes on
	@scripts/simulate $(SEEDS)

.PHONY: soak
soak: build ## kill -9 a serving controller under load, at most SOAKTIME (default 30m)
	@scripts/soak $(SOAKTIME)

.PHONY: cuts
cuts: ## cut power, fail and fill disks under writing processes: ext4, XFS, btrfs, CUTS times each (default 500; root)
	FENCEPOST_CUTS=$(CUTS) FENCEPOST_DISKS=20 $(GO) test ./internal/powercut ./internal/durable/crashfs -run 'PowerCuts|ADisk|RealDisks' -count 1 -v -timeout 3h

.PHONY: faults
faults: ## disks that fill and fail, floods, 10,000 slow clients, a cut network, a killed PostgreSQL and stepped clocks against serving controllers (root)
	ulimit -n 20000 && FENCEPOST_NETNS=1 FENCEPOST_FLOOD_SECONDS=30 FENCEPOST_SLOW_CLIENTS=10000 FENCEPOST_CLOCK_POINTS=24 $(GO) test ./internal/e2e -run 'TestAFullDisk|TestADiskThatFails|TestAFlood|TestSlowClients|TestAGateBehindACutNetwork|TestGatesOutliveTheirDatabase|TestStepsOf|TestNoStepOfTheClock' -parallel 1 -count 1 -v -timeout 60m

.PHONY: bench
bench: build ## the figures of docs/benchmarks.md, in pairs, in one run
	@scripts/bench

.PHONY: peer-gitea
peer-gitea: ## build a real Gitea (VERSION, DIR) and run the whole gate against it
	@scripts/peer-gitea

.PHONY: generate
generate: ## JSON Schema, configuration reference
	$(GO) generate ./...
