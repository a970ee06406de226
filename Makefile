SHELL := bash
.DEFAULT_GOAL := help
.PHONY: help demo build test sim race lint proof proof-check bench kafka kafka-stop clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: build ## run the demonstration: a bill counted through kills, on this machine alone
	bin/weir demo

build: ## build bin/weir
	go build -o bin/weir ./cmd/weir

test: ## everything that has to pass: lint, all tests, all tests again under the race detector, proof-check
	scripts/test.sh all

sim: ## the commit protocol in thousands of simulated worlds in which everything fails
	go run ./internal/simulation/sim

race: ## all tests under the race detector
	scripts/test.sh race

lint: ## vet, staticcheck and gofumpt, in the versions of tools/go.mod
	scripts/test.sh lint

proof: ## write docs/PROOF.md: faults, mutants and what they found, made from seeds and met on Apache Kafka
	scripts/test.sh proof

proof-check: ## make what docs/PROOF.md says from seeds anew, and fail where it says something else
	scripts/test.sh proof-check

bench: build ## measure throughput, latency and the cost of a checkpoint
	go run ./bench

kafka: ## start a node of Apache Kafka for trying things out, printing its address
	@scripts/kafka/kafka.sh start dev

kafka-stop: ## stop that node; its data stay
	scripts/kafka/kafka.sh stop dev

clean: ## remove what was built, and that node with its data
	scripts/kafka/kafka.sh remove dev
	rm -rf bin
