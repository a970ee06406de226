package kafkatest

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// shared are the nodes of this process, by transaction.version; each is started by the first test that
// needs it. They are the one global of this package: nothing else lives as long as a process of tests.
// A holder that nothing refers to would be collected as garbage, its pipe closed, and the node would
// end under the next test.
var shared = map[int]func() (*holder, error){
	1: sync.OnceValues(func() (*holder, error) { return startShared(1, "WEIR_KAFKA_BROKERS_TV1") }),
	2: sync.OnceValues(func() (*holder, error) { return startShared(2, "WEIR_KAFKA_BROKERS") }),
}

func sharedNode(transactionVersion int) (string, error) {
	h, err := shared[transactionVersion]()
	if err != nil {
		return "", err
	}
	return h.address, nil
}

func apacheVersion() string {
	if v := os.Getenv("KAFKA_VERSION"); v != "" {
		return v
	}
	return "4.2.2"
}

func startShared(transactionVersion int, env string) (*holder, error) {
	if address := os.Getenv(env); address != "" {
		return &holder{address: address}, nil
	}
	if testing.Short() {
		return nil, fmt.Errorf("%s is not set, and with -short no node is started", env)
	}
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("%s is not set, and %s is not there", env, program)
		}
	}
	return hold(fmt.Sprintf("test-%d-tv%d", os.Getpid(), transactionVersion), apacheVersion(), transactionVersion)
}

// holder is a child process that holds a node until its standard input is closed, by release or by the
// end of this process, and then removes it with its data.
type holder struct {
	address string
	cmd     *exec.Cmd
	stdin   *os.File
}

func hold(name, version string, transactionVersion int, env ...string) (*holder, error) {
	cmd, err := script(version, transactionVersion, "hold", name)
	if err != nil {
		return nil, err
	}
	cmd.Env = append(cmd.Env, env...)
	stdin, keep, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdin.Close()
	out, stdout, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer out.Close()
	messages, err := os.CreateTemp("", "kafka-node")
	if err != nil {
		return nil, err
	}
	defer os.Remove(messages.Name())
	defer messages.Close()
	// Files, not writers: with those, exec would start goroutines, which a test that looks for leaks would find.
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, messages
	err = cmd.Start()
	stdout.Close()
	if err != nil {
		return nil, fmt.Errorf("start a node of Apache Kafka: %w", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		text, _ := os.ReadFile(messages.Name())
		keep.Close()
		return nil, errors.Join(fmt.Errorf("start a node of Apache Kafka %s: %s", version, text), cmd.Wait())
	}
	return &holder{address: strings.TrimSpace(line), cmd: cmd, stdin: keep}, nil
}

func (h *holder) release() error {
	return errors.Join(h.stdin.Close(), h.cmd.Wait())
}

// script makes a command of scripts/kafka/kafka.sh.
func script(version string, transactionVersion int, args ...string) (*exec.Cmd, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for {
		path := filepath.Join(dir, "scripts", "kafka", "kafka.sh")
		if _, err := os.Stat(path); err == nil {
			cmd := exec.Command(path, args...)
			cmd.Env = append(os.Environ(), "KAFKA_VERSION="+version,
				"KAFKA_TRANSACTION_VERSION="+strconv.Itoa(transactionVersion))
			return cmd, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil, errors.New("scripts/kafka/kafka.sh is not in the directory of the test, nor above it")
		}
		dir = parent
	}
}

// NodeConfig describes a node of Apache Kafka that one test has for itself.
type NodeConfig struct {
	Version            string // default 4.2.2, or what KAFKA_VERSION says
	TransactionVersion int    // default 2
	// Join is a node whose cluster this one joins, as its second broker: a broker alone, with the number 2.
	Join *Node
	// Properties are lines of its server.properties, beside those that every node has.
	Properties []string
	// TLS is a directory for a node that also listens with TLS, as scripts/kafka/kafka.sh describes it.
	TLS string
	// PlainPassword is the password of the user weir by the mechanism PLAIN, where TLS is set.
	PlainPassword string
	// Authorizer makes the node grant rights by ACLs: to users alone, who come by a login (TLS).
	Authorizer bool
}

// Node is a node of Apache Kafka that one test has for itself, and may kill and start again.
type Node struct {
	Broker
	name string
}

// NewNode starts a node that ends with the test. Where Apache Kafka cannot be had, the test is
// skipped, or fails with CI=true.
func NewNode(t *testing.T, cfg NodeConfig) *Node {
	t.Helper()
	if cfg.Version == "" {
		cfg.Version = apacheVersion()
	}
	if cfg.TransactionVersion == 0 {
		cfg.TransactionVersion = 2
	}
	n := &Node{Broker: Broker{
		Kind: Apache, Version: cfg.Version, TransactionVersion: cfg.TransactionVersion, report: new(report),
	}}
	n.report.writeAtEnd(t, n.Name()+" (own node)")
	if testing.Short() && os.Getenv("CI") != "true" {
		missing(t, n.report, errors.New("with -short no node is started"))
	}
	n.name = n.TopicName(t)
	env := []string{
		"KAFKA_TLS=" + cfg.TLS, "KAFKA_PLAIN_PASSWORD=" + cfg.PlainPassword,
		"KAFKA_PROPERTIES=" + strings.Join(cfg.Properties, "\n"),
	}
	if cfg.Authorizer {
		env = append(env, "KAFKA_AUTHORIZER=1")
	}
	if cfg.Join != nil {
		env = append(env, "KAFKA_JOIN="+cfg.Join.name)
	}
	h, err := hold(n.name, cfg.Version, cfg.TransactionVersion, env...)
	if err != nil {
		missing(t, n.report, err)
	}
	t.Cleanup(func() { require.NoError(t, h.release()) })
	n.Brokers = []string{h.address}
	if cfg.Join != nil {
		n.Brokers = append(n.Brokers, cfg.Join.Brokers...)
	}
	return n
}

// Process returns the node's process as it runs now, for a test that kills it at a moment of its own. Kill, called
// after that, waits until it is gone.
func (n *Node) Process(t *testing.T) *os.Process {
	t.Helper()
	cmd, err := script(n.Version, n.TransactionVersion, "pid", n.name)
	require.NoError(t, err)
	out, err := cmd.Output()
	require.NoError(t, err)
	pid, err := strconv.Atoi(strings.TrimSpace(string(out)))
	require.NoError(t, err)
	p, err := os.FindProcess(pid)
	require.NoError(t, err)
	return p
}

// Kill ends the node with SIGKILL and returns once it is gone.
func (n *Node) Kill(t *testing.T) { t.Helper(); n.script(t, "kill") }

// Stop ends the node with SIGTERM and returns once it is gone.
func (n *Node) Stop(t *testing.T) { t.Helper(); n.script(t, "stop") }

// Start starts the node again, over its data and at its address, and returns once it is ready.
func (n *Node) Start(t *testing.T) { t.Helper(); n.script(t, "start") }

func (n *Node) script(t *testing.T, command string) {
	t.Helper()
	cmd, err := script(n.Version, n.TransactionVersion, command, n.name)
	require.NoError(t, err)
	cmd.Stdout = nil
	messages, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	text, err := io.ReadAll(messages)
	require.NoError(t, err)
	require.NoError(t, cmd.Wait(), "%s: %s", command, text)
}
