package connector

import "errors"

// StopError marks an error that no restart heals: the job stops and says so, instead of
// restarting into a loss or a double.
type StopError struct{ Err error }

// Error returns the text of the marked error.
func (e *StopError) Error() string { return e.Err.Error() }

// Unwrap returns the marked error.
func (e *StopError) Unwrap() error { return e.Err }

// Stop marks err as one that stops the job. It returns nil for nil.
func Stop(err error) error {
	if err == nil {
		return nil
	}
	return &StopError{Err: err}
}

// IsStop reports whether err, or an error it wraps, is marked by Stop.
func IsStop(err error) bool {
	var s *StopError
	return errors.As(err, &s)
}

// ErrSuperseded reports that another generation owns CURRENT: this process may complete no
// checkpoint and commit nothing more.
var ErrSuperseded = errors.New("superseded: another generation owns the checkpoints")
