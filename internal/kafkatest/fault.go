package kafkatest

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Action is what a proxy does to a request.
type Action int

// The actions.
const (
	// Delay hands the request on after Fault.By, and holds up what comes behind it on the connection.
	Delay Action = iota + 1
	// CutBefore cuts the connection. The node never sees the request.
	CutBefore
	// CutAfter hands the request on and cuts the connection at once: the node may not be done when the client asks
	// again.
	CutAfter
	// DropRequest loses the request, and whatever follows it on the connection, without a sign: the client has
	// to give up waiting.
	DropRequest
	// DropResponse hands the request on, waits for the answer, keeps that to itself and cuts the connection.
	DropResponse
	// Answer answers with the error Fault.Code in the node's place, which never sees the request.
	Answer
)

// String returns the name that reports use.
func (a Action) String() string {
	return [...]string{
		"nothing", "delay", "cut before", "cut after", "dropped request", "dropped response", "error",
	}[a]
}

// Fault is something done to chosen requests.
type Fault struct {
	Key kmsg.Key
	Do  Action

	// Nth is the first request that is hit, counted from the injection. Default 1.
	Nth int
	// Times is how many requests are hit at most, one after the other. Default 1; -1 is all that come.
	Times int
	// Match says which requests count. Default: all of the kind.
	Match func(kmsg.Request) bool

	By   time.Duration // for Delay
	Code int16         // for Answer

	// Then is called at each hit, from the connection's goroutine and before the client can tell: for CutAfter once
	// the request has been handed on, for DropResponse once the answer has come.
	Then func()
}

// Injected is a fault that a proxy has been given.
type Injected struct {
	Fault
	hits atomic.Int64
	gone chan struct{}
	once sync.Once

	// Guarded by the proxy.
	seen    int
	stopped bool
}

// Inject lets a fault happen from now on. The test fails if it ends and the fault was never hit.
func (p *Proxy) Inject(t *testing.T, f Fault) *Injected {
	t.Helper()
	f.Nth, f.Times = max(f.Nth, 1), orOne(f.Times)
	in := &Injected{Fault: f, gone: make(chan struct{})}
	p.mu.Lock()
	p.faults = append(p.faults, in)
	p.mu.Unlock()
	t.Cleanup(func() {
		assert.Positive(t, in.Hits(), "%s: %s was not hit", f.Key.Name(), f.Do)
	})
	return in
}

func orOne(n int) int {
	if n == 0 {
		return 1
	}
	return n
}

// Hits returns how often the fault has done what it does.
func (f *Injected) Hits() int { return int(f.hits.Load()) }

// Hit is closed once the fault has been hit for the first time.
func (f *Injected) Hit() <-chan struct{} { return f.gone }

// Stop lets the fault happen no more.
func (p *Proxy) Stop(f *Injected) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.stopped = true
}

// giveBack lets the next request meet a fault that one has met and that has not come to be.
func (p *Proxy) giveBack(f *Injected) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f.Times >= 0 {
		f.Times++
	}
}

// strike counts a hit.
func (f *Injected) strike() {
	f.hits.Add(1)
	if f.Then != nil {
		f.Then()
	}
	f.once.Do(func() { close(f.gone) })
}

// hit counts a request and returns the fault that it meets, or nil. decode is called only where a fault asks.
func (p *Proxy) hit(key kmsg.Key, decode func() kmsg.Request) *Injected {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen[key]++
	for _, f := range p.faults {
		if f.Key != key || f.Times == 0 || f.stopped {
			continue
		}
		if f.Match != nil {
			if req := decode(); req == nil || !f.Match(req) {
				continue
			}
		}
		if f.seen++; f.seen < f.Nth {
			continue
		}
		if f.Times > 0 {
			f.Times--
		}
		return f
	}
	return nil
}

// errorAnswer makes an answer that says nothing but an error, as a node does: wherever the answer has room for one.
func errorAnswer(req kmsg.Request, code int16) kmsg.Response {
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	switch req := req.(type) {
	case *kmsg.ProduceRequest:
		refuseProduce(req, resp.(*kmsg.ProduceResponse), code)
	case *kmsg.FetchRequest:
		refuseFetch(req, resp.(*kmsg.FetchResponse), code)
	case *kmsg.AddPartitionsToTxnRequest:
		refuseAddPartitions(req, resp.(*kmsg.AddPartitionsToTxnResponse), code)
	case *kmsg.WriteTxnMarkersRequest:
		refuseMarkers(req, resp.(*kmsg.WriteTxnMarkersResponse), code)
	case *kmsg.FindCoordinatorRequest:
		resp := resp.(*kmsg.FindCoordinatorResponse)
		resp.ErrorCode, resp.NodeID, resp.Port = code, -1, -1
		for _, key := range req.CoordinatorKeys {
			c := kmsg.NewFindCoordinatorResponseCoordinator()
			c.Key, c.ErrorCode, c.NodeID, c.Port = key, code, -1, -1
			resp.Coordinators = append(resp.Coordinators, c)
		}
	case *kmsg.InitProducerIDRequest:
		resp := resp.(*kmsg.InitProducerIDResponse)
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = code, -1, -1
	case *kmsg.EndTxnRequest:
		resp := resp.(*kmsg.EndTxnResponse)
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = code, -1, -1
	default:
		panic("kafkatest: no answer with an error is known for " + kmsg.NameForKey(resp.Key()))
	}
	return resp
}

func refuseProduce(req *kmsg.ProduceRequest, resp *kmsg.ProduceResponse, code int16) {
	for _, rt := range req.Topics {
		t := kmsg.NewProduceResponseTopic()
		t.Topic, t.TopicID = rt.Topic, rt.TopicID
		for _, rp := range rt.Partitions {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition, p.ErrorCode, p.BaseOffset, p.LogAppendTime = rp.Partition, code, -1, -1
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
}

func refuseFetch(req *kmsg.FetchRequest, resp *kmsg.FetchResponse, code int16) {
	for _, rt := range req.Topics {
		t := kmsg.NewFetchResponseTopic()
		t.Topic, t.TopicID = rt.Topic, rt.TopicID
		for _, rp := range rt.Partitions {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.ErrorCode, p.HighWatermark, p.LastStableOffset, p.LogStartOffset = rp.Partition, code, -1, -1, -1
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
}

func refuseAddPartitions(req *kmsg.AddPartitionsToTxnRequest, resp *kmsg.AddPartitionsToTxnResponse, code int16) {
	resp.ErrorCode = code
	for _, rt := range req.Topics {
		t := kmsg.NewAddPartitionsToTxnResponseTopic()
		t.Topic = rt.Topic
		for _, n := range rt.Partitions {
			p := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			p.Partition, p.ErrorCode = n, code
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
}

func refuseMarkers(req *kmsg.WriteTxnMarkersRequest, resp *kmsg.WriteTxnMarkersResponse, code int16) {
	for _, rm := range req.Markers {
		m := kmsg.NewWriteTxnMarkersResponseMarker()
		m.ProducerID = rm.ProducerID
		for _, rt := range rm.Topics {
			t := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			t.Topic = rt.Topic
			for _, n := range rt.Partitions {
				p := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				p.Partition, p.ErrorCode = n, code
				t.Partitions = append(t.Partitions, p)
			}
			m.Topics = append(m.Topics, t)
		}
		resp.Markers = append(resp.Markers, m)
	}
}
