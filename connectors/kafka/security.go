package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Security says how a client and the brokers prove to each other who they are. The zero value is a
// connection without encryption and without login. It holds no secret, only where they are: files are
// read again for each connection and each login, so certificates, passwords and tokens can be renewed
// while a job runs.
type Security struct {
	TLS  TLS  `yaml:"tls" json:"tls"`
	SASL SASL `yaml:"sasl" json:"sasl"`
}

// TLS configures encryption, and with a certificate the client's own proof (mTLS). Files are PEM.
type TLS struct {
	// Enabled switches TLS on. So does naming a file.
	Enabled bool `yaml:"enabled" json:"enabled"`
	// CAFile holds the certificates of the authorities that may sign the brokers' certificates. Empty:
	// those of the system.
	CAFile string `yaml:"ca_file" json:"ca_file,omitempty"`
	// CertFile and KeyFile are the client's certificate, with what it was signed by behind it, and its key.
	CertFile string `yaml:"cert_file" json:"cert_file,omitempty"`
	KeyFile  string `yaml:"key_file" json:"key_file,omitempty"`
	// ServerName is the name that the brokers' certificates must bear; the default is the host that is
	// connected to.
	ServerName string `yaml:"server_name" json:"server_name,omitempty"`
}

// SASL configures the login.
type SASL struct {
	// Mechanism is plain, scram-sha-256, scram-sha-512 or oauthbearer. Empty: no login.
	Mechanism string `yaml:"mechanism" json:"mechanism,omitempty"`
	// Username, and where the password is: in PasswordFile or in the environment variable PasswordEnv. A
	// program may have it from elsewhere and set Password.
	Username     string `yaml:"username" json:"username,omitempty"`
	PasswordFile string `yaml:"password_file" json:"password_file,omitempty"`
	PasswordEnv  string `yaml:"password_env" json:"password_env,omitempty"`
	Password     Secret `yaml:"password" json:"-"`
	// OAuth says where the token of oauthbearer comes from.
	OAuth OAuth `yaml:"oauth" json:"oauth"`
}

func (t *TLS) enabled() bool {
	return t.Enabled || t.CAFile != "" || t.CertFile != "" || t.KeyFile != "" || t.ServerName != ""
}

// check reports what makes the configuration impossible. Files are read when they are needed.
func (s *Security) check() error {
	if (s.TLS.CertFile == "") != (s.TLS.KeyFile == "") {
		return errors.New("tls: cert_file and key_file belong together")
	}
	p := s.SASL
	if p.Mechanism == "" {
		if p.Username != "" || p.PasswordFile != "" || p.PasswordEnv != "" || p.Password.reveal() != "" || p.OAuth != (OAuth{}) {
			return errors.New("sasl: a login without a mechanism: say plain, scram-sha-256, scram-sha-512 or oauthbearer")
		}
		return nil
	}
	switch p.mechanism() {
	case "plain", "scram-sha-256", "scram-sha-512":
		switch {
		case p.Username == "":
			return fmt.Errorf("sasl: %s needs a username", p.Mechanism)
		case count(p.PasswordFile != "", p.PasswordEnv != "", p.Password.reveal() != "") != 1:
			return fmt.Errorf("sasl: %s needs one of password_file and password_env", p.Mechanism)
		case p.OAuth != (OAuth{}):
			return fmt.Errorf("sasl: %s has no token; oauth is of oauthbearer", p.Mechanism)
		}
		return nil
	case "oauthbearer":
		return p.OAuth.check()
	}
	return fmt.Errorf("sasl: mechanism %q: want plain, scram-sha-256, scram-sha-512 or oauthbearer", p.Mechanism)
}

func (s *SASL) mechanism() string { return strings.ToLower(s.Mechanism) }

func count(all ...bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}

// options are those of a client.
func (s *Security) options(dialTimeout time.Duration) []kgo.Opt {
	var opts []kgo.Opt
	if s.TLS.enabled() {
		d := tlsDialer{cfg: s.TLS, dialer: net.Dialer{Timeout: dialTimeout}}
		opts = append(opts, kgo.Dialer(d.dial))
	} else {
		opts = append(opts, kgo.DialTimeout(dialTimeout))
	}
	if m := s.SASL.login(); m != nil {
		opts = append(opts, kgo.SASL(m))
	}
	return opts
}

// login returns the mechanism, which reads the secret anew for each login.
func (s *SASL) login() sasl.Mechanism {
	password := func() (Secret, error) {
		return readSecret("password of "+s.Username, s.Password, s.PasswordFile, s.PasswordEnv)
	}
	scramAuth := func(context.Context) (scram.Auth, error) {
		p, err := password()
		return scram.Auth{User: s.Username, Pass: p.reveal()}, err
	}
	switch s.mechanism() {
	case "plain":
		return plain.Plain(func(context.Context) (plain.Auth, error) {
			p, err := password()
			return plain.Auth{User: s.Username, Pass: p.reveal()}, err
		})
	case "scram-sha-256":
		return scram.Sha256(scramAuth)
	case "scram-sha-512":
		return scram.Sha512(scramAuth)
	case "oauthbearer":
		tokens := newTokens(s.OAuth)
		return oauth.Oauth(func(ctx context.Context) (oauth.Auth, error) {
			t, err := tokens.get(ctx)
			return oauth.Auth{Token: t.reveal()}, err
		})
	}
	return nil
}

// tlsDialer connects with the certificates as they are in their files at that moment.
type tlsDialer struct {
	cfg    TLS
	dialer net.Dialer
}

func (d *tlsDialer) dial(ctx context.Context, network, address string) (net.Conn, error) {
	cfg, err := d.cfg.read()
	if err != nil {
		return nil, err
	}
	if cfg.ServerName == "" {
		if cfg.ServerName, _, err = net.SplitHostPort(address); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, d.dialer.Timeout)
	defer cancel()
	raw, err := d.dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	conn := tls.Client(raw, cfg)
	if err := conn.HandshakeContext(ctx); err != nil {
		raw.Close()
		if alert := remoteAlert(err); alert != nil {
			return nil, d.cfg.explainAlert(address, cfg.Certificates, alert, err)
		}
		return nil, d.cfg.explain(address, err)
	}
	return &tlsConn{Conn: conn, cfg: d.cfg, address: address, own: cfg.Certificates}, nil
}

// tlsConn says what it means that the broker refused the client. In TLS 1.3 the client's side of the handshake is over
// before the broker has looked at the client's certificate: what it thinks of it comes with the first answer.
type tlsConn struct {
	*tls.Conn
	cfg     TLS
	address string
	own     []tls.Certificate // what the client showed, if it was asked to
}

func (c *tlsConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if alert := remoteAlert(err); alert != nil {
		err = c.cfg.explainAlert(c.address, c.own, alert, err)
	}
	return n, err
}

// read makes a configuration from the files.
func (t *TLS) read() (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("tls: ca_file: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("tls: ca_file %s holds no certificate in PEM", t.CAFile)
		}
	}
	if t.CertFile != "" {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("tls: cert_file %s and key_file %s: %w", t.CertFile, t.KeyFile, err)
		}
		cfg.Certificates = []tls.Certificate{cert}
	}
	return cfg, nil
}
