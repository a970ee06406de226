package socket_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"example.com/weir/connector"
	"example.com/weir/connector/connectortest"
	"example.com/weir/connectors/socket"
)

const patience = 30 * time.Second

// server is what the source connects to.
type server struct {
	t        *testing.T
	listener net.Listener
	conn     net.Conn
}

func listen(t *testing.T) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { l.Close() })
	return &server{t: t, listener: l}
}

func (s *server) accept() {
	s.t.Helper()
	conn, err := s.listener.Accept()
	require.NoError(s.t, err)
	s.conn = conn
	s.t.Cleanup(func() { conn.Close() })
}

// accepting accepts beside the test.
func (s *server) accepting() <-chan struct{} {
	done := make(chan struct{})
	go func() { defer close(done); s.accept() }()
	return done
}

func (s *server) send(text string) {
	s.t.Helper()
	_, err := s.conn.Write([]byte(text))
	require.NoError(s.t, err)
}

func (s *server) config() socket.Config {
	return socket.Config{Address: s.listener.Addr().String(), MaxLine: 100}
}

type stream struct {
	t        *testing.T
	reader   connector.Reader[string]
	batch    connector.Batch[string]
	rows     []string
	rejected []string
}

func open(t *testing.T, cfg socket.Config) *stream {
	t.Helper()
	src := socket.Lines(cfg, connectortest.Decode)
	require.False(t, src.Replayable())
	splits, err := src.Discover(t.Context())
	require.NoError(t, err)
	require.Len(t, splits, 1)
	r, err := src.Reader(t.Context(), connector.ReaderContext[string]{
		Admit: func(_ *string, at int64) (int64, error) { return at, nil },
	}, splits)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Close()) })
	return &stream{t: t, reader: r}
}

func (s *stream) until(done func() bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for !done() {
		require.NoError(s.t, s.reader.Read(ctx, &s.batch))
		s.take()
	}
}

func (s *stream) take() {
	s.rows = append(s.rows, s.batch.Rows...)
	for _, d := range s.batch.Rejected {
		s.rejected = append(s.rejected, fmt.Sprintf("%d %s: %s", d.Offset, d.Value, d.Reason))
	}
}

func (s *stream) has(rows, rejected int) func() bool {
	return func() bool { return len(s.rows) >= rows && len(s.rejected) >= rejected }
}

func TestEachLineIsARowOrRejected(t *testing.T) {
	server := listen(t)
	s := open(t, server.config())
	go func() {
		server.accept()
		for _, piece := range []string{"a\nbad", " one\r\nb\r\n", "\n" + strings.Repeat("x", 250), "y\nc\n"} {
			server.send(piece)
		}
	}()
	s.until(s.has(4, 2))
	require.Equal(t, []string{"a", "b", "", "c"}, s.rows)
	require.Equal(t, []string{
		"1 bad one: a bad value",
		"4 " + strings.Repeat("x", 100) + ": a line of 251 bytes, above the limit of 100: this is its beginning",
	}, s.rejected)
}

func TestALostConnectionIsMadeAgainAndHalfALineIsADeadLetter(t *testing.T) {
	server := listen(t)
	s := open(t, server.config())
	go func() {
		server.accept()
		server.send("a\nhalf")
		server.conn.Close()
		server.accept()
		server.send("b\n")
	}()
	s.until(s.has(2, 1))
	require.Equal(t, []string{"a", "b"}, s.rows)
	require.Equal(t, []string{"1 half: the connection ended within this line"}, s.rejected)
}

// Who may have sent something that has not been received is not caught up.
func TestTheSourceIsCaughtUpOnlyWhileItIsConnectedAndNothingComes(t *testing.T) {
	server := listen(t)
	s := open(t, server.config())
	accepted := server.accepting()
	s.until(func() bool { return s.batch.CaughtUp })
	<-accepted
	server.send("a\n")
	s.until(s.has(1, 0))
	require.False(t, s.batch.CaughtUp)
	s.until(func() bool { return s.batch.CaughtUp })
	server.listener.Close()
	server.conn.Close()
	s.until(func() bool { return !s.batch.CaughtUp })
}

func TestAReadThatIsCancelledLosesNothing(t *testing.T) {
	server := listen(t)
	s := open(t, server.config())
	var want []string
	for i := range 2000 {
		want = append(want, fmt.Sprint(i))
	}
	accepted := server.accepting()
	s.until(func() bool { return s.batch.CaughtUp }) // it is connected
	<-accepted
	go func() {
		for piece := range slices.Chunk(want, 7) {
			server.send(strings.Join(piece, "\n") + "\n")
		}
	}()
	deadline := time.Now().Add(patience)
	for try := 0; len(s.rows) < len(want); try++ {
		require.True(t, time.Now().Before(deadline))
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(try%20)*100*time.Microsecond)
		if err := s.reader.Read(ctx, &s.batch); err == nil {
			s.take()
		} else {
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		cancel()
	}
	require.Equal(t, want, s.rows)
}

func TestCloseLeavesNothingBehind(t *testing.T) {
	server := listen(t)
	before := goleak.IgnoreCurrent()
	s := open(t, server.config())
	done := make(chan struct{})
	go func() { server.accept(); server.send("a\n"); close(done) }()
	s.until(s.has(1, 0))
	<-done
	require.NoError(t, s.reader.Close())
	goleak.VerifyNone(t, before)
	require.Error(t, s.reader.Read(t.Context(), &s.batch))
}

func TestAReaderWithoutTheSplitWaits(t *testing.T) {
	src := socket.Lines(socket.Config{Address: "127.0.0.1:1"}, connectortest.Decode)
	r, err := src.Reader(t.Context(), connector.ReaderContext[string]{}, nil)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, r.Read(ctx, new(connector.Batch[string])), context.Canceled)
}

func TestAnImpossibleConfigurationStopsTheJob(t *testing.T) {
	for want, cfg := range map[string]socket.Config{
		"address: ":           {},
		"a limit is negative": {Address: "a:1", MaxLine: -1},
	} {
		_, err := socket.Lines(cfg, connectortest.Decode).Discover(t.Context())
		require.ErrorContains(t, err, want)
		require.True(t, connector.IsStop(err))
	}
}
