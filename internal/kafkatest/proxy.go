package kafkatest

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Proxy is a relay in front of the nodes of a broker, on loopback. It reads every request and every answer, puts
// itself in the place of the nodes where an answer names their addresses, so that clients stay with it, and does
// to chosen requests what networks and dying brokers do: see Fault. Everything else goes through untouched.
//
// A test whose fault was not hit fails.
type Proxy struct {
	t  *testing.T
	wg sync.WaitGroup

	mu     sync.Mutex
	relays map[string]*relay // by the address of the node behind it
	order  []string          // those addresses, in the order in which they became known
	lines  map[*line]struct{}
	faults []*Injected
	seen   map[kmsg.Key]int
	cut    bool
	closed bool
}

// relay is what stands for a node.
type relay struct {
	address  string
	listener net.Listener // nil in an outage
}

// NewProxy starts a proxy in front of a broker, which ends with the test.
func NewProxy(t *testing.T, b *Broker) *Proxy {
	t.Helper()
	p := &Proxy{t: t, relays: map[string]*relay{}, lines: map[*line]struct{}{}, seen: map[kmsg.Key]int{}}
	for _, address := range b.Brokers {
		_, err := p.standIn(address)
		require.NoError(t, err)
	}
	t.Cleanup(p.close)
	return p
}

// Brokers returns the bootstrap addresses of the proxy.
func (p *Proxy) Brokers() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]string, len(p.order))
	for i, address := range p.order {
		all[i] = p.relays[address].address
	}
	return all
}

// Seen returns how many requests of a kind have come, those included that a fault kept from the broker.
func (p *Proxy) Seen(key kmsg.Key) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[key]
}

// Cut is an outage: it cuts every connection, and refuses new ones until Mend.
func (p *Proxy) Cut() {
	p.mu.Lock()
	p.cut = true
	for _, r := range p.relays {
		r.close()
	}
	lines := p.live()
	p.mu.Unlock()
	for _, l := range lines {
		l.close()
	}
}

// Mend ends an outage.
func (p *Proxy) Mend() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut = false
	for node, r := range p.relays {
		l, err := net.Listen("tcp", r.address)
		if err != nil {
			p.t.Errorf("kafkatest: listen again: %v", err)
			return
		}
		p.serve(l, r, node)
	}
}

// live returns the connections. The lock is the caller's.
func (p *Proxy) live() []*line {
	lines := make([]*line, 0, len(p.lines))
	for l := range p.lines {
		lines = append(lines, l)
	}
	return lines
}

func (p *Proxy) close() {
	p.mu.Lock()
	p.closed = true
	for _, r := range p.relays {
		r.close()
	}
	lines := p.live()
	p.mu.Unlock()
	for _, l := range lines {
		l.close()
	}
	p.wg.Wait()
}

// standIn returns the address that stands for a node's, and listens there from the first time on.
func (p *Proxy) standIn(node string) (string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r, ok := p.relays[node]; ok {
		return r.address, nil
	}
	if p.closed || p.cut {
		return "", net.ErrClosed
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	r := &relay{address: l.Addr().String()}
	p.relays[node] = r
	p.order = append(p.order, node)
	p.serve(l, r, node)
	return r.address, nil
}

// serve carries the connections that a listener accepts, until it is closed.
func (p *Proxy) serve(l net.Listener, r *relay, node string) {
	r.listener = l
	p.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.carry(c, node) })
		}
	})
}

func (r *relay) close() {
	if r.listener != nil {
		_ = r.listener.Close()
		r.listener = nil
	}
}

// line is one connection of a client and the one to the node that serves it.
type line struct {
	proxy          *Proxy
	client, broker net.Conn
	gone           chan struct{} // closed with the client's connection
	once           sync.Once
	ended          chan struct{} // closed when no more answers come

	mu      sync.Mutex // guards what follows, and keeps answers whole
	pending map[int32]*request
}

// request is what is known of a request until its answer has come.
type request struct {
	key     kmsg.Key
	version int16
	fault   *Injected // a fault that waits for the answer
	cut     bool      // the client has been cut off: an answer is not for it
}

func (p *Proxy) carry(client net.Conn, node string) {
	defer client.Close()
	broker, err := net.Dial("tcp", node)
	if err != nil {
		return // the node is away: the client's connection ends at once
	}
	l := &line{
		proxy: p, client: client, broker: broker, gone: make(chan struct{}), ended: make(chan struct{}),
		pending: map[int32]*request{},
	}
	defer l.close()
	p.mu.Lock()
	refused := p.cut || p.closed
	if !refused {
		p.lines[l] = struct{}{}
	}
	p.mu.Unlock()
	if refused {
		return
	}
	p.wg.Go(l.answers)
	l.requests()
	p.mu.Lock()
	delete(p.lines, l)
	p.mu.Unlock()
}

// close cuts both connections.
func (l *line) close() {
	l.hangUp()
	_ = l.broker.Close()
}

// hangUp cuts the client's connection.
func (l *line) hangUp() {
	l.once.Do(func() { close(l.gone) })
	_ = l.client.Close()
}

// requests hands the client's requests to the node until one of the connections ends.
func (l *line) requests() {
	for {
		frame, err := readFrame(l.client)
		if err != nil {
			return
		}
		if !l.request(frame) {
			return
		}
	}
}

// request hands on one request, or does what a fault says. It reports whether the connection goes on.
func (l *line) request(frame []byte) bool {
	if len(frame) < 8 {
		return false
	}
	key, version := kmsg.Key(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
	correlation := int32(binary.BigEndian.Uint32(frame[4:]))
	f := l.proxy.hit(key, func() kmsg.Request { return decodeRequest(key, version, frame) })
	if f == nil {
		return l.forward(frame, correlation, &request{key: key, version: version})
	}
	switch f.Do {
	case CutBefore:
		f.strike()
		return false
	case DropRequest:
		f.strike()
		l.silence()
		return false
	case Answer:
		f.strike()
		return l.answer(correlation, errorAnswer(decodeRequest(key, version, frame), f.Code))
	case Delay:
		if !l.wait(f.By) {
			l.proxy.giveBack(f)
			return false
		}
		f.strike()
		return l.forward(frame, correlation, &request{key: key, version: version})
	case CutAfter:
		if !l.forward(frame, correlation, &request{key: key, version: version, cut: true}) {
			l.proxy.giveBack(f)
			return false
		}
		f.strike()
		l.hangUp()
		l.awaitNode()
		return false
	case DropResponse:
		return l.forward(frame, correlation, &request{key: key, version: version, fault: f})
	}
	l.proxy.t.Errorf("kafkatest: a fault that does nothing: %+v", f.Fault)
	return false
}

// forward sends a request to the node.
func (l *line) forward(frame []byte, correlation int32, r *request) bool {
	l.mu.Lock()
	l.pending[correlation] = r
	l.mu.Unlock()
	return writeFrame(l.broker, frame) == nil
}

// silence reads on and answers nothing, until the client gives the connection up.
func (l *line) silence() { _, _ = io.Copy(io.Discard, l.client) }

// wait waits, and reports false if the client's connection ends first.
func (l *line) wait(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-l.gone:
		return false
	}
}

// awaitNode leaves the node the time to read what it was sent, until it answers: a connection that is reset can take
// it back.
func (l *line) awaitNode() {
	timer := time.NewTimer(5 * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-l.ended:
	}
}

// answer answers a request in the node's place.
func (l *line) answer(correlation int32, resp kmsg.Response) bool {
	frame := binary.BigEndian.AppendUint32(nil, uint32(correlation))
	if flexibleHeader(resp) {
		frame = append(frame, 0)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return writeFrame(l.client, resp.AppendTo(frame)) == nil
}

// answers hands the node's answers to the client until one of the connections ends.
func (l *line) answers() {
	defer close(l.ended)
	defer l.close()
	defer l.giveBack()
	for {
		frame, err := readFrame(l.broker)
		if err != nil || len(frame) < 4 {
			return
		}
		correlation := int32(binary.BigEndian.Uint32(frame))
		l.mu.Lock()
		r := l.pending[correlation]
		delete(l.pending, correlation)
		l.mu.Unlock()
		if r == nil {
			l.proxy.t.Errorf("kafkatest: an answer that nobody waits for")
			return
		}
		if r.fault != nil {
			r.fault.strike()
			return
		}
		if r.cut {
			return
		}
		if frame, err = l.proxy.rename(r, frame); err != nil {
			if !errors.Is(err, net.ErrClosed) {
				l.proxy.t.Errorf("kafkatest: answer to %s: %v", r.key.Name(), err)
			}
			return
		}
		l.mu.Lock()
		err = writeFrame(l.client, frame)
		l.mu.Unlock()
		if err != nil {
			return
		}
	}
}

// giveBack gives faults that waited for an answer to the next requests: the client was gone before the answer.
func (l *line) giveBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range l.pending {
		if r.fault != nil {
			l.proxy.giveBack(r.fault)
		}
	}
}

// rename puts the proxy's addresses in the place of the nodes' in an answer.
func (p *Proxy) rename(r *request, frame []byte) ([]byte, error) {
	if !slices.Contains([]kmsg.Key{
		kmsg.Metadata, kmsg.FindCoordinator, kmsg.DescribeCluster, kmsg.Produce, kmsg.Fetch,
	}, r.key) {
		return frame, nil
	}
	resp := r.key.Response()
	resp.SetVersion(r.version)
	head := frame[:4:4]
	if flexibleHeader(resp) {
		head = frame[:5:5] // no tag is defined in the header of an answer
	}
	if len(frame) < len(head) || len(head) == 5 && head[4] != 0 {
		return nil, errors.New("a header with tags")
	}
	if err := resp.ReadFrom(frame[len(head):]); err != nil {
		return nil, err
	}
	changed := false
	err := eachAddress(resp, func(host *string, port *int32) error {
		if *host == "" || *port <= 0 {
			return nil // an error stands in its place
		}
		address, err := p.standIn(net.JoinHostPort(*host, strconv.Itoa(int(*port))))
		if err != nil {
			return err
		}
		name, number, err := net.SplitHostPort(address)
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(number, 10, 32)
		*host, *port, changed = name, int32(n), true
		return err
	})
	if err != nil || !changed {
		return frame, err
	}
	return resp.AppendTo(head), nil
}

// eachAddress calls f with each address of a node in an answer.
func eachAddress(resp kmsg.Response, f func(host *string, port *int32) error) error {
	var errs []error
	switch resp := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range resp.Brokers {
			errs = append(errs, f(&resp.Brokers[i].Host, &resp.Brokers[i].Port))
		}
	case *kmsg.FindCoordinatorResponse:
		errs = append(errs, f(&resp.Host, &resp.Port))
		for i := range resp.Coordinators {
			errs = append(errs, f(&resp.Coordinators[i].Host, &resp.Coordinators[i].Port))
		}
	case *kmsg.DescribeClusterResponse:
		for i := range resp.Brokers {
			errs = append(errs, f(&resp.Brokers[i].Host, &resp.Brokers[i].Port))
		}
	case *kmsg.ProduceResponse:
		for i := range resp.Brokers {
			errs = append(errs, f(&resp.Brokers[i].Host, &resp.Brokers[i].Port))
		}
	case *kmsg.FetchResponse:
		for i := range resp.Brokers {
			errs = append(errs, f(&resp.Brokers[i].Host, &resp.Brokers[i].Port))
		}
	}
	return errors.Join(errs...)
}

// flexibleHeader reports whether an answer's header has room for tags. That of ApiVersions never has: it is read
// before versions are known.
func flexibleHeader(resp kmsg.Response) bool {
	return resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions)
}

// decodeRequest reads a request past its header: key, version, correlation ID, client ID and, where the version is
// flexible, tags. It is nil for what cannot be read.
func decodeRequest(key kmsg.Key, version int16, frame []byte) kmsg.Request {
	req := key.Request()
	if req == nil || len(frame) < 10 {
		return nil
	}
	req.SetVersion(version)
	at := 10
	if n := int16(binary.BigEndian.Uint16(frame[8:])); n > 0 {
		at += int(n)
	}
	if req.IsFlexible() {
		at++ // clients send no tags there
	}
	if at > len(frame) || req.ReadFrom(frame[at:]) != nil {
		return nil
	}
	return req
}

// readFrame reads what stands behind its own length.
func readFrame(from io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	n := int32(binary.BigEndian.Uint32(size[:]))
	if n < 0 || n > 256<<20 {
		return nil, errors.New("not a frame of Kafka's")
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(from, frame)
	return frame, err
}

func writeFrame(to io.Writer, frame []byte) error {
	_, err := to.Write(append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(frame)), uint32(len(frame))), frame...))
	return err
}
