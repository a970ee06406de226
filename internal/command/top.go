package command

import (
	"context"
	"errors"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"example.com/weir/internal/control"
	"example.com/weir/internal/status"
	"example.com/weir/internal/terminal"
)

func topCommand(address string) *cobra.Command {
	var s storage
	var every time.Duration
	var once bool
	c := &cobra.Command{
		Use: "top", Short: "Show a running job in the terminal, until it ends or Ctrl-C is pressed",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if every < 10*time.Millisecond {
				return usage(errors.New("--every: want at least 10ms"))
			}
			ctx, cancel := interruptible(c.Context(), 0)
			defer cancel()
			return failed(s.top(ctx, c.OutOrStdout(), every, once))
		},
	}
	s.flag(c, address)
	c.Flags().DurationVar(&every, "every", time.Second, "between two looks at the job")
	c.Flags().BoolVar(&once, "once", false, "look once, and draw nothing over")
	return c
}

// top draws the job again and again. That it ends, or that somebody has seen enough, is no failure.
func (s *storage) top(ctx context.Context, w io.Writer, every time.Duration, once bool) error {
	dir, err := s.dir()
	if err != nil {
		return err
	}
	client, err := control.Find(dir)
	if err != nil {
		return err
	}
	screen := terminal.Open(w)
	defer screen.Close()
	tick := time.NewTicker(every)
	defer tick.Stop()
	var before *status.Status
	for shown := false; ; shown = true {
		st, err := client.Status(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case shown && (errors.Is(err, control.ErrNotRunning) || errors.Is(err, control.ErrGone)):
			if st, err = s.left(ctx); err != nil {
				return err
			}
			return printStatus(w, st)
		case err != nil:
			return err
		}
		room := terminal.Room{}
		if !once {
			room = screen.Room()
		}
		lines := terminal.Top(&st, before, room)
		before = &st
		if once || !screen.Live() { // what stays is drawn once below the other
			screen.Print(strings.Join(lines, "\n") + "\n")
		} else {
			screen.Paint(lines)
		}
		if once {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
