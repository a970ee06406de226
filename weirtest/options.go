package weirtest

import (
	"log/slog"
	"testing"
	"time"

	"example.com/weir"
)

// Option changes the configuration that Run gives to a job. Any function of this type is one:
//
//	func(c *weir.Config) { c.Restore.AcceptDuplicates = true }
type Option func(c *weir.Config)

// Run builds a job and runs it beside the test, as Start does. Without options it has parallelism 1, a storage
// of its own, a checkpoint a second, and logs warnings to the test. A test restarts a job by another Run with
// the same Storage, after Stop or Kill: with what build returns now, which is an upgrade, or with another
// Parallelism.
func Run(t testing.TB, build func(weir.Config) *weir.Job, options ...Option) *Running {
	t.Helper()
	cfg := weir.Config{
		Parallelism: 1,
		Checkpoint:  weir.Checkpoint{Interval: time.Second},
		Logger:      slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	for _, o := range options {
		o(&cfg)
	}
	if cfg.Checkpoint.Storage == "" {
		Storage(t.TempDir())(&cfg)
	}
	return Start(t, build(cfg))
}

// Storage keeps the checkpoints in a directory: an absolute path, like that of t.TempDir.
func Storage(dir string) Option {
	return func(c *weir.Config) { c.Checkpoint.Storage = "file://" + dir }
}

// Parallelism is the number of subtasks of each operator.
func Parallelism(n int) Option {
	return func(c *weir.Config) { c.Parallelism = n }
}

// Restore goes on from a savepoint by name, or from a checkpoint by number. Behind what has been committed
// since, that is refused; see weir.Restore.
func Restore(name string) Option {
	return func(c *weir.Config) { c.Restore.From = name }
}
