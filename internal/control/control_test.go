package control

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/weir/internal/status"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeJob remembers what it was asked.
type fakeJob struct {
	state status.State
	stops chan bool
}

func (j *fakeJob) Status() status.Status {
	return status.Status{Job: "bill", State: j.state, OwnsCurrent: true, Settled: true}
}
func (j *fakeJob) Stop(drain bool) { j.stops <- drain }

func (j *fakeJob) Savepoint(_ context.Context, name string) (Savepoint, error) {
	if name == "taken" {
		return Savepoint{}, errors.New("a savepoint is called that already")
	}
	return Savepoint{Name: name, Lineage: "l", Checkpoint: 7}, nil
}

func (j *fakeJob) DeleteSavepoint(_ context.Context, name string) error {
	if name != "old one/2" {
		return errors.New("no such savepoint")
	}
	return nil
}

type world struct {
	dir    string
	job    *fakeJob
	server *Server
}

func open(t *testing.T, change ...func(*Config)) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), job: &fakeJob{state: status.Running, stops: make(chan bool, 1)}}
	cfg := Config{
		Name: "bill", Job: w.job, Dir: w.dir, Logger: slog.New(slog.DiscardHandler), Now: time.Now,
		Open: map[string]http.Handler{"/metrics": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, "weir_up 1\n")
		})},
	}
	for _, f := range change {
		f(&cfg)
	}
	s, err := Open(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	w.server = s
	return w
}

func (w *world) client(t *testing.T) *Client {
	t.Helper()
	c, err := Find(w.dir)
	require.NoError(t, err)
	return c
}

// get asks as a browser or Prometheus would.
func (w *world) get(t *testing.T, path string, change func(*http.Request)) (int, string) {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, path, http.NoBody)
	req.Host, req.RemoteAddr = "127.0.0.1:80", "127.0.0.1:4711"
	if change != nil {
		change(req)
	}
	rec := httptest.NewRecorder()
	w.server.handler().ServeHTTP(rec, req)
	return rec.Code, rec.Body.String()
}

func TestWhatAClientAsksReachesTheJob(t *testing.T) {
	w := open(t)
	c := w.client(t)
	require.Equal(t, os.Getpid(), c.Info().PID)

	s, err := c.Status(t.Context())
	require.NoError(t, err)
	require.Equal(t, status.Running, s.State)

	sp, err := c.Savepoint(t.Context(), "before")
	require.NoError(t, err)
	require.Equal(t, Savepoint{Name: "before", Lineage: "l", Checkpoint: 7}, sp)
	_, err = c.Savepoint(t.Context(), "taken")
	require.EqualError(t, err, "job bill: a savepoint is called that already")
	_, err = c.Savepoint(t.Context(), "")
	require.EqualError(t, err, "job bill: a savepoint needs a name")

	require.NoError(t, c.DeleteSavepoint(t.Context(), "old one/2"))
	require.EqualError(t, c.DeleteSavepoint(t.Context(), "other"), "job bill: no such savepoint")

	for _, drain := range []bool{true, false} {
		require.NoError(t, c.Stop(t.Context(), drain))
		require.Equal(t, drain, <-w.job.stops)
	}
}

// The next process may be started when a stop has been answered: the address and the file are free
// before the checkpoints are.
func TestAStopIsAnsweredOnceTheJobHasEnded(t *testing.T) {
	w := open(t)
	c, got := w.client(t), make(chan Outcome)
	for range 2 {
		go func() {
			o, err := c.StopAndWait(context.Background(), true)
			if err != nil {
				o.Error = err.Error()
			}
			got <- o
		}()
		require.True(t, <-w.job.stops)
	}
	require.NoError(t, w.server.Retire())
	require.NoFileExists(t, filepath.Join(w.dir, FileName))
	_, err := c.Status(t.Context())
	require.ErrorIs(t, err, ErrNotRunning)
	again, err := net.Listen("tcp", w.server.Address())
	require.NoError(t, err)
	require.NoError(t, again.Close())
	select {
	case o := <-got:
		require.Fail(t, "answered before the end", "%v", o)
	default:
	}
	want := Outcome{Outcome: "finished"}
	w.server.Ended(want)
	w.server.Ended(Outcome{Outcome: "failed"})
	require.Equal(t, want, <-got)
	require.Equal(t, want, <-got)
}

func TestAJobThatEndsWithoutAnOutcomeIsGone(t *testing.T) {
	w := open(t)
	c, failed := w.client(t), make(chan error)
	go func() {
		_, err := c.StopAndWait(context.Background(), false)
		failed <- err
	}()
	<-w.job.stops
	require.NoError(t, w.server.Close())
	require.ErrorIs(t, <-failed, ErrGone)
	require.NoFileExists(t, filepath.Join(w.dir, FileName))
}

func TestControlWantsTheTokenAndALocalPeer(t *testing.T) {
	w := open(t)
	right := "Bearer " + w.server.info.Token
	for name, c := range map[string]struct {
		path, token, peer, host string
		want                    int
	}{
		"right":               {"/control/status", right, "", "", http.StatusOK},
		"localhost":           {"/control/status", right, "", "localhost:9", http.StatusOK},
		"IPv6":                {"/control/status", right, "[::1]:4", "[::1]:9", http.StatusOK},
		"no token":            {"/control/status", "", "", "", http.StatusUnauthorized},
		"wrong token":         {"/control/status", right + "0", "", "", http.StatusUnauthorized},
		"another scheme":      {"/control/status", strings.TrimPrefix(right, "Bearer "), "", "", http.StatusUnauthorized},
		"unknown, no token":   {"/control/nothing", "", "", "", http.StatusUnauthorized},
		"unknown":             {"/control/nothing", right, "", "", http.StatusNotFound},
		"GET of a POST":       {"/control/stop", right, "", "", http.StatusNotFound},
		"another machine":     {"/control/status", right, "10.0.0.7:4", "", http.StatusForbidden},
		"its profiles":        {"/debug/pprof/heap", "", "10.0.0.7:4", "", http.StatusForbidden},
		"its metrics":         {"/metrics", "", "10.0.0.7:4", "meter.example:9", http.StatusOK},
		"a name pointed here": {"/debug/pprof/heap", "", "", "evil.example:9", http.StatusForbidden},
		"metrics":             {"/metrics", "", "", "", http.StatusOK},
	} {
		t.Run(name, func(t *testing.T) {
			code, body := w.get(t, c.path, func(r *http.Request) {
				if c.token != "" {
					r.Header.Set("Authorization", c.token)
				}
				if c.peer != "" {
					r.RemoteAddr = c.peer
				}
				if c.host != "" {
					r.Host = c.host
				}
			})
			require.Equal(t, c.want, code, body)
		})
	}
}

func TestProfilesAreThere(t *testing.T) {
	w := open(t)
	_, list := w.get(t, "/debug/pprof/", nil)
	require.Contains(t, list, "goroutine?debug=1")
	code, body := w.get(t, "/debug/pprof/goroutine?debug=1", nil)
	require.Equal(t, http.StatusOK, code)
	require.Contains(t, body, "TestProfilesAreThere")
	for _, name := range []string{"heap?gc=1", "profile?seconds=0.01", "trace?seconds=0.01"} {
		code, body = w.get(t, "/debug/pprof/"+name, nil)
		require.Equal(t, http.StatusOK, code, name)
		require.NotEmpty(t, body, name)
	}
	code, _ = w.get(t, "/debug/pprof/nothing", nil)
	require.Equal(t, http.StatusNotFound, code)
	code, _ = w.get(t, "/debug/pprof/profile?seconds=never", nil)
	require.Equal(t, http.StatusBadRequest, code)
}

func TestOnlyThisMachineReachesAJobUnlessThatWasAskedFor(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:0": true, "localhost:0": true, "[::1]:0": true, "127.1.2.3:0": true,
		"0.0.0.0:0": false, ":0": false, "10.0.0.1:0": false, "example.com:80": false, "127.0.0.1": false,
	} {
		err := CheckAddress(address, false)
		require.Equal(t, ok, err == nil, "%s: %v", address, err)
	}
	_, err := Open(Config{Address: "0.0.0.0:0"})
	require.ErrorContains(t, err, "--http-remote")
	w := open(t, func(c *Config) { c.Address, c.Remote = "0.0.0.0:0", true })
	_, err = w.client(t).Status(t.Context()) // from here, by the loopback address
	require.NoError(t, err)
}

func TestTheFileIsTheOwnersAloneAndGoneAtTheEnd(t *testing.T) {
	w := open(t)
	file := filepath.Join(w.dir, FileName)
	stat, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), stat.Mode())
	require.NoError(t, w.server.Close())
	entries, err := os.ReadDir(w.dir)
	require.NoError(t, err)
	require.Empty(t, entries)
}

func TestWithoutStorageThereIsNothingToControl(t *testing.T) {
	w := open(t, func(c *Config) { c.Dir = "" })
	code, _ := w.get(t, "/control/status", func(r *http.Request) {
		r.Header.Set("Authorization", "Bearer "+w.server.info.Token)
	})
	require.Equal(t, http.StatusNotFound, code)
	_, err := Find(w.dir)
	require.ErrorIs(t, err, ErrNotRunning)
}

// A killed process leaves its file. Nobody listens there, or somebody else does by now.
func TestAFileThatAKilledProcessLeftIsToldFromARunningJob(t *testing.T) {
	w := open(t)
	left := w.server.info
	require.NoError(t, w.server.Close())
	require.NoError(t, left.write(w.dir))
	_, err := w.client(t).Status(t.Context())
	require.ErrorIs(t, err, ErrNotRunning)
	require.ErrorContains(t, err, "last: process")

	for name, answer := range map[string]http.HandlerFunc{
		"another program": func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "{}") },
		"another job": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set(jobHeader, "other")
			_, _ = io.WriteString(w, "{}")
		},
	} {
		t.Run(name, func(t *testing.T) {
			other := httptest.NewServer(answer)
			defer other.Close()
			left.Address = other.Listener.Addr().String()
			require.NoError(t, left.write(w.dir))
			require.ErrorIs(t, w.client(t).Stop(t.Context(), false), ErrNotRunning)
		})
	}
	another := open(t)
	left.Address = another.server.Address()
	require.NoError(t, left.write(w.dir))
	require.ErrorIs(t, w.client(t).Stop(t.Context(), false), ErrNotRunning)
	require.Empty(t, another.job.stops)
}

// The file of a process that owns the checkpoints now stays where it is.
func TestAServerRemovesItsOwnFileAlone(t *testing.T) {
	w := open(t)
	next := w.server.info
	next.Token = "another"
	require.NoError(t, next.write(w.dir))
	require.NoError(t, w.server.Close())
	data, err := os.ReadFile(filepath.Join(w.dir, FileName))
	require.NoError(t, err)
	var have Info
	require.NoError(t, json.Unmarshal(data, &have))
	require.Equal(t, "another", have.Token)
}

func TestRequestsThatSayTooMuchAreRefused(t *testing.T) {
	w := open(t)
	for body, want := range map[string]int{
		`{"drain":true}`: http.StatusAccepted, `{"drian":true}`: http.StatusBadRequest, ``: http.StatusBadRequest,
		`{"drain":"` + strings.Repeat("x", longestRequest) + `"}`: http.StatusBadRequest,
	} {
		req := httptest.NewRequest(http.MethodPost, "/control/stop", strings.NewReader(body))
		req.Host, req.RemoteAddr = "127.0.0.1:80", "127.0.0.1:4711"
		req.Header.Set("Authorization", "Bearer "+w.server.info.Token)
		rec := httptest.NewRecorder()
		w.server.handler().ServeHTTP(rec, req)
		require.Equal(t, want, rec.Code)
	}
}
