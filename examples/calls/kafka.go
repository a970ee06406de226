package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"os"
	"strings"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka"
)

// cluster is where the topics are: CALLS_BROKERS, host:port[,host:port].
func cluster() kafka.Config {
	return kafka.Config{Brokers: strings.Split(cmp.Or(os.Getenv("CALLS_BROKERS"), "localhost:9092"), ",")}
}

// calls is the topic of calls, from its beginning.
func calls() connector.Source[Call] {
	return kafka.Source(kafka.SourceConfig{Config: cluster(), Topic: "calls"}, decode)
}

func decode(r *kafka.Record, c *Call) error {
	err := json.Unmarshal(r.Value, c)
	if err == nil && (c.Caller == "" || c.Began.IsZero() || c.Seconds < 0) {
		err = errors.New("a call needs a caller, a beginning and a length")
	}
	return err
}

// topic is a sink that writes JSON, the rows of a key in order.
func topic[T any](name string, key func(*T) string) connector.Sink[T] {
	return kafka.Sink(kafka.SinkConfig{
		Config: cluster(), Topic: name, Guarantee: kafka.ExactlyOnce, TransactionalIDPrefix: "calls-" + name,
	}, func(row *T, r *kafka.Record) (err error) {
		r.Key = []byte(key(row))
		r.Value, err = json.Marshal(row)
		return err
	})
}
