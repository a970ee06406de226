#!/usr/bin/env bash
#
# Real Apache Kafka brokers for the tests: single nodes on loopback, each broker and controller at once.
#
#   kafka.sh install          install Java 17 and Maven with apt-get where they are missing (as root)
#   kafka.sh fetch            fetch the broker's jars
#   kafka.sh start NAME       start a node, or start it again over its data; prints its bootstrap address
#   kafka.sh stop NAME        stop it (SIGTERM, after 20 s SIGKILL); its data stay
#   kafka.sh kill NAME        stop it with SIGKILL
#   kafka.sh pid NAME         print its process ID
#   kafka.sh remove NAME      kill it and delete its data
#   kafka.sh hold NAME        start, wait until standard input is closed, remove
#   kafka.sh exec CMD ARG...  run CMD with two nodes (transaction.version 2 and 1) in WEIR_KAFKA_BROKERS and
#                             WEIR_KAFKA_BROKERS_TV1, then print which test ran on which broker
#
# With KAFKA_TLS set to a directory, the node also listens with TLS and a login (SCRAM, PLAIN, OAUTHBEARER) at the
# address in DIR/sasl, and with TLS and the client's certificate in DIR/mtls. The directory holds server.pem (the
# broker's key in PKCS #8 and certificate) and ca.pem (what it and the clients are signed by), and gets both files.
# Tokens of OAUTHBEARER are believed as they are, without a signature (alg none): Apache Kafka's own way for tests.
#
# With KAFKA_AUTHORIZER=1 the node grants rights by ACLs. Who comes in plain text is its administrator; users, by a
# login as above, may do nothing at first.
#
# With KAFKA_JOIN set to the name of another node, the node is a second broker of that node's cluster.
#
# With KAFKA_PROPERTIES set, its lines are added to the node's server.properties.
#
# Environment: KAFKA_VERSION (4.2.2), KAFKA_TRANSACTION_VERSION (2), KAFKA_PORT (a free one; the controller
# takes the next), KAFKA_CACHE (.cache/kafka of the repository: jars, and the nodes' data and logs).
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
repo=$(cd "$here/../.." && pwd)
version=${KAFKA_VERSION:-4.2.2}
transaction_version=${KAFKA_TRANSACTION_VERSION:-2}
cache=${KAFKA_CACHE:-$repo/.cache/kafka}
lib=$cache/$version/lib

die() {
	echo "kafka.sh: $*" >&2
	exit 1
}

install() {
	if command -v java >/dev/null && command -v mvn >/dev/null; then
		return
	fi
	[ "$(id -u)" = 0 ] || die "Java 17 and Maven are needed; install them (not root: they are not installed here)"
	command -v apt-get >/dev/null || die "Java 17 and Maven are needed, and there is no apt-get to install them with"
	echo "kafka.sh: installing openjdk-17-jre-headless and maven" >&2
	apt-get update -qq >&2
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq openjdk-17-jre-headless maven >&2
}

# fetch puts the jars into a new directory and moves that into place: a broken download leaves no half of one.
# Packages of tests run at the same time: the lock lets one of them fetch and the others wait.
fetch() {
	[ -d "$lib" ] && return
	command -v java >/dev/null || die "there is no java here: run kafka.sh install, or install Java 17"
	command -v mvn >/dev/null || die "there is no mvn here: run kafka.sh install, or install Maven"
	mkdir -p "$cache/$version"
	(
		flock 9
		[ -d "$lib" ] && exit 0
		rm -rf "$lib.new"
		mvn -q -B -Dstyle.color=never -Djansi.mode=strip -f "$here/pom.xml" -Dkafka.version="$version" \
			dependency:copy-dependencies -DoutputDirectory="$lib.new" >&2
		mv "$lib.new" "$lib"
	) 9>"$cache/$version/lock" || die "fetching Apache Kafka $version failed"
}

node_dir() {
	case ${1:-} in
	'' | *[!A-Za-z0-9._-]*) die "a node's name is made of letters, digits, dots, dashes and underscores: '${1:-}'" ;;
	esac
	echo "$cache/nodes/$1"
}

# running prints the process ID of the node, if it lives. The name of the directory in its command line tells it
# from another process that was given the same number.
running() {
	local dir=$1 pid
	[ -s "$dir/pid" ] || return 1
	pid=$(cat "$dir/pid")
	tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$dir/server.properties" || return 1
	echo "$pid"
}

listens() {
	(exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null
}

# reserve leaves in $port a port that no other node has, and holds a lock on it in file descriptor 8. The broker
# inherits the lock and holds it as long as it lives. Ports stay below those that the kernel gives to clients. A
# given port is waited for: a process that was killed has it for a moment longer than it has a command line.
reserve() {
	local tries=0
	mkdir -p "$cache/ports"
	while [ $((tries += 1)) -le 200 ]; do
		port=${1:-$((21000 + 2 * (RANDOM % 5000)))}
		exec 8>"$cache/ports/$port"
		if flock -n 8 && ! listens "$port" && ! listens $((port + 1)); then
			return
		fi
		exec 8>&-
		[ -z "${1:-}" ] || sleep 0.05
	done
	[ -z "${1:-}" ] || die "port $1 or $(($1 + 1)) is in use"
	die "no free port found"
}

configure() {
	local dir=$1 port=$2
	cat >"$dir/server.properties" <<-PROPERTIES
		process.roles=broker,controller
		node.id=1
		controller.quorum.bootstrap.servers=127.0.0.1:$((port + 1))
		listeners=PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$((port + 1))
		advertised.listeners=PLAINTEXT://127.0.0.1:$port
		controller.listener.names=CONTROLLER
		listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
		inter.broker.listener.name=PLAINTEXT
		log.dirs=$dir/data
		auto.create.topics.enable=false
		log.cleaner.backoff.ms=200
		offsets.topic.replication.factor=1
		offsets.topic.num.partitions=1
		transaction.state.log.replication.factor=1
		transaction.state.log.min.isr=1
		transaction.state.log.num.partitions=1
		group.initial.rebalance.delay.ms=0
		broker.session.timeout.ms=2000
		broker.heartbeat.interval.ms=300
		transaction.max.timeout.ms=900000
		transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
	PROPERTIES
}

# authorize makes the node ask for rights. What speaks plain text may everything: the test, and the node itself.
authorize() {
	cat >>"$1/server.properties" <<-PROPERTIES
		authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
		super.users=User:ANONYMOUS
	PROPERTIES
}

# secure adds the two listeners with TLS. Their ports are the broker's by a lock of their own, in file descriptor 7.
secure() {
	local dir=$1 tls=$2 port=$3 plain=$4
	sed -i -e "s|^listeners=.*|&,LOGIN://127.0.0.1:$port,MUTUAL://127.0.0.1:$((port + 1))|" \
		-e "s|^advertised.listeners=.*|&,LOGIN://127.0.0.1:$port,MUTUAL://127.0.0.1:$((port + 1))|" \
		-e "s|^listener.security.protocol.map=.*|&,LOGIN:SASL_SSL,MUTUAL:SSL|" "$dir/server.properties"
	cat >>"$dir/server.properties" <<-PROPERTIES
		ssl.keystore.type=PEM
		ssl.keystore.location=$tls/server.pem
		ssl.truststore.type=PEM
		ssl.truststore.location=$tls/ca.pem
		listener.name.mutual.ssl.client.auth=required
		listener.name.login.sasl.enabled.mechanisms=SCRAM-SHA-256,SCRAM-SHA-512,PLAIN,OAUTHBEARER
		listener.name.login.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
		listener.name.login.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;
		listener.name.login.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_weir="$plain";
		listener.name.login.oauthbearer.sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;
	PROPERTIES
	echo "127.0.0.1:$port" >"$tls/sasl"
	echo "127.0.0.1:$((port + 1))" >"$tls/mtls"
}

# join makes the node a broker alone, with number 2, in the cluster of another one.
join() {
	local dir=$1 port=$2 first=$3
	sed -i -e "s|^process.roles=.*|process.roles=broker|" -e "s|^node.id=.*|node.id=2|" \
		-e "s|^controller.quorum.bootstrap.servers=.*|controller.quorum.bootstrap.servers=127.0.0.1:$((first + 1))|" \
		-e "s|^listeners=.*|listeners=PLAINTEXT://127.0.0.1:$port|" "$dir/server.properties"
}

# format makes the node's storage: of a cluster of its own, or of the one that it joins.
format() {
	local dir=$1 cluster=(-t "$(cluster_id)" --standalone --feature "transaction.version=$transaction_version")
	if [ -n "${KAFKA_JOIN:-}" ]; then
		cluster=(-t "$(sed -n 's/^cluster.id=//p' "$(node_dir "$KAFKA_JOIN")/data/meta.properties")" --no-initial-controllers)
	fi
	java -Xmx256m -XX:TieredStopAtLevel=1 -Dlog4j2.configurationFile="$here/log4j2.properties" -cp "$lib/*" \
		kafka.tools.StorageTool format -c "$dir/server.properties" "${cluster[@]}" >"$dir/format.log" 2>&1 ||
		die "formatting $dir failed: $(tail -n 3 "$dir/format.log")"
}

# cluster_id makes an identifier as a cluster's is: 16 random bytes in URL-safe base64. It begins with an A, for
# one that begins with a dash would be taken for an option.
cluster_id() {
	head -c 16 /dev/urandom | base64 | tr -- '+/=' '-_ ' | tr -d ' ' | sed 's/^./A/'
}

# ready asks for metadata (version 0 of the request) and looks at the number of brokers in the answer, which does
# not list a broker that is up but still fenced. One that joined another one's cluster waits for both.
ready() {
	local answer wanted=1
	grep -q '^node.id=2$' "$2/server.properties" && wanted=2
	# shellcheck disable=SC2016 # the inner shell expands it
	answer=$(timeout 2 bash -c '
		exec 3<>"/dev/tcp/127.0.0.1/$0" || exit 1
		printf "\0\0\0\016\0\3\0\0\0\0\0\1\377\377\0\0\0\0" >&3
		head -c 12 <&3 | od -An -v -tu1' "$1" 2>/dev/null) || return 1
	[ "$(echo "$answer" | awk '{ print $12 + 0; exit }')" -ge "$wanted" ]
}

start() {
	local dir port pid tries=0
	dir=$(node_dir "${1:-}")
	if pid=$(running "$dir"); then
		cat "$dir/address"
		return
	fi
	fetch
	if [ -s "$dir/address" ]; then
		port=$(sed 's/.*://' "$dir/address")
		reserve "$port"
		lib=$cache/$(cat "$dir/version")/lib # over its data, a node starts with the version that wrote them
	else
		reserve "${KAFKA_PORT:-}"
		mkdir -p "$dir"
		configure "$dir" "$port"
		printf '%s\n' "${KAFKA_PROPERTIES:-}" >>"$dir/server.properties"
		if [ -n "${KAFKA_JOIN:-}" ]; then
			join "$dir" "$port" "$(sed 's/.*://' "$(node_dir "$KAFKA_JOIN")/address")"
		fi
		if [ -n "${KAFKA_TLS:-}" ]; then
			exec 7>&8 # keeps the lock on the first ports
			local first=$port
			reserve
			secure "$dir" "$KAFKA_TLS" "$port" "${KAFKA_PLAIN_PASSWORD:-secret}"
			port=$first
		fi
		[ -z "${KAFKA_AUTHORIZER:-}" ] || authorize "$dir"
		format "$dir"
		echo "$version" >"$dir/version"
		echo "127.0.0.1:$port" >"$dir/address"
	fi
	# A session of its own: an interrupt at the terminal reaches who started the node, and that one stops it.
	setsid java -Xms64m -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Dkafka.logs.dir="$dir" \
		-Dlog4j2.configurationFile="$here/log4j2.properties" -cp "$lib/*" \
		kafka.Kafka "$dir/server.properties" </dev/null >>"$dir/broker.log" 2>&1 &
	pid=$!
	echo "$pid" >"$dir/pid"
	exec 8>&- 7>&-
	until ready "$port" "$dir"; do
		kill -0 "$pid" 2>/dev/null || die "the node ended: $(tail -n 3 "$dir/broker.log")"
		if [ $((tries += 1)) -gt 600 ]; then
			kill -9 "$pid"
			die "the node is not ready after a minute: see $dir/broker.log"
		fi
		sleep 0.1
	done
	cat "$dir/address"
}

# end sends a signal to the node and waits until it is gone.
end() {
	local dir pid signal=$2 tries=0
	dir=$(node_dir "$1")
	if pid=$(running "$dir"); then
		kill "-$signal" "$pid" 2>/dev/null || true
		while running "$dir" >/dev/null; do
			if [ $((tries += 1)) = 200 ]; then
				kill -9 "$pid" 2>/dev/null || true
			fi
			sleep 0.1
		done
	fi
	rm -f "$dir/pid"
}

remove() {
	local dir
	dir=$(node_dir "${1:-}")
	end "$1" KILL
	rm -rf "$dir"
}

# held are the nodes that are removed when the script ends, however it does.
held=()
remove_held() {
	local name
	for name in "${held[@]}"; do
		remove "$name"
	done
}

hold() {
	node_dir "${1:-}" >/dev/null
	held=("$1")
	trap remove_held EXIT
	trap 'exit 143' TERM INT HUP
	start "$1"
	exec >/dev/null # nobody may be there any more to read
	cat >/dev/null
}

exec_with_nodes() {
	local status=0 name="exec-$$"
	[ $# -gt 0 ] || die "exec what?"
	held=("$name-tv2" "$name-tv1")
	trap remove_held EXIT
	trap 'exit 143' TERM INT HUP
	fetch
	# Each in a subshell: the lock on its port is then the broker's alone.
	WEIR_KAFKA_BROKERS=$(transaction_version=2 && start "$name-tv2")
	WEIR_KAFKA_BROKERS_TV1=$(transaction_version=1 && start "$name-tv1")
	WEIR_KAFKA_REPORT=$cache/$name.report
	export WEIR_KAFKA_BROKERS WEIR_KAFKA_BROKERS_TV1 WEIR_KAFKA_REPORT
	"$@" || status=$?
	if [ -s "$WEIR_KAFKA_REPORT" ]; then
		(cd "$repo" && go run ./internal/kafkatest/report "$WEIR_KAFKA_REPORT") || status=1
		rm "$WEIR_KAFKA_REPORT"
	fi
	exit "$status"
}

command=${1:-}
shift || true
case $command in
install) install ;;
fetch) fetch ;;
start) start "${1:-}" ;;
stop) end "${1:-}" TERM ;;
kill) end "${1:-}" KILL ;;
pid) running "$(node_dir "${1:-}")" || die "node ${1:-} does not run" ;;
remove) remove "${1:-}" ;;
hold) hold "${1:-}" ;;
exec) exec_with_nodes "$@" ;;
*) die "usage: kafka.sh install | fetch | {start | stop | kill | pid | remove | hold} NAME | exec CMD ARG..." ;;
esac
