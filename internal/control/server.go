package control

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"example.com/weir/internal/status"
)

// DefaultAddress is where a job listens that was told nothing else: a free port of this machine.
const DefaultAddress = "127.0.0.1:0"

// Job is the running job that a server stands in front of. Its methods may be called at any time, by
// several goroutines.
type Job interface {
	Status() status.Status
	// Stop asks the job to end, and returns at once. drain has it end its input first.
	Stop(drain bool)
	// Savepoint takes one, and returns once it is durable.
	Savepoint(ctx context.Context, name string) (Savepoint, error)
	DeleteSavepoint(ctx context.Context, name string) error
}

// Savepoint says what was taken.
type Savepoint struct {
	Name       string `json:"name"`
	Lineage    string `json:"lineage"`
	Checkpoint uint64 `json:"checkpoint"`
}

// Outcome says how a job ended.
type Outcome struct {
	Outcome  string `json:"outcome"` // finished, stopped, failed, superseded, refused, interrupted
	ExitCode int    `json:"exit_code"`
	Error    string `json:"error,omitempty"`
}

// Config says how a job is to be reached.
type Config struct {
	Name    string // of the job
	Job     Job
	Address string // host:port; default DefaultAddress
	Remote  bool   // Address may be one that other machines reach
	// Open is what is answered to everybody who reaches the address, by its path.
	Open map[string]http.Handler
	// Dir is where the checkpoints are, and control.json goes; empty: it goes nowhere, and there is no
	// /control/.
	Dir    string
	Logger *slog.Logger
	Now    func() time.Time
}

// Server is the endpoint of a running job.
type Server struct {
	cfg      Config
	info     Info
	listener net.Listener
	http     *http.Server
	cancel   context.CancelFunc
	served   chan struct{} // closed once Serve has returned

	ended   chan struct{} // closed once outcome is set
	once    sync.Once
	outcome Outcome
}

// Open listens, serves, and writes control.json. The caller owns the checkpoints (C3).
func Open(cfg Config) (*Server, error) {
	if cfg.Address == "" {
		cfg.Address = DefaultAddress
	}
	if err := CheckAddress(cfg.Address, cfg.Remote); err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", cfg.Address)
	if err != nil {
		return nil, fmt.Errorf("the job's HTTP endpoint: %w", err)
	}
	s := &Server{
		cfg: cfg, listener: listener, info: newInfo(cfg, listener.Addr()),
		served: make(chan struct{}), ended: make(chan struct{}),
	}
	ctx, cancel := context.WithCancel(context.Background())
	s.cancel = cancel
	s.http = &http.Server{
		Handler: s.handler(), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ErrorLog:    slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelDebug),
	}
	go func() {
		defer close(s.served)
		_ = s.http.Serve(listener) // until Close
	}()
	if cfg.Dir != "" {
		if err := s.info.write(cfg.Dir); err != nil {
			return nil, errors.Join(fmt.Errorf("%s: %w", FileName, err), s.Close())
		}
	}
	return s, nil
}

// CheckAddress refuses what other machines reach, unless that was asked for (C2).
func CheckAddress(address string, remote bool) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("the job's HTTP endpoint: %w: want host:port, such as 127.0.0.1:9180", err)
	}
	if remote || isLoopback(host) {
		return nil
	}
	return fmt.Errorf("the job's HTTP endpoint: other machines could reach %s; listen on 127.0.0.1, or allow "+
		"it by name (--http-remote)", address)
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// newInfo says how to reach a listener from this machine.
func newInfo(cfg Config, addr net.Addr) Info {
	token := make([]byte, 32)
	_, _ = rand.Read(token) // never fails: it ends the program instead
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	address := addr.String()
	if at, err := netip.ParseAddrPort(address); err == nil && at.Addr().IsUnspecified() {
		address = netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), at.Port()).String()
	}
	return Info{
		Job: cfg.Name, Address: address, Token: hex.EncodeToString(token), PID: os.Getpid(), Host: host,
		Started: cfg.Now().UTC(),
	}
}

// Address is where the server listens.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Retire takes control.json away and listens no more, so that the next process finds both free. It
// comes before the checkpoints are given up (C3); who is connected stays so.
func (s *Server) Retire() error {
	err := s.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	if s.cfg.Dir != "" {
		err = errors.Join(err, s.info.remove(s.cfg.Dir))
	}
	return err
}

// Ended tells whoever waits for it how the job ended: once the checkpoints have been given up, so that
// the next process can be started. The first call counts.
func (s *Server) Ended(o Outcome) {
	s.once.Do(func() {
		s.outcome = o
		close(s.ended)
	})
}

// lastAnswers is how long Close lets answers go out that are on their way.
const lastAnswers = 2 * time.Second

// Close retires the server and ends every goroutine and connection of it (C5).
func (s *Server) Close() error {
	err := s.Retire()
	s.cancel()
	ctx, cancel := context.WithTimeout(context.Background(), lastAnswers)
	defer cancel()
	if s.http.Shutdown(ctx) != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-s.served
	return err
}

// jobHeader says in each answer whose it is (C4).
const jobHeader = "Weir-Job"

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for path, h := range s.cfg.Open {
		mux.Handle("GET "+path, h)
	}
	mux.Handle("GET /debug/pprof/", local(profiles()))
	if s.cfg.Dir != "" {
		mux.Handle("GET /control/status", s.control(s.status))
		mux.Handle("POST /control/stop", s.control(s.stop))
		mux.Handle("POST /control/savepoint", s.control(s.savepoint))
		mux.Handle("DELETE /control/savepoint/{name}", s.control(s.deleteSavepoint))
		mux.Handle("/control/", s.control(func(w http.ResponseWriter, r *http.Request) {
			refuse(w, http.StatusNotFound, fmt.Errorf("%s %s is not something that a job can be asked", r.Method, r.URL.Path))
		}))
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set(jobHeader, s.cfg.Name)
		mux.ServeHTTP(w, r)
	})
}

// knownHost keeps a web page, whose name somebody has pointed at this machine, from reading along: a
// browser sends the name, and whoever else asks sends an address.
func knownHost(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = hostport
	}
	_, err = netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil || host == "localhost"
}

// local serves peers on this machine alone (C1, C2).
func local(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !knownHost(r.Host) {
			refuse(w, http.StatusForbidden, fmt.Errorf("host %q: ask for this machine by its address", r.Host))
			return
		}
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !peer.Addr().Unmap().IsLoopback() {
			refuse(w, http.StatusForbidden, errors.New("this is answered on the job's own machine alone"))
			return
		}
		h.ServeHTTP(w, r)
	})
}

// control serves local peers that know the token (C1).
func (s *Server) control(h http.HandlerFunc) http.Handler {
	return local(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if !ok || subtle.ConstantTimeCompare([]byte(token), []byte(s.info.Token)) != 1 {
			refuse(w, http.StatusUnauthorized, fmt.Errorf("the token in %s is wanted", FileName))
			return
		}
		h(w, r)
	}))
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, s.cfg.Job.Status())
}

type stopRequest struct {
	Drain bool `json:"drain"`
	Wait  bool `json:"wait"`
}

func (s *Server) stop(w http.ResponseWriter, r *http.Request) {
	var req stopRequest
	if !read(w, r, &req) {
		return
	}
	s.cfg.Logger.Info("asked to stop", slog.Bool("drain", req.Drain))
	s.cfg.Job.Stop(req.Drain)
	if !req.Wait {
		answer(w, http.StatusAccepted, req)
		return
	}
	select {
	case <-s.ended:
	case <-r.Context().Done():
	}
	select {
	case <-s.ended: // it comes before what ends the context
		answer(w, http.StatusOK, s.outcome)
	default:
	}
}

type savepointRequest struct {
	Name string `json:"name"`
}

func (s *Server) savepoint(w http.ResponseWriter, r *http.Request) {
	var req savepointRequest
	if !read(w, r, &req) {
		return
	}
	if req.Name == "" {
		refuse(w, http.StatusBadRequest, errors.New("a savepoint needs a name"))
		return
	}
	taken, err := s.cfg.Job.Savepoint(r.Context(), req.Name)
	if err != nil {
		refuse(w, http.StatusConflict, err)
		return
	}
	answer(w, http.StatusOK, taken)
}

func (s *Server) deleteSavepoint(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	if err := s.cfg.Job.DeleteSavepoint(r.Context(), name); err != nil {
		refuse(w, http.StatusConflict, err)
		return
	}
	answer(w, http.StatusOK, Savepoint{Name: name})
}

// longestRequest bounds what is read of a request, in bytes.
const longestRequest = 64 << 10

// read decodes a request, or answers what is wrong with it.
func read(w http.ResponseWriter, r *http.Request, into any) bool {
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, longestRequest))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("%s: %w", r.URL.Path, err))
		return false
	}
	return true
}

// failure is the answer to a request that could not be met.
type failure struct {
	Error string `json:"error"`
}

func refuse(w http.ResponseWriter, code int, err error) { answer(w, code, failure{err.Error()}) }

func answer(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // the peer may be gone
}
