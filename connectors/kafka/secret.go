package kafka

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
)

// Secret is a password or a token in memory. However it is printed, logged or encoded, it does not show.
//
// It is behind a pointer because fmt calls no method of what lies in an unexported field.
type Secret struct{ at *string }

// NewSecret makes a secret of what a program has from elsewhere than a file or the environment.
func NewSecret(value string) Secret { return Secret{at: &value} }

// reveal returns the secret, empty if there is none.
func (s Secret) reveal() string {
	if s.at == nil {
		return ""
	}
	return *s.at
}

const redacted = "[redacted]"

// String implements fmt.Stringer.
func (Secret) String() string { return redacted }

// GoString implements fmt.GoStringer.
func (Secret) GoString() string { return redacted }

// Format implements fmt.Formatter, for every verb there is.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue implements slog.LogValuer.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON implements json.Marshaler.
func (Secret) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }

// MarshalText implements encoding.TextMarshaler.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// UnmarshalJSON refuses a secret that is written into a configuration.
func (*Secret) UnmarshalJSON([]byte) error { return errInline }

// UnmarshalYAML refuses a secret that is written into a configuration.
func (*Secret) UnmarshalYAML([]byte) error { return errInline }

var errInline = errors.New("a secret is not written into a configuration: name the file or the environment " +
	"variable that holds it (password_file, password_env; client_secret_file, client_secret_env; token_file)")

// readSecret reads a secret from where the configuration says: a file, or an environment variable. It is
// read again for each login, so it may change while a job runs. Line ends behind it are not part of it.
func readSecret(what string, given Secret, file, env string) (Secret, error) {
	switch {
	case given.reveal() != "":
		return given, nil
	case file != "":
		text, err := os.ReadFile(file)
		if err != nil {
			return Secret{}, fmt.Errorf("%s: %w", what, err) // the error of the system names the file
		}
		return nonempty(what, "file "+file, string(text))
	case env != "":
		return nonempty(what, "environment variable "+env, os.Getenv(env))
	}
	return Secret{}, fmt.Errorf("%s: none is configured", what)
}

func nonempty(what, where, value string) (Secret, error) {
	value = strings.TrimRight(value, "\r\n")
	if value == "" {
		return Secret{}, fmt.Errorf("%s: %s is empty", what, where)
	}
	return NewSecret(value), nil
}
