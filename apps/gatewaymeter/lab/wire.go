package lab

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire is the network between the job and the brokers: a relay for each broker, on loopback, that can break as
// a commit goes out. The broker never sees that commit, and nobody gets through until the wire is mended.
//
// What brokers answer about where they are is changed to where their relays are; all else goes through as it is.
type wire struct {
	wg   sync.WaitGroup
	held chan heldCommit // of one

	mu     sync.Mutex
	relays map[string]net.Listener // by the broker's address
	conns  map[net.Conn]struct{}
	armed  bool
	down   bool
	closed bool
}

// heldCommit is a commit that did not get through.
type heldCommit struct {
	At            time.Time
	TransactionID string
	ProducerID    int64
}

// openWire returns a wire to the brokers at the given addresses, and the addresses at which it reaches them.
func openWire(brokers []string) (*wire, []string, error) {
	w := &wire{held: make(chan heldCommit, 1), relays: map[string]net.Listener{}, conns: map[net.Conn]struct{}{}}
	var addresses []string
	for _, b := range brokers {
		address, err := w.relay(b)
		if err != nil {
			w.close()
			return nil, nil, err
		}
		addresses = append(addresses, address)
	}
	return w, addresses, nil
}

// breakAtCommit lets the wire break as the next commit goes out, which is then in held.
func (w *wire) breakAtCommit() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.armed = true
}

// mend lets new connections through.
func (w *wire) mend() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.down = false
}

func (w *wire) close() {
	w.mu.Lock()
	w.closed = true
	for _, l := range w.relays {
		_ = l.Close()
	}
	w.cut()
	w.mu.Unlock()
	w.wg.Wait()
}

// cut ends every connection. The lock is the caller's.
func (w *wire) cut() {
	for c := range w.conns {
		_ = c.Close()
	}
}

// relay returns the address that stands for a broker's.
func (w *wire) relay(broker string) (string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if l, ok := w.relays[broker]; ok {
		return l.Addr().String(), nil
	}
	if w.closed {
		return "", net.ErrClosed
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	w.relays[broker] = l
	w.wg.Go(func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			w.wg.Go(func() { w.carry(client, broker) })
		}
	})
	return l.Addr().String(), nil
}

// keep notes connections, to be cut, and reports whether they may go on.
func (w *wire) keep(conns ...net.Conn) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		w.conns[c] = struct{}{}
	}
	return !w.down && !w.closed
}

func (w *wire) forget(conns ...net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
		delete(w.conns, c)
	}
}

// carry carries one connection of the job.
func (w *wire) carry(client net.Conn, address string) {
	broker, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		_ = client.Close()
		return
	}
	defer w.forget(client, broker)
	if !w.keep(client, broker) {
		return
	}
	asked := &questions{waiting: map[uint32]kmsg.Response{}}
	w.wg.Go(func() {
		defer client.Close()
		defer broker.Close()
		for {
			frame, err := readFrame(broker)
			if err == nil {
				frame, err = w.answer(asked, frame)
			}
			if err != nil || writeFrame(client, frame) != nil {
				return
			}
		}
	})
	for {
		frame, err := readFrame(client)
		if err != nil || w.breaks(frame) {
			return
		}
		asked.add(frame)
		if writeFrame(broker, frame) != nil {
			return
		}
	}
}

// breaks breaks the wire if it is to break and a request is a commit.
func (w *wire) breaks(frame []byte) bool {
	req, ok := endTxn(frame)
	if !ok || !req.Commit {
		return false
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.armed {
		return false
	}
	w.armed, w.down = false, true
	w.held <- heldCommit{At: time.Now(), TransactionID: req.TransactionalID, ProducerID: req.ProducerID}
	w.cut()
	return true
}

// endTxn reads a request if it is one that ends a transaction: behind the header, which is key, version, correlation
// ID, client ID and, where the version is flexible, tags, of which clients send none.
func endTxn(frame []byte) (*kmsg.EndTxnRequest, bool) {
	if len(frame) < 10 || binary.BigEndian.Uint16(frame) != uint16(kmsg.EndTxn) {
		return nil, false
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.Version = int16(binary.BigEndian.Uint16(frame[2:]))
	body := 10 + max(0, int(int16(binary.BigEndian.Uint16(frame[8:]))))
	if req.IsFlexible() {
		body++
	}
	if body > len(frame) || req.ReadFrom(frame[body:]) != nil {
		return nil, false
	}
	return req, true
}

// questions are the requests of a connection whose answers say where brokers are.
type questions struct {
	mu      sync.Mutex
	waiting map[uint32]kmsg.Response // by correlation ID
}

func (q *questions) add(frame []byte) {
	if len(frame) < 8 {
		return
	}
	var resp kmsg.Response
	switch kmsg.Key(binary.BigEndian.Uint16(frame)) {
	case kmsg.Metadata:
		resp = kmsg.NewPtrMetadataResponse()
	case kmsg.FindCoordinator:
		resp = kmsg.NewPtrFindCoordinatorResponse()
	case kmsg.DescribeCluster:
		resp = kmsg.NewPtrDescribeClusterResponse()
	default:
		return
	}
	resp.SetVersion(int16(binary.BigEndian.Uint16(frame[2:])))
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting[binary.BigEndian.Uint32(frame[4:])] = resp
}

func (q *questions) take(correlation uint32) kmsg.Response {
	q.mu.Lock()
	defer q.mu.Unlock()
	resp := q.waiting[correlation]
	delete(q.waiting, correlation)
	return resp
}

// answer puts relays in the place of brokers in an answer.
func (w *wire) answer(asked *questions, frame []byte) ([]byte, error) {
	if len(frame) < 5 {
		return nil, errors.New("an answer without a header")
	}
	resp := asked.take(binary.BigEndian.Uint32(frame))
	if resp == nil {
		return frame, nil
	}
	body := 4
	if resp.IsFlexible() {
		body++ // tags, of which brokers send none
	}
	if err := resp.ReadFrom(frame[body:]); err != nil {
		return nil, err
	}
	var err error
	switch resp := resp.(type) {
	case *kmsg.MetadataResponse:
		for i := range resp.Brokers {
			err = errors.Join(err, w.stand(&resp.Brokers[i].Host, &resp.Brokers[i].Port))
		}
	case *kmsg.FindCoordinatorResponse:
		err = w.stand(&resp.Host, &resp.Port)
		for i := range resp.Coordinators {
			err = errors.Join(err, w.stand(&resp.Coordinators[i].Host, &resp.Coordinators[i].Port))
		}
	case *kmsg.DescribeClusterResponse:
		for i := range resp.Brokers {
			err = errors.Join(err, w.stand(&resp.Brokers[i].Host, &resp.Brokers[i].Port))
		}
	}
	return resp.AppendTo(frame[:body:body]), err
}

// stand puts the relay of a broker in its place.
func (w *wire) stand(host *string, port *int32) error {
	if *host == "" || *port <= 0 {
		return nil // an error stands there
	}
	relay, err := w.relay(net.JoinHostPort(*host, strconv.Itoa(int(*port))))
	if err != nil {
		return err
	}
	name, number, err := net.SplitHostPort(relay)
	if err != nil {
		return err
	}
	n, err := strconv.ParseInt(number, 10, 32)
	*host, *port = name, int32(n)
	return err
}

// readFrame reads what stands behind its own length.
func readFrame(from io.Reader) ([]byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(from, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n > 1<<28 {
		return nil, errors.New("longer than any frame of Kafka's")
	}
	frame := make([]byte, n)
	_, err := io.ReadFull(from, frame)
	return frame, err
}

func writeFrame(to io.Writer, frame []byte) error {
	_, err := to.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	return err
}
