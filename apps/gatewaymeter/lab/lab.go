package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Lab is one failure and how it is shown.
type Lab struct {
	Number string
	Title  string
	run    func(ctx context.Context, cfg *Config, t *timeline) (*verdict, error)
}

// Labs returns all labs, in the order of their numbers.
func Labs() []Lab {
	return []Lab{
		{"8.1", "at-least-once: the minute that was billed twice", runBilledTwice},
		{"8.2", "exactly-once: the same kill, one record, and what a careless consumer reads", runReadCommitted},
		{"8.4", "a transaction timeout below the restart time: the minute that was never billed", runLost},
	}
}

// longest is how long a lab may take.
const longest = 10 * time.Minute

// Run runs a lab and prints what happens. It returns nil if the lab has shown what it is to show, ErrNotShown if it
// ran and did not, and another error if it could not run to its end.
func (l Lab) Run(ctx context.Context, cfg Config, out io.Writer) error {
	t := newTimeline(out, time.Now())
	t.textf("lab %s     %s", l.Number, l.Title)
	limited, cancel := context.WithTimeoutCause(ctx, longest, fmt.Errorf("it has not come to its end within %s", longest))
	defer cancel()
	v, err := l.run(limited, &cfg, t)
	switch {
	case err == nil:
	case errors.Is(err, ErrInvalid):
		return err
	case ctx.Err() != nil:
		t.textf("\nNO VERDICT: it was ended before there was one: %s", err)
		return err
	default:
		t.textf("\nVERDICT: failed: %s", err)
		return err
	}
	t.textf("\nTIMELINE: what the job logged, what this process did and saw, and when records were written\n%s", t.text())
	t.textf("VERDICT: %s", v)
	if !v.shown() {
		return ErrNotShown
	}
	return nil
}

// verdict is whether a lab has shown what it is to show.
type verdict struct {
	is    string   // what it has shown
	lacks []string // why it has not
}

// want notes what has to be so.
func (v *verdict) want(ok bool, format string, args ...any) {
	if !ok {
		v.lacks = append(v.lacks, fmt.Sprintf(format, args...))
	}
}

func (v *verdict) shown() bool { return len(v.lacks) == 0 }

func (v *verdict) String() string {
	if v.shown() {
		return "shown: " + v.is
	}
	return "not shown: " + strings.Join(v.lacks, "; ")
}

// on opens a stage, lets f play on it, and clears it.
func on(
	ctx context.Context, s *stage, breakable bool, f func(context.Context, *stage) error,
) (err error) {
	defer func() { err = errors.Join(err, s.close(err == nil)) }()
	if err := s.prepare(ctx, breakable); err != nil {
		return err
	}
	return f(ctx, s)
}
