package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"example.com/weir/apps/gatewaymeter/replay"
)

const brokerArgument = "serve-broker"

// serveBroker hosts a broker until standard input ends, and prints its address.
func serveBroker() error {
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		return err
	}
	defer c.Close()
	fmt.Println(c.ListenAddrs()[0])
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // until the parent goes
	return nil
}

// startBroker starts this program again as the broker.
func startBroker(ctx context.Context) (address string, stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return "", nil, err
	}
	cmd := exec.CommandContext(ctx, self, brokerArgument)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(line), func() { in.Close(); _ = cmd.Wait() }, err
}

// fill writes events to a new topic and returns how many they were.
func fill(ctx context.Context, address string, o options, trace, prices string) (int, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(address), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.MaxBufferedRecords(100_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	if err != nil {
		return 0, err
	}
	defer client.Close()
	if err := createTopic(ctx, client, eventsTopic, o.partitions); err != nil {
		return 0, err
	}
	generator, err := newReplay(o, trace, prices)
	if err != nil {
		return 0, err
	}
	n := 0
	var failure error
	for ; n < o.events && failure == nil; n++ {
		r, ok := generator.Next()
		if !ok {
			break
		}
		client.Produce(ctx, &kgo.Record{
			Topic: eventsTopic, Partition: r.Partition, Key: r.Key, Value: r.Value, Timestamp: r.At,
		}, func(_ *kgo.Record, err error) {
			if err != nil {
				failure = err
			}
		})
	}
	return n, errors.Join(client.Flush(ctx), failure)
}

func newReplay(o options, tracePath, pricesPath string) (*replay.Generator, error) {
	f, err := os.Open(tracePath)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := replay.ReadTrace(f)
	if err != nil {
		return nil, err
	}
	book, err := os.ReadFile(pricesPath)
	if err != nil {
		return nil, err
	}
	models, err := replay.ModelsOf(book)
	if err != nil {
		return nil, err
	}
	return replay.New(replay.Config{
		Seed: 1, Trace: rows, Requests: o.events, Rate: o.rate, Models: models,
		Partitions: o.partitions, Shares: replay.Usual(),
		Start: time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC),
	})
}

func createTopic(ctx context.Context, client *kgo.Client, topic string, partitions int) error {
	_, err := kadm.NewClient(client).CreateTopic(ctx, int32(partitions), 1, nil, topic)
	return err
}
