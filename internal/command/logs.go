package command

import (
	"fmt"
	"io"
	"log/slog"

	"github.com/spf13/pflag"
)

// Logs are the flags that say how a run logs.
type Logs struct{ Format, Level string }

// Flags declares them.
func (l *Logs) Flags(f *pflag.FlagSet) {
	f.StringVar(&l.Format, "log-format", "text", "format of the log on standard error: text or json")
	f.StringVar(&l.Level, "log-level", "info", "least level that is logged: debug, info, warn or error")
}

// Logger makes the logger.
func (l *Logs) Logger(w io.Writer) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		return nil, usage(fmt.Errorf("--log-level %q: want debug, info, warn or error", l.Level))
	}
	options := &slog.HandlerOptions{Level: level}
	switch l.Format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, usage(fmt.Errorf("--log-format %q: want text or json", l.Format))
}
