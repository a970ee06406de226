// Command records makes topics, and writes and reads their records as lines, to try a job out by hand on the node of
// make kafka. It is no client for production, and knows nothing of Weir.
//
//	records create TOPIC...     make topics of one partition
//	records write TOPIC         a record for each line of standard input
//	records read TOPIC          the committed records that the topic holds now, a line each
//
// BROKERS is where the brokers are, host:port.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// patience is how long the brokers may take.
const patience = 20 * time.Second

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "records:", err)
		cancel()
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	brokers := os.Getenv("BROKERS")
	switch {
	case brokers == "":
		return errors.New("BROKERS is not set: export BROKERS=$(make -s kafka)")
	case len(args) > 1 && args[0] == "create":
		return create(ctx, brokers, args[1:])
	case len(args) == 2 && args[0] == "write":
		return write(ctx, brokers, args[1], os.Stdin)
	case len(args) == 2 && args[0] == "read":
		return read(ctx, brokers, args[1], os.Stdout)
	default:
		return errors.New("usage: records create TOPIC... | write TOPIC | read TOPIC")
	}
}

func connect(brokers string, options ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(options, kgo.SeedBrokers(strings.Split(brokers, ",")...))...)
}

func create(ctx context.Context, brokers string, topics []string) error {
	client, err := connect(brokers)
	if err != nil {
		return err
	}
	defer client.Close()
	answers, err := kadm.NewClient(client).CreateTopics(ctx, 1, 1, nil, topics...)
	if err != nil {
		return err
	}
	return answers.Error()
}

func write(ctx context.Context, brokers, topic string, from io.Reader) error {
	client, err := connect(brokers)
	if err != nil {
		return err
	}
	defer client.Close()
	lines := bufio.NewScanner(from)
	for lines.Scan() {
		record := &kgo.Record{Topic: topic, Value: []byte(lines.Text())}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	return lines.Err()
}

// read prints what lies between the start of each partition and its last stable offset.
func read(ctx context.Context, brokers, topic string, to io.Writer) error {
	client, err := connect(brokers, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	if err != nil {
		return err
	}
	defer client.Close()
	ends, err := kadm.NewClient(client).ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return err
	}
	left := map[int32]int64{}
	ends.Each(func(end kadm.ListedOffset) {
		if end.Offset > 0 {
			left[end.Partition] = end.Offset
		}
	})
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			if !record.Attrs.IsControl() {
				fmt.Fprintf(to, "%s\n", record.Value)
			}
			if record.Offset+1 >= left[record.Partition] {
				delete(left, record.Partition)
			}
		})
	}
	return nil
}
