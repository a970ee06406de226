package proof

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// CountsVar is the environment variable that names the file to which counts are appended. Without it
// nothing is noted.
const CountsVar = "WEIR_PROOF_COUNTS"

// Suite says to which part of the document a count belongs.
type Suite string

// The suites. Those of seeds give the same counts wherever they run.
const (
	Simulator   Suite = "simulator"    // seeds: the protocol's code in a simulated world
	Protocol    Suite = "protocol"     // seeds: schedules of the coordinator
	Wire        Suite = "wire"         // faults between a sink and its brokers
	CrashPoints Suite = "crash points" // the binary, killed at named points
	Outage      Suite = "outage"       // brokers away, killed, or losing markers
)

// Count is what one test counted about one fault. Counts of one suite, fault, broker and test are added
// up.
type Count struct {
	Suite Suite  `json:"suite"`
	Fault string `json:"fault"` // for a reader: "end-txn: answer dropped", "killed after CURRENT"
	// Broker is what the fault was met on, with its version: "kfake", "Apache Kafka 4.2.2, transaction
	// version 2". Empty: none, everything is simulated.
	Broker   string `json:"broker,omitempty"`
	Injected int64  `json:"injected"` // times that the fault was put in
	Hit      int64  `json:"hit"`      // times that it was seen to hit
	Records  int64  `json:"records"`  // records that were looked for afterwards
	Missing  int64  `json:"missing"`
	Doubled  int64  `json:"doubled"`

	// Note sets these: how the count is made again.
	Package string `json:"package"`
	Test    string `json:"test"`
	Args    string `json:"args,omitempty"` // flags of the test binary that decide what happens: seeds
}

// Note appends a count to the file that CountsVar names, if it names one. One write call each, so that
// packages that are tested at the same time can share the file. Call it from the package of the test.
func Note(t testing.TB, c Count) {
	t.Helper()
	path := os.Getenv(CountsVar)
	if path == "" {
		return
	}
	c.Test, _, _ = strings.Cut(t.Name(), "/")
	c.Package = callersPackage()
	c.Args = seedFlags(os.Args[1:])
	if err := appendCount(path, c); err != nil {
		t.Fatalf("note a count of %s: %v", c.Suite, err)
	}
}

// seedFlags returns the flags of a test binary that decide what its tests do. Those of go test itself say
// how they are run.
func seedFlags(args []string) string {
	return strings.Join(slices.DeleteFunc(slices.Clone(args), func(a string) bool {
		return !strings.HasPrefix(a, "-rapid.seed=") && !strings.HasPrefix(a, "-rapid.checks=")
	}), " ")
}

// callersPackage returns the path of the package that called the caller of this function.
func callersPackage() string {
	pc, _, _, ok := runtime.Caller(2)
	if !ok {
		return ""
	}
	name := runtime.FuncForPC(pc).Name() // example.com/weir/connectors/kafka.TestX.func1
	dir, last := "", name
	if at := strings.LastIndexByte(name, '/'); at >= 0 {
		dir, last = name[:at+1], name[at+1:]
	}
	last, _, _ = strings.Cut(last, ".")
	return strings.TrimSuffix(dir+last, "_test")
}

func appendCount(path string, c Count) error {
	line, err := json.Marshal(c)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(line, '\n'))
	return cmp.Or(err, f.Close())
}

// ReadCounts reads what Note has written, adds up what belongs together, and sorts it. It refuses counts
// that prove nothing (R1).
func ReadCounts(text []byte) ([]Count, error) {
	type key struct {
		suite                          Suite
		fault, broker, pkg, test, args string
	}
	sums := map[key]Count{}
	for line := range strings.Lines(string(text)) {
		var c Count
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return nil, fmt.Errorf("count %q: %w", line, err)
		}
		k := key{c.Suite, c.Fault, c.Broker, c.Package, c.Test, c.Args}
		if s, ok := sums[k]; ok {
			c = c.plus(s)
		}
		sums[k] = c
	}
	counts := make([]Count, 0, len(sums))
	for _, c := range sums {
		if err := c.check(); err != nil {
			return nil, err
		}
		counts = append(counts, c)
	}
	slices.SortFunc(counts, func(a, b Count) int {
		return cmp.Or(cmp.Compare(a.Suite, b.Suite), cmp.Compare(a.Broker, b.Broker), cmp.Compare(a.Package, b.Package),
			cmp.Compare(a.Test, b.Test), cmp.Compare(a.Fault, b.Fault))
	})
	return counts, nil
}

// plus adds the numbers of another count.
func (c Count) plus(o Count) Count {
	c.Injected += o.Injected
	c.Hit += o.Hit
	c.Records += o.Records
	c.Missing += o.Missing
	c.Doubled += o.Doubled
	return c
}

func (c *Count) check() error {
	switch {
	case !slices.Contains([]Suite{Simulator, Protocol, Wire, CrashPoints, Outage}, c.Suite):
		return fmt.Errorf("%s: %q is no suite of the document", c.Test, c.Suite)
	case c.Fault == "" || c.Package == "" || c.Test == "":
		return fmt.Errorf("%s of %s: a count without fault, package or test: %+v", c.Test, c.Suite, *c)
	case c.Hit == 0:
		return fmt.Errorf("%s: %s was put in %d times and never hit: it proves nothing", c.Test, c.Fault, c.Injected)
	case c.Records == 0:
		return fmt.Errorf("%s: %s hit, and no record was looked for: it proves nothing", c.Test, c.Fault)
	}
	return nil
}
