package kafkatest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Authority signs certificates for a test.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

// NewAuthority makes an authority that nobody else knows.
func NewAuthority(t *testing.T) *Authority {
	t.Helper()
	a := &Authority{}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "an authority of tests"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	var err error
	a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &a.key.PublicKey, a.key)
	require.NoError(t, err)
	a.cert, err = x509.ParseCertificate(der)
	require.NoError(t, err)
	a.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

// WriteCA writes the authority's own certificate.
func (a *Authority) WriteCA(t *testing.T, path string) string {
	t.Helper()
	require.NoError(t, os.WriteFile(path, a.pem, 0o600))
	return path
}

// Sign makes a key and a certificate for 127.0.0.1 and localhost, in PEM: key (PKCS #8) and certificate.
func (a *Authority) Sign(t *testing.T, name string) (key, cert []byte) {
	t.Helper()
	return a.SignUntil(t, name, time.Now().Add(24*time.Hour))
}

// SignUntil is Sign for a certificate that was made two days ago and expires at a time.
func (a *Authority) SignUntil(t *testing.T, name string, end time.Time) (key, cert []byte) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: end,
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, &private.PublicKey, a.key)
	require.NoError(t, err)
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
		pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// SecureNode is a node of Apache Kafka that also listens with TLS.
type SecureNode struct {
	*Node
	Authority *Authority
	CAFile    string
	Login     string // the address that wants a login: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN or OAUTHBEARER
	Mutual    string // the address that wants the client's certificate
}

// NewSecureNode starts one that ends with the test. Its user for PLAIN is weir, with the password given;
// those for SCRAM are made by the test, and for OAUTHBEARER anybody is whom a Token names.
func NewSecureNode(t *testing.T, plainPassword string) *SecureNode {
	t.Helper()
	return newSecureNode(t, NodeConfig{PlainPassword: plainPassword})
}

func newSecureNode(t *testing.T, cfg NodeConfig) *SecureNode {
	t.Helper()
	dir := t.TempDir()
	s := &SecureNode{Authority: NewAuthority(t)}
	s.CAFile = s.Authority.WriteCA(t, filepath.Join(dir, "ca.pem"))
	key, cert := s.Authority.Sign(t, "broker")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "server.pem"), append(key, cert...), 0o600))
	cfg.TLS = dir
	s.Node = NewNode(t, cfg)
	s.Login, s.Mutual = readAddress(t, filepath.Join(dir, "sasl")), readAddress(t, filepath.Join(dir, "mtls"))
	return s
}

func readAddress(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(text[:len(text)-1])
}

// Token makes a token that a secure node takes from the mechanism OAUTHBEARER: a JWS without a signature.
func Token(user string, expires time.Time) string {
	part := func(claims string) string { return base64.RawURLEncoding.EncodeToString([]byte(claims)) }
	return part(`{"alg":"none"}`) + "." + part(fmt.Sprintf(`{"sub":%q,"iat":%d,"exp":%d}`,
		user, expires.Add(-time.Hour).Unix(), expires.Unix())) + "."
}
