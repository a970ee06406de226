// Command purchases is a user's own program in two releases, for the tests: the next one, with the build tag
// next, keeps one field more for each buyer.
//
// It reads "ann 5" (ann buys for 5 cents), and writes what it knows of the buyer after each purchase, and the
// sum of the day when the day is over.
package main

import (
	"fmt"
	"os"
	"time"

	"example.com/weir"
	"example.com/weir/connectors/kafka"
)

type purchase struct {
	Buyer string
	Cents int
}

type counter struct{ account weir.Value[account] }

func (c *counter) Open(o *weir.OpenContext[string]) (err error) {
	c.account, err = weir.NewValue[account](o, "account", nil)
	return err
}

func (c *counter) Process(ctx *weir.Context[string], p *purchase, out *weir.Out[string]) error {
	a, err := c.account.Put()
	if err == nil {
		a.add(p)
		out.Emit(ctx.Key() + a.String())
	}
	return err
}

func (c *counter) OnTimer(*weir.Context[string], *weir.Out[string]) error { return nil }

type sum struct{}

func (sum) Add(cents *int, p *purchase) error { *cents += p.Cents; return nil }
func (sum) Fire(w *weir.WindowContext[string], cents *int, out *weir.Out[string]) error {
	out.Emit(fmt.Sprint(w.Key, " total ", *cents))
	return nil
}

func decode(r *kafka.Record, p *purchase) error {
	_, err := fmt.Sscan(string(r.Value), &p.Buyer, &p.Cents)
	return err
}

func encode(line *string, r *kafka.Record) error {
	r.Value = []byte(*line)
	return nil
}

func buyer(p *purchase) string { return p.Buyer }

func main() {
	cluster := kafka.Config{Brokers: []string{os.Getenv("PURCHASES_BROKERS")}}
	sink := func(prefix string) kafka.SinkConfig {
		return kafka.SinkConfig{
			Config: cluster, Topic: os.Getenv("PURCHASES_OUT"), Guarantee: kafka.ExactlyOnce,
			TransactionalIDPrefix: os.Getenv("PURCHASES_OUT") + "-" + prefix,
		}
	}
	job := weir.NewJob("purchases", weir.Config{Checkpoint: weir.Checkpoint{Interval: 20 * time.Millisecond}})
	day := time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)
	purchases := weir.From(job, "purchases", kafka.Source(
		kafka.SourceConfig{Config: cluster, Topic: os.Getenv("PURCHASES_IN")}, decode),
		weir.EventTime(func(*purchase) time.Time { return day }, 0))
	counts := weir.Process(weir.KeyBy(purchases, buyer), "count",
		func() weir.Processor[string, purchase, string] { return &counter{} })
	totals := weir.Aggregate(weir.Window(weir.KeyBy(purchases, buyer), weir.Tumbling(24*time.Hour)), "total", sum{})
	weir.SinkTo(counts, "counts", kafka.Sink(sink("counts"), encode))
	weir.SinkTo(totals, "totals", kafka.Sink(sink("totals"), encode))
	os.Exit(weir.Main(job))
}
