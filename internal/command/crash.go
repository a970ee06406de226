package command

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"example.com/weir/internal/fault"
)

// armCrash lets the process end itself where a test has asked for it, and is the one place that looks. No
// flag says it, so that none can be left in a configuration; and it is said as loudly as it can be.
func armCrash(j Job, report io.Writer) error {
	text := os.Getenv(fault.Variable)
	if text == "" {
		return nil
	}
	crash, err := fault.Parse(text)
	if err != nil {
		return fmt.Errorf("environment variable %s: %w", fault.Variable, err)
	}
	s := j.Settings()
	s.Reached = crash.Reached(report)
	j.Apply(s)
	s.logger().Error("THIS PROCESS IS TOLD TO CRASH, by an environment variable that is for tests alone",
		slog.String("variable", fault.Variable), slog.String("crash", crash.String()))
	return nil
}
