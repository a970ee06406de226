package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// said is an error in other words: what the words were about can still be asked for.
type said struct {
	words string
	err   error
}

func (s *said) Error() string { return s.words }
func (s *said) Unwrap() error { return s.err }

// say puts what an error means in front of it.
func say(err error, format string, args ...any) error {
	return &said{words: fmt.Sprintf(format, args...) + ": " + err.Error(), err: err}
}

// instead says err with other words for the part of it that cause has said.
func instead(err, cause error, words string) error {
	return &said{words: strings.Replace(err.Error(), cause.Error(), words, 1), err: err}
}

// explain says in a sentence why a client does not reach the cluster, and what to look at. What the cluster answers
// otherwise stays as it is.
func (c *Config) explain(err error) error {
	mechanism := strings.ToUpper(c.Security.SASL.Mechanism)
	var eof *kgo.ErrFirstReadEOF
	var op *net.OpError
	var done *said
	switch {
	case err == nil, errors.As(err, &done):
		return err
	case errors.Is(err, kerr.UnsupportedSaslMechanism):
		return say(err, "sasl: %s is not enabled on the brokers' listener", mechanism)
	case errors.Is(err, kerr.SaslAuthenticationFailed) && c.Security.SASL.mechanism() == "oauthbearer":
		return say(err, "sasl: the brokers refused the token from %s: it has expired, or is not one that they take",
			c.Security.SASL.OAuth.whence())
	case errors.Is(err, kerr.SaslAuthenticationFailed):
		return say(err, "sasl: the brokers refused the login of %q by %s: wrong username or password",
			c.Security.SASL.Username, mechanism)
	case errors.As(err, &eof):
		return instead(err, eof, "the broker closed the connection before it answered anything; if it goes on, its listener wants "+
			"something else than "+c.Security.describe()+"; if it comes once, the broker was stopped or the connection was cut")
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return say(err, "a broker closed the connection and gave no reason: it was stopped, the connection was cut, or it does "+
			"not take %s", c.Security.describe())
	case strings.Contains(err.Error(), "plaintext connection speaking to a tls endpoint"):
		// The client has no type for it.
		return instead(err, plainOf(err), "the broker's listener speaks TLS, and the client "+c.Security.describe()+
			": switch TLS on (tls, ca_file)")
	case errors.As(err, &op) && op.Op == "dial" && !op.Timeout():
		return say(err, "a broker cannot be reached: see that the address is right, which is one of brokers (%s) or what they "+
			"advertise, and that a broker listens there", strings.Join(c.Brokers, ", "))
	case timedOut(err):
		return say(err, "a broker did not answer in time: see that those of brokers (%s), and what they advertise, can be "+
			"reached and that they run", strings.Join(c.Brokers, ", "))
	}
	return err
}

// timedOut tells a broker that is silent from a caller that has given up.
func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded)
}

// plainOf is the innermost error, which says what the client found.
func plainOf(err error) error {
	for next := err; next != nil; next = errors.Unwrap(next) {
		err = next
	}
	return err
}

// describe says how a client connects, as its errors name it.
func (s *Security) describe() string {
	how := []string{"plain text (no tls)"}
	if s.TLS.enabled() {
		how[0] = "TLS without a certificate of the client (no cert_file)"
		if s.TLS.CertFile != "" {
			how[0] = "TLS with the client's certificate in " + s.TLS.CertFile
		}
	}
	if s.SASL.Mechanism == "" {
		return how[0] + " without a login (no sasl)"
	}
	return how[0] + " with a login by " + strings.ToUpper(s.SASL.Mechanism)
}

// whence names the source of tokens. It shows no argument of the command and no query of the address: these can hold a
// secret, whatever the documentation says.
func (o *OAuth) whence() string {
	switch {
	case o.TokenFile != "":
		return "token_file " + o.TokenFile
	case o.TokenCommand != "":
		return "token_command " + strings.Fields(o.TokenCommand)[0]
	}
	return "token_url"
}

// explain says in a sentence why there is no trust in the broker.
func (t *TLS) explain(address string, err error) error {
	authorities := "the system's certificate authorities"
	if t.CAFile != "" {
		authorities = "the authorities in ca_file " + t.CAFile
	}
	var unknownCA x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var invalid x509.CertificateInvalidError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &unknownCA):
		return fmt.Errorf("tls: the certificate of broker %s is not signed by any of %s: %w", address, authorities, err)
	case errors.As(err, &hostname):
		return fmt.Errorf("tls: the certificate of broker %s is for another name (server_name sets the one to ask for): %w",
			address, err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return fmt.Errorf("tls: the certificate of broker %s is not valid at this time: renew it, or see that the clocks are right: %w",
			address, err)
	case errors.As(err, &record):
		return fmt.Errorf("tls: broker %s does not speak TLS at this address: leave tls out, or name the listener that does: %w",
			address, err)
	}
	return fmt.Errorf("tls: broker %s: %w", address, err)
}

// remoteAlert is what the broker has said when it refused a connection, nil if it did not.
func remoteAlert(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" {
		return op.Err
	}
	return nil
}

// explainAlert says in a sentence why the broker has no trust in the client. Alerts are vague: which one comes is up to
// the broker's library, so what is known about the client's certificate is said with it.
func (t *TLS) explainAlert(address string, own []tls.Certificate, alert, err error) error {
	about := "it may want a certificate of the client: cert_file and key_file are not set"
	if len(own) > 0 {
		about = aboutCertificate(t.CertFile, own[0].Leaf, time.Now())
	}
	return &said{
		words: fmt.Sprintf("tls: broker %s refused the connection, saying %q: %s",
			address, strings.TrimPrefix(alert.Error(), "tls: "), about),
		err: err,
	}
}

// aboutCertificate says what a broker can have against a certificate of a client.
func aboutCertificate(file string, c *x509.Certificate, now time.Time) string {
	switch at := time.RFC3339; {
	case now.After(c.NotAfter):
		return fmt.Sprintf("the client's certificate in cert_file %s expired at %s: renew it", file, c.NotAfter.UTC().Format(at))
	case now.Before(c.NotBefore):
		return fmt.Sprintf("the client's certificate in cert_file %s is not valid before %s", file, c.NotBefore.UTC().Format(at))
	}
	return fmt.Sprintf("see that the brokers trust who has signed the client's certificate in cert_file %s (subject %q, signed by %q)",
		file, c.Subject, c.Issuer)
}
