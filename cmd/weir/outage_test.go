package main

import (
	"net"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"example.com/weir/internal/kafkatest"
	"example.com/weir/internal/status"
)

// road is what leads to brokers: while it is closed, connections are refused, and those that were there are
// cut.
type road struct {
	mu        sync.Mutex
	listeners []*gate
	conns     []net.Conn
	opened    chan struct{} // closed while the road is open
}

// gate is a listener at the end of the road. To the broker it is open all the time.
type gate struct {
	road *road
	addr net.Addr
	now  net.Listener // nil while the road is closed
	done chan struct{}
	once sync.Once
}

func newRoad() *road {
	r := &road{opened: make(chan struct{})}
	close(r.opened)
	return r
}

func (r *road) listen(network, address string) (net.Listener, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, err
	}
	g := &gate{road: r, addr: l.Addr(), now: l, done: make(chan struct{})}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.listeners = append(r.listeners, g)
	return g, nil
}

func (r *road) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened = make(chan struct{})
	for _, g := range r.listeners {
		_ = g.now.Close()
		g.now = nil
	}
	for _, c := range r.conns {
		_ = c.Close()
	}
	r.conns = nil
}

func (r *road) open(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, g := range r.listeners {
		l, err := net.Listen(g.addr.Network(), g.addr.String())
		require.NoError(t, err)
		g.now = l
	}
	close(r.opened)
}

// Accept waits while the road is closed.
func (g *gate) Accept() (net.Conn, error) {
	for {
		g.road.mu.Lock()
		l, opened := g.now, g.road.opened
		g.road.mu.Unlock()
		if l != nil {
			if c, err := l.Accept(); err == nil {
				g.road.mu.Lock()
				g.road.conns = append(g.road.conns, c)
				g.road.mu.Unlock()
				return c, nil
			}
		}
		select {
		case <-g.done:
			return nil, net.ErrClosed
		default:
		}
		if l == nil {
			select {
			case <-opened:
			case <-g.done:
			}
		}
	}
}

func (g *gate) Addr() net.Addr { return g.addr }

func (g *gate) Close() error {
	g.once.Do(func() { close(g.done) })
	g.road.mu.Lock()
	defer g.road.mu.Unlock()
	if g.now != nil {
		return g.now.Close()
	}
	return nil
}

// The brokers cannot be reached: first while nothing is to be written, and later while a transaction is open. The
// job waits in the first case and restarts in the second, each time later than before; the log says in a few
// lines what cannot be reached; the bill is exact when they are back.
func TestBrokersThatCannotBeReachedAreWaitedFor(t *testing.T) {
	r := newRoad()
	b := kafkatest.NewFake(t, kfake.ListenFn(r.listen))
	l := newLife(t, build(t), b)
	l.append(t, 1000)
	p := l.start(t, 2, "--checkpoint-interval", "200ms", "--checkpoint-timeout", "4s")
	l.caughtUp(t)
	r.close()
	p.await(t, `level=WARN msg="kafka source: a partition cannot be read at the moment, and holds event time back" `+
		`.*operator=gateway-events .*split=\S+ offset=\d+ .*127\.0\.0\.1:\d+.*connection refused`)
	require.NotContains(t, p.text(), "generation failed")
	for {
		r.open(t)
		l.append(t, 60_000)
		l.until(t, func(s *status.Status) bool { return len(s.Transactions) > 0 })
		r.close()
		if p.saysWithin(15*time.Second, `msg="generation failed"`) {
			break
		}
		// What was open was committed by the time that the brokers were gone: the job has nothing to fail over.
	}
	require.Regexp(t, `level=INFO msg="kafka source: the partition is read again" .*operator=gateway-events .*split=\S+ offset=\d+`, p.text())
	p.await(t, `(?s)(msg="generation failed".*){4}`)
	text := p.text()
	r.open(t)

	require.Regexp(t, `msg="generation failed" .*error=".*(sink-tenant-cost|timed out).* restart_in=`, text)
	require.Regexp(t, `msg="generation failed" .*error="restore: sink sink-tenant-cost: .*127\.0\.0\.1:\d+.*connection refused`, text)
	var last time.Duration
	for _, m := range regexp.MustCompile(`restart_in=(\S+)`).FindAllStringSubmatch(text, -1) {
		in, err := time.ParseDuration(m[1])
		require.NoError(t, err)
		require.Greater(t, in, last)
		last = in
	}
	lines := 0
	for _, line := range strings.Split(text, "\n") {
		if !strings.Contains(line, "checkpoint completed") && !strings.Contains(line, "records without") {
			lines++
		}
	}
	require.Less(t, lines, 60, "%s", text)
	l.drain(t, p)
}
