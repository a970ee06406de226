package archtest

// kind is what a package is, and with it which rules it is held to.
type kind int

const (
	// shell does I/O, reads the clock where its row says so, and decides little.
	shell kind = iota
	// pure decides: what it returns depends on its arguments alone.
	pure
	// forTests is imported by tests and by packages for tests, and ends up in no binary.
	forTests
)

// row is what the table says of one package.
type row struct {
	pkg  string // its folder; "." is the root of the module
	kind kind
	// imports lists what its production code imports: folders of the module, and outside libraries
	// by the path of their module or of one package.
	imports []string
	clock   string // why it reads the clock; empty: it does not
	why     string // what it is there for
}

// table has a row for each package, sorted by folder.
func table() []row {
	return []row{
		{
			pkg: ".", kind: shell,
			imports: []string{
				"connector", "internal/checkpoint", "internal/command", "internal/engine", "internal/explain",
				"internal/keygroup", "internal/protocol", "internal/status",
			},
			why: "what users import: an index of the engine",
		},
		{
			pkg: "apps/gatewaymeter", kind: shell,
			imports: []string{
				".", "apps/gatewaymeter/gateway", "apps/gatewaymeter/money", "apps/gatewaymeter/price", "connector",
				"connectors/kafka", "github.com/cespare/xxhash/v2", "github.com/goccy/go-yaml",
			},
			why: "the job: events of a gateway become the cost of each tenant's minutes",
		},
		{
			pkg: "apps/gatewaymeter/demo", kind: shell,
			imports: []string{
				"apps/gatewaymeter/feed", "apps/gatewaymeter/ledger", "apps/gatewaymeter/replay", "apps/gatewaymeter/rig",
				"apps/gatewaymeter/truebill", "github.com/twmb/franz-go", "internal/terminal",
			},
			clock: "when kills come, and what is printed",
			why:   "the demonstration: the job, killed, and its bill beside the true one",
		},
		{
			pkg: "apps/gatewaymeter/feed", kind: shell,
			imports: []string{
				"apps/gatewaymeter/replay", "apps/gatewaymeter/sample", "github.com/twmb/franz-go",
				"github.com/twmb/franz-go/pkg/kmsg",
			},
			clock: "a replay that is paced",
			why:   "writes a replay to a topic, or as lines",
		},
		{
			pkg: "apps/gatewaymeter/gateway", kind: pure,
			imports: []string{"connector"},
			why:     "the events of the gateway, and what is written, as bytes",
		},
		{
			pkg: "apps/gatewaymeter/lab", kind: shell,
			imports: []string{
				"apps/gatewaymeter/feed", "apps/gatewaymeter/gateway", "apps/gatewaymeter/ledger", "apps/gatewaymeter/rig",
				"apps/gatewaymeter/truebill", "github.com/twmb/franz-go", "github.com/twmb/franz-go/pkg/kmsg",
			},
			clock: "when kills come, and what is printed",
			why:   "labs: a failure, shown live",
		},
		{
			pkg: "apps/gatewaymeter/ledger", kind: pure,
			imports: []string{"apps/gatewaymeter/truebill"},
			why:     "what a consumer of tenant-cost read, against the true bill",
		},
		{
			pkg: "apps/gatewaymeter/money", kind: pure,
			why: "exact amounts",
		},
		{
			pkg: "apps/gatewaymeter/price", kind: pure,
			imports: []string{"apps/gatewaymeter/money"},
			why:     "the price book",
		},
		{
			pkg: "apps/gatewaymeter/replay", kind: pure,
			imports: []string{"apps/gatewaymeter/gateway", "github.com/cespare/xxhash/v2"},
			why:     "events made from a trace, the same for the same seed",
		},
		{
			pkg: "apps/gatewaymeter/rig", kind: shell,
			imports: []string{
				"apps/gatewaymeter", "apps/gatewaymeter/feed", "apps/gatewaymeter/gateway", "apps/gatewaymeter/replay",
				"apps/gatewaymeter/truebill", "github.com/twmb/franz-go", "github.com/twmb/franz-go/pkg/kadm",
				"github.com/twmb/franz-go/pkg/kfake",
			},
			clock: "how long is waited for the job",
			why:   "what demonstrations and labs are put together from: a broker, a replay, the job as a process",
		},
		{
			pkg: "apps/gatewaymeter/sample", kind: shell,
			why: "a small trace and price book, in the program",
		},
		{
			pkg: "apps/gatewaymeter/truebill", kind: pure,
			why: "the bill, computed a second time by code that shares nothing with the job",
		},
		{
			pkg: "bench", kind: shell,
			imports: []string{"apps/gatewaymeter/replay", "github.com/twmb/franz-go", "github.com/twmb/franz-go/pkg/kfake"},
			clock:   "it measures; nothing of it ships",
			why:     "what GatewayMeter costs, end to end",
		},
		{
			pkg: "cmd/weir", kind: shell,
			imports: []string{
				".", "apps/gatewaymeter", "apps/gatewaymeter/demo", "apps/gatewaymeter/feed", "apps/gatewaymeter/lab",
				"apps/gatewaymeter/replay", "connectors/kafka", "github.com/spf13/cobra", "github.com/spf13/pflag", "github.com/twmb/franz-go",
				"internal/command",
			},
			clock: "when a run began",
			why:   "the binary",
		},
		{
			pkg: "connector", kind: shell,
			why: "the contracts between the engine and what is outside",
		},
		{
			pkg: "connector/connectortest", kind: forTests,
			imports: []string{"connector", "github.com/stretchr/testify", "go.uber.org/goleak"},
			why:     "the suite that every connector passes",
		},
		{
			pkg: "connectors/file", kind: shell,
			imports: []string{"connector", "connectors/internal/lines", "github.com/cespare/xxhash/v2"},
			clock:   "when a file that stays read to its end says so again",
			why:     "a source of lines in files",
		},
		{
			pkg: "connectors/internal/lines", kind: pure,
			imports: []string{"connector"},
			why:     "lines of text become rows",
		},
		{
			pkg: "connectors/kafka", kind: shell,
			imports: []string{"connector", "connectors/kafka/settle", "connectors/kafka/txn", "github.com/cespare/xxhash/v2", "github.com/twmb/franz-go"},
			clock:   "timeouts, and the timestamps of records that bring none",
			why:     "source and sinks of Kafka",
		},
		{
			pkg: "connectors/kafka/settle", kind: pure,
			imports: []string{"github.com/fxamacker/cbor/v2", "github.com/twmb/franz-go/pkg/kerr"},
			why:     "what became of a commit in doubt",
		},
		{
			pkg: "connectors/kafka/txn", kind: shell,
			imports: []string{"connector", "connectors/kafka/settle"},
			why:     "the course of transactions: taken, committed, settled, written again",
		},
		{
			pkg: "connectors/socket", kind: shell,
			imports: []string{"connector", "connectors/internal/lines"},
			clock:   "deadlines of the connection, and the timestamps of lines",
			why:     "a source of lines that nobody keeps",
		},
		{
			pkg: "examples/calls", kind: shell,
			imports: []string{".", "connector", "connectors/kafka"},
			why:     "a user's own job, and how it is tested",
		},
		{
			pkg: "internal/archtest", kind: forTests,
			why: "this table, and the test that holds it",
		},
		{
			pkg: "internal/checkpoint", kind: shell,
			imports: []string{"connector", "github.com/cespare/xxhash/v2", "github.com/klauspost/compress", "internal/protocol"},
			clock:   "the default of Options.Now, which dates the lock",
			why:     "manifests, CURRENT and snapshots on disk",
		},
		{
			pkg: "internal/command", kind: shell,
			imports: []string{
				"connector", "github.com/spf13/cobra", "github.com/spf13/pflag", "internal/checkpoint", "internal/control",
				"internal/engine", "internal/explain", "internal/fault", "internal/metrics", "internal/protocol", "internal/status", "internal/terminal",
			},
			clock: "when a run began, and when a status was read",
			why:   "the command line of every job",
		},
		{
			pkg: "internal/control", kind: shell,
			imports: []string{"internal/status"},
			why:     "how a running job is reached: its HTTP endpoint, and the client",
		},
		{
			pkg: "internal/engine", kind: shell,
			imports: []string{
				"connector", "internal/checkpoint", "internal/fault", "internal/keygroup", "internal/protocol", "internal/state",
				"internal/status", "internal/watermark", "internal/window",
			},
			clock: "the default of RunConfig.Now; due checkpoints and timeouts are timers",
			why:   "subtasks, exchanges, alignment; carries out what protocol decides",
		},
		{
			pkg: "internal/explain", kind: pure,
			imports: []string{"connector", "internal/engine"},
			why:     "draws the graph of a job",
		},
		{
			pkg: "internal/fault", kind: shell,
			why: "points of a commit that have a name, at which tests end a process",
		},
		{
			pkg: "internal/kafkatest", kind: forTests,
			imports: []string{"github.com/stretchr/testify", "github.com/twmb/franz-go"},
			why:     "brokers for tests",
		},
		{
			pkg: "internal/kafkatest/report", kind: forTests,
			why: "prints which test ran on which broker",
		},
		{
			pkg: "internal/keygroup", kind: pure,
			imports: []string{"github.com/cespare/xxhash/v2"},
			why:     "which key belongs to which subtask, for ever",
		},
		{
			pkg: "internal/metrics", kind: shell,
			imports: []string{"github.com/prometheus/client_golang", "internal/status"},
			why:     "a status in the words of Prometheus; health and readiness",
		},
		{
			pkg: "internal/mutants", kind: forTests,
			why: "mistakes that the suites must see, and what sees them",
		},
		{
			pkg: "internal/proof", kind: forTests,
			why: "what the tests have counted, as docs/PROOF.md",
		},
		{
			pkg: "internal/protocol", kind: pure,
			imports: []string{"connector"},
			why:     "the coordinator: event in, actions out",
		},
		{
			pkg: "internal/simulation", kind: forTests,
			imports: []string{"connector", "connectors/kafka/settle", "connectors/kafka/txn", "internal/protocol"},
			why:     "the commit protocol in a world in which everything fails, on one thread",
		},
		{
			pkg: "internal/simulation/sim", kind: forTests,
			imports: []string{"internal/simulation"},
			why:     "runs simulated worlds, many or one",
		},
		{
			pkg: "internal/state", kind: pure,
			imports: []string{"connector", "github.com/fxamacker/cbor/v2", "internal/keygroup"},
			why:     "keyed state and timers, owned by one subtask",
		},
		{
			pkg: "internal/status", kind: pure,
			why: "a running job at one moment, for whoever shows it",
		},
		{
			pkg: "internal/terminal", kind: shell,
			imports: []string{"golang.org/x/term", "internal/status"},
			why:     "a running job, drawn for who sits in front of it",
		},
		{
			pkg: "internal/watermark", kind: pure,
			why: "how far event time has come",
		},
		{
			pkg: "internal/window", kind: pure,
			why: "which window an event time falls into",
		},
		{
			pkg: "scripts/kafka/records", kind: shell,
			imports: []string{"github.com/twmb/franz-go", "github.com/twmb/franz-go/pkg/kadm"},
			why:     "topics and records by hand, to try a job out",
		},
		{
			pkg: "scripts/proof", kind: forTests,
			imports: []string{"internal/mutants", "internal/proof"},
			why:     "writes docs/PROOF.md, and holds it against what the suites say today",
		},
		{
			pkg: "weirtest", kind: forTests,
			imports: []string{".", "connector"},
			why:     "for users' own tests",
		},
	}
}

// law forbids imports whatever the table says. Folders stand for what is below them, too.
type law struct {
	from, to []string
	but      []string // what is in from and to, and allowed all the same
	spares   []string // what is in from, and may do it
	why      string
}

// laws are the layers, top to bottom: cmd, apps, weir, engine, what the engine is made of, connector.
func laws() []law {
	return []law{
		{
			from: []string{"connector"}, to: []string{"./..."}, but: []string{"connector"},
			why: "the contracts know nobody",
		},
		{
			from: []string{"connectors"}, to: []string{"./..."}, but: []string{"connector", "connectors"},
			why: "a connector knows the contracts alone, so anybody can write one",
		},
		{
			from: []string{"internal/protocol"}, to: []string{"./..."}, but: []string{"connector"},
			why: "the coordinator's tests are scripts, because it knows nothing that runs",
		},
		{
			from: []string{"internal"}, to: []string{".", "apps", "cmd", "connectors", "examples"},
			but:    []string{"internal/archtest", "internal/kafkatest"},
			spares: []string{"internal/simulation"}, // it runs the protocol whole, and is in no binary
			why:    "the engine serves every job and every connector, and knows none",
		},
		{
			from: []string{"internal/state", "internal/checkpoint", "internal/watermark", "internal/window", "internal/keygroup"},
			to:   []string{"internal/engine"},
			why:  "what the engine is made of does not know the engine",
		},
		{
			from: []string{"."}, to: []string{"apps", "cmd", "connectors", "examples", "weirtest"},
			why: "the library does not know its users",
		},
		{
			from: []string{"apps", "examples", "weirtest"}, to: []string{"internal", "cmd"},
			but: []string{"internal/terminal"}, // the demonstration draws; it is no job
			why: "jobs use what any user's job can use",
		},
		{
			from: []string{"apps/gatewaymeter/truebill"}, to: []string{"./..."},
			why: "a second opinion shares no code with the first",
		},
	}
}

// testLibraries are for tests and packages for tests alone, unless a row lists the very package: a row
// that lists what is above it does not allow it.
func testLibraries() []string {
	return []string{
		"github.com/cockroachdb/datadriven", "github.com/stretchr/testify", "github.com/twmb/franz-go/pkg/kfake",
		"go.uber.org/goleak", "pgregory.net/rapid", "testing",
	}
}
