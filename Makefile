# Everything here needs Go, git and make, and nothing else. Tools of the
# project are Go modules too (tools/go.mod); Go builds and caches them.

GO ?= go
GOFMT := $(shell $(GO) env GOROOT)/bin/gofmt
BIN := bin/cloop
TOOL := $(GO) tool -modfile=tools/go.mod
# Arguments of go test, such as TEST_FLAGS=-run=TestStory.
TEST_FLAGS ?=
# How long one package's tests may take.
TEST_TIMEOUT ?= 15m

VERSION ?=
LDFLAGS := -s -w $(if $(VERSION),-X cloop.dev/cloop/internal/cli.version=$(VERSION))

.DEFAULT_GOAL := help

.PHONY: help
help: ## Show this list
	@awk 'BEGIN {FS = ":.*## "} /^[a-z0-9-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## Bring a whole system up on this machine and play its main job, checked and timed
	@$(BIN) dev demo

.PHONY: test
test: ## Run every test with the race detector, and say where the time went
	@$(GO) run ./cmd/testreport -kubernetes -race -- -timeout=$(TEST_TIMEOUT) $(TEST_FLAGS) ./...

.PHONY: build
build: ## Build bin/cloop
	@echo "building $(BIN): a minute or two the first time"
	@CGO_ENABLED=0 $(GO) build -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/cloop

.PHONY: generate
generate: ## Derive what is derived: definitions, deep copies, reference pages
	@$(TOOL) controller-gen object paths=./apis/v1alpha1
	@$(GO) run ./cmd/schemagen
	@$(GO) run ./cmd/docgen

.PHONY: fmt
fmt: ## Format the Go code
	@$(GOFMT) -w $$(git ls-files -co --exclude-standard '*.go')

.PHONY: lint
lint: ## Run gofmt, go vet and the linters
	@unformatted=$$($(GOFMT) -l $$(git ls-files -co --exclude-standard '*.go')); \
	if [ -n "$$unformatted" ]; then echo "not formatted (make fmt does it):"; echo "$$unformatted"; exit 1; fi
	@$(GO) vet ./...
	@$(GO) vet -tags=flux ./e2e
	@$(TOOL) golangci-lint run --allow-parallel-runners ./...

.PHONY: alerts
alerts: ## Test the alert rules with Prometheus' own tool
	@GOFLAGS=-tags=remove_all_sd $(GO) tool -modfile=tools/promtool/go.mod promtool test rules kustomize/components/monitoring/rules_test.yaml

.PHONY: verify
verify: lint alerts ## Check that the tree is formatted, lint-free and current: generated files, documents, alert rules
	@$(GO) run ./cmd/verify

.PHONY: e2e
e2e: ## Run only the tests of the whole system
	@$(GO) run ./cmd/testreport -kubernetes -race -- -count=1 -timeout=$(TEST_TIMEOUT) $(TEST_FLAGS) ./e2e/...

.PHONY: flux
flux: ## Run examples/flux with Flux's own controllers (built once, some twenty minutes on two cores)
	@$(GO) test -tags=flux -run=TestFlux -count=1 -timeout=60m $(TEST_FLAGS) ./e2e

.PHONY: bench
bench: ## Measure the figures of docs/performance.md
	@$(GO) test -run='^$$' -bench=. -skip=FleetSync -benchtime=$(or $(BENCHTIME),20x) -count=1 -timeout=60m $(TEST_FLAGS) ./e2e ./internal/cli
	@$(GO) test -run='^$$' -bench=FleetSync -benchtime=$(or $(BENCHTIME),5x) -count=1 -timeout=90m $(TEST_FLAGS) ./e2e
	@$(GO) test -run='^$$' -bench=. -benchtime=$(or $(BENCHTIME),3x) -count=1 -timeout=60m $(TEST_FLAGS) ./internal/hub/store
