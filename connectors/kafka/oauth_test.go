package kafka

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tokenServer gives out token-1, token-2, … for the right credentials.
func tokenServer(t *testing.T, lifetime int) (url string, given *atomic.Int64) {
	given = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, secret, _ := r.BasicAuth()
		if user != "weir" || secret != "client-secret" || r.FormValue("grant_type") != "client_credentials" ||
			r.FormValue("scope") != "kafka" {
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, `{"error": "invalid_client", "error_description": "no such client"}`)
			return
		}
		fmt.Fprintf(w, `{"access_token": "token-%d", "expires_in": %d}`, given.Add(1), lifetime)
	}))
	t.Cleanup(server.Close)
	return server.URL, given
}

func token(t *testing.T, o OAuth) string {
	t.Helper()
	require.NoError(t, o.check())
	s, err := newTokens(o).get(t.Context())
	if err != nil {
		return err.Error()
	}
	return s.reveal()
}

func TestTokensComeFromAFileACommandOrAServer(t *testing.T) {
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "token"), filepath.Join(dir, "client")
	require.NoError(t, os.WriteFile(file, []byte("from-file\n"), 0o600))
	require.NoError(t, os.WriteFile(secret, []byte("client-secret"), 0o600))
	require.Equal(t, "from-file", token(t, OAuth{TokenFile: file}))
	require.Equal(t, "from-file", token(t, OAuth{TokenCommand: "cat " + file}))
	require.Contains(t, token(t, OAuth{TokenCommand: "cat " + file + ".no"}), "token_command cat: exit status 1")
	require.Contains(t, token(t, OAuth{TokenFile: file + ".no"}), "no such file")
	url, _ := tokenServer(t, 300)
	o := OAuth{TokenURL: url, ClientID: "weir", ClientSecretFile: secret, Scope: "kafka"}
	require.Equal(t, "token-1", token(t, o))
	o.ClientID = "other"
	require.Contains(t, token(t, o), "invalid_client no such client")
	require.NotContains(t, token(t, o), "client-secret")
}

func TestATokenIsUsedUntilAFifthOfItsLifetimeIsLeft(t *testing.T) {
	url, given := tokenServer(t, 100)
	tokens := newTokens(OAuth{TokenURL: url, ClientID: "weir", ClientSecret: NewSecret("client-secret"), Scope: "kafka"})
	now := time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)
	tokens.now = func() time.Time { return now }
	for _, step := range []struct {
		after time.Duration
		want  string
	}{{0, "token-1"}, {79 * time.Second, "token-1"}, {2 * time.Second, "token-2"}, {time.Hour, "token-3"}} {
		now = now.Add(step.after)
		s, err := tokens.get(t.Context())
		require.NoError(t, err)
		require.Equal(t, step.want, s.reveal())
	}
	require.EqualValues(t, 3, given.Load())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	now = now.Add(time.Hour)
	_, err := tokens.get(ctx)
	require.ErrorIs(t, err, context.Canceled)
}
