package kafkatest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

// Authorizer is a broker that asks for rights. The clients of Broker are its administrator's; User has the rights
// that it is granted, and none at first.
type Authorizer struct {
	*Broker
	User     string // logs in by the mechanism PLAIN
	Password string
	Address  string // where it logs in
	CAFile   string // who has signed the broker's certificate; empty: there is no TLS
}

// RunAuthorizer runs a test against both kinds of broker, each with an authorizer.
func RunAuthorizer(t *testing.T, f func(t *testing.T, a *Authorizer)) {
	t.Helper()
	t.Run(string(Fake), func(t *testing.T) {
		b := NewFakeWithLogin(t, "admin", "admin-secret", kfake.EnableACLs(), kfake.User("PLAIN", "weir", "weir-secret"))
		b.report.writeAtEnd(t, b.Name())
		f(t, &Authorizer{Broker: b, User: "weir", Password: "weir-secret", Address: b.Brokers[0]})
	})
	t.Run(string(Apache), func(t *testing.T) {
		n := newSecureNode(t, NodeConfig{PlainPassword: "weir-secret", Authorizer: true})
		f(t, &Authorizer{
			Broker: &n.Broker, User: "weir", Password: "weir-secret", Address: n.Login, CAFile: n.CAFile,
		})
	})
}

// NewFakeWithLogin starts an in-process broker that wants a login by the mechanism PLAIN. Its clients log in as the user
// given, who may everything.
func NewFakeWithLogin(t *testing.T, user, password string, opts ...kfake.Opt) *Broker {
	t.Helper()
	b := NewFake(t, append(opts, kfake.EnableSASL(), kfake.Superuser("PLAIN", user, password))...)
	b.login = []kgo.Opt{kgo.SASL(plain.Plain(func(context.Context) (plain.Auth, error) {
		return plain.Auth{User: user, Pass: password}, nil
	}))}
	return b
}

// Grant gives the user rights. They are in effect once the brokers have heard of them.
func (a *Authorizer) Grant(t *testing.T, rights *kadm.ACLBuilder) {
	t.Helper()
	granted, err := a.Admin(t).CreateACLs(t.Context(), rights.Allow("User:"+a.User))
	require.NoError(t, err)
	for _, g := range granted {
		require.NoError(t, g.Err)
	}
}
