#!/usr/bin/env bash
#
# The tests, with what they need.
#
#   test.sh all          lint, test, race and proof-check
#   test.sh lint         vet, staticcheck and gofumpt
#   test.sh test         all tests
#   test.sh race         all tests under the race detector
#   test.sh proof-check  what docs/PROOF.md says, made anew from its seeds, and the mutants
#   test.sh proof        writes docs/PROOF.md, with what meets Apache Kafka
#
# The suites of Kafka always run against kfake. They run against Apache Kafka, too, where WEIR_KAFKA_BROKERS names one,
# or where Java and Maven are there to start one with; elsewhere each says that it is left out. A table at the end says
# which test ran on which broker.
#
# With CI=true, Java, Maven and a C compiler for the race detector are installed where they are missing, and nothing may
# be left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

kafka=scripts/kafka/kafka.sh
ci=${CI:-false}

say() {
	echo "== $*" >&2
}

have() {
	command -v "$1" >/dev/null
}

timed() {
	local begin=$SECONDS status=0
	say "$@"
	"$@" || status=$?
	say "$* took $((SECONDS - begin)) s"
	return "$status"
}

# install gets what the machine lacks. Only CI does that: on anybody else's machine it is theirs to decide.
install() {
	[ "$ci" = true ] || return 0
	[ -n "${WEIR_KAFKA_BROKERS:-}" ] || "$kafka" install
	have cc || have gcc || {
		apt-get update -qq
		DEBIAN_FRONTEND=noninteractive apt-get install -y -qq gcc libc6-dev
	} >&2
}

# lint says all that it finds before it fails.
lint() {
	local tool=(go tool -modfile=tools/go.mod) files status=0
	timed go vet ./... || status=1
	timed "${tool[@]}" staticcheck ./... || status=1
	files=$("${tool[@]}" gofumpt -l .)
	if [ -n "$files" ]; then
		printf '%s\n' "not as gofumpt has them:" "$files" "write them with: ${tool[*]} gofumpt -w ." >&2
		status=1
	fi
	return "$status"
}

# go_test runs all tests (lint has vetted them) and says which packages took longest: a suite grows slow in one place at a time.
go_test() {
	local log status=0
	log=$(mktemp)
	timed go test -vet=off -timeout 20m "$@" ./... 2>&1 | tee "$log" || status=$?
	say "longest"
	awk '$1 == "ok" || $1 == "FAIL" { if ($3 + 0 >= 1) printf "%8.1f s  %s\n", $3, $2 }' "$log" | sort -rn | head -n 8 >&2
	rm -f "$log"
	return "$status"
}

race() {
	if ! have cc && ! have gcc; then
		say "left out: the race detector needs a C compiler, and there is none here"
		return
	fi
	CGO_ENABLED=1 go_test -race
}

# proof_check meets no broker.
proof_check() {
	timed go run ./scripts/proof check
}

# proof writes down what was met live only where Apache Kafka is there to be met.
proof() {
	if [ -n "${WEIR_KAFKA_BROKERS:-}" ]; then
		timed go run ./scripts/proof write -live
	else
		timed go run ./scripts/proof write
	fi
}

# with_report runs a command and then prints which test ran on which broker.
with_report() {
	local status=0
	WEIR_KAFKA_REPORT=$(mktemp)
	export WEIR_KAFKA_REPORT
	"$@" || status=$?
	if [ -s "$WEIR_KAFKA_REPORT" ]; then
		go run ./internal/kafkatest/report "$WEIR_KAFKA_REPORT" || status=1
	fi
	rm -f "$WEIR_KAFKA_REPORT"
	return "$status"
}

# with_kafka runs a suite of this script with Apache Kafka beside it, if it can be had.
with_kafka() {
	if [ -n "${WEIR_KAFKA_BROKERS:-}" ]; then
		with_report "$0" "$@"
	elif have java && have mvn; then
		"$kafka" exec "$0" "$@"
	else
		say "no Apache Kafka: WEIR_KAFKA_BROKERS is not set, and Java and Maven are not there to start one with"
		with_report "$0" "$@"
	fi
}

case ${1:-} in
all)
	install
	lint
	with_kafka suite
	;;
lint) lint ;;
test | race | proof)
	install
	with_kafka "suite-$1"
	;;
proof-check) proof_check ;;
suite)
	go_test
	race
	proof_check
	;;
suite-test) go_test ;;
suite-race) race ;;
suite-proof) proof ;;
*)
	sed -n '3,/^set/s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
