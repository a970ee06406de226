package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
)

// requestTimeout bounds one question to the cluster; the loops around it ask again.
const requestTimeout = 10 * time.Second

// transactionVersion2 is the level of the feature transaction.version from which EndTxn bumps the
// epoch (KIP-890).
const transactionVersion2 = 2

// admin asks the cluster about transactions and topics, and ends transactions from outside: it is the
// txn.Cluster of brokers. It holds no transactional ID of its own.
type admin struct {
	cfg SinkConfig
	cl  *kgo.Client

	mu     sync.Mutex
	endV4  *kgo.Client // sends EndTxn up to v4, made when first needed
	endTxn int16       // what endTxnVersion returned; 0 before
}

func newAdmin(cfg SinkConfig) (*admin, error) {
	cl, err := kgo.NewClient(append(cfg.allOptions(), kgo.RetryTimeout(requestTimeout))...)
	if err != nil {
		return nil, err
	}
	return &admin{cfg: cfg, cl: cl}, nil
}

func (a *admin) close() {
	a.cl.Close()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.endV4 != nil {
		a.endV4.Close()
	}
}

// Place asks for a topic, past every cache: a cached answer names a topic that has been deleted
// and made again by its old ID.
func (a *admin) Place(ctx context.Context, topic string) (txn.Place, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return txn.Place{}, fmt.Errorf("metadata of topic %s: %w", topic, err)
	}
	if resp.ClusterID == nil || len(resp.Topics) != 1 {
		return txn.Place{}, fmt.Errorf("metadata of topic %s: an incomplete answer", topic)
	}
	p := txn.Place{ClusterID: *resp.ClusterID}
	rt := &resp.Topics[0]
	if err := kerr.ErrorForCode(rt.ErrorCode); err != nil {
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			return p, nil
		}
		return txn.Place{}, fmt.Errorf("metadata of topic %s: %w", topic, err)
	}
	p.TopicID = rt.TopicID
	p.Leaders = make([]int32, len(rt.Partitions))
	for i := range rt.Partitions {
		rp := &rt.Partitions[i]
		if int(rp.Partition) >= len(p.Leaders) {
			return txn.Place{}, fmt.Errorf("metadata of topic %s: partition %d of %d", topic, rp.Partition, len(p.Leaders))
		}
		p.Leaders[rp.Partition] = rp.Leader
	}
	return p, nil
}

// transactionVersion returns the level of the cluster's feature transaction.version.
func (a *admin) transactionVersion(ctx context.Context) (int16, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "weir", "1"
	resp, err := req.RequestWith(ctx, a.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return 0, fmt.Errorf("features of the cluster: %w", err)
	}
	for i := range resp.FinalizedFeatures {
		if f := &resp.FinalizedFeatures[i]; f.Name == "transaction.version" {
			return f.MaxVersionLevel, nil
		}
	}
	return 0, nil
}

// endTxnVersion is the version that ends the transactions of this generation: 5 where the cluster bumps
// the epoch with it, 4 where it does not.
func (a *admin) endTxnVersion(ctx context.Context) (int16, error) {
	a.mu.Lock()
	known := a.endTxn
	a.mu.Unlock()
	if known != 0 {
		return known, nil
	}
	level, err := a.transactionVersion(ctx)
	if err != nil {
		return 0, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.endTxn == 0 { // whoever asked first decides, should the feature be raised right now
		a.endTxn = 4
		if level >= transactionVersion2 {
			a.endTxn = 5
		}
	}
	return a.endTxn, nil
}

// List lists what the coordinators hold for exactly this prefix, in every lineage.
func (a *admin) List(ctx context.Context, prefix string) ([]txn.Listed, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := kmsg.NewPtrListTransactionsRequest()
	req.TransactionalIDPattern = kmsg.StringPtr(settle.Pattern(prefix)) // ignored below v2
	var all []txn.Listed
	for _, shard := range a.cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, fmt.Errorf("list transactions: %w", shard.Err)
		}
		resp := shard.Resp.(*kmsg.ListTransactionsResponse)
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return nil, fmt.Errorf("list transactions: broker %d: %w", shard.Meta.NodeID, err)
		}
		for i := range resp.TransactionStates {
			s := &resp.TransactionStates[i]
			if id, ok := settle.ParseID(s.TransactionalID); ok && id.Prefix == prefix {
				all = append(all, txn.Listed{ID: id, State: settle.ParseState(s.TransactionState), ProducerID: s.ProducerID})
			}
		}
	}
	return all, nil
}

// Describe asks the coordinator of a transactional ID.
func (a *admin) Describe(ctx context.Context, txnID string) (settle.Coordinator, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{txnID}
	resp, err := req.RequestWith(ctx, a.cl)
	if err != nil {
		return settle.Coordinator{}, fmt.Errorf("describe transaction %s: %w", txnID, err)
	}
	if len(resp.TransactionStates) != 1 {
		return settle.Coordinator{}, fmt.Errorf("describe transaction %s: an incomplete answer", txnID)
	}
	s := &resp.TransactionStates[0]
	switch err := kerr.ErrorForCode(s.ErrorCode); {
	case errors.Is(err, kerr.TransactionalIDNotFound):
		return settle.Coordinator{State: settle.NoHistory, ProducerID: -1, Epoch: -1}, nil
	case err != nil:
		return settle.Coordinator{}, fmt.Errorf("describe transaction %s: %w", txnID, err)
	}
	return settle.Coordinator{
		State: settle.ParseState(s.State), ProducerID: s.ProducerID, Epoch: s.ProducerEpoch,
	}, nil
}

// Fence sends one InitProducerID for the ID, which aborts whatever is open under it. It does not
// wait for the end of that: the coordinator says when.
func (a *admin) Fence(ctx context.Context, txnID string, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = &txnID
	req.TransactionTimeoutMillis = int32(timeout.Milliseconds())
	req.ProducerID, req.ProducerEpoch = -1, -1
	resp, err := req.RequestWith(ctx, a.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil && !errors.Is(err, kerr.ConcurrentTransactions) {
		return fmt.Errorf("end the open transaction %s: %w", txnID, err)
	}
	return nil
}

// Commit sends one EndTxn(commit) for a transaction that this process need not have written, in
// the version that its handle names: another version answers something else.
func (a *admin) Commit(ctx context.Context, h *settle.Handle) settle.Answer {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	cl, err := a.ender(h.EndTxnVersion)
	if err != nil {
		return settle.NoAnswer
	}
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID = h.TransactionalID
	req.ProducerID, req.ProducerEpoch = h.ProducerID, h.Epoch
	req.Commit = true
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return settle.NoAnswer
	}
	return settle.Answer(resp.ErrorCode)
}

// ender returns a client that sends EndTxn in the wanted version: v5 and later bump the epoch, up
// to v4 do not.
func (a *admin) ender(version int16) (*kgo.Client, error) {
	if version >= 5 {
		return a.cl, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.endV4 == nil {
		cl, err := kgo.NewClient(append(a.cfg.allOptions(),
			kgo.RetryTimeout(requestTimeout), kgo.MaxVersions(transactionVersion1Requests()))...)
		if err != nil {
			return nil, err
		}
		a.endV4 = cl
	}
	return a.endV4, nil
}

// transactionVersion1Requests caps the requests that a cluster with transaction.version 1 takes
// for KIP-890's: the client then uses none of it, even if the feature is raised meanwhile.
func transactionVersion1Requests() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.Produce), 11)
	v.SetMaxKeyVersion(int16(kmsg.EndTxn), 4)
	v.SetMaxKeyVersion(int16(kmsg.TxnOffsetCommit), 4)
	return v
}

// Open returns the open transactions in the given partitions of a topic. Every partition
// answers, or it is an error.
func (a *admin) Open(ctx context.Context, topic string, partitions []int32) ([]txn.Open, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	producers, err := a.producers(ctx, topic, partitions)
	if err != nil {
		return nil, err
	}
	var open []txn.Open
	for i := range producers {
		if p := &producers[i]; p.CurrentTxnStartOffset >= 0 {
			open = append(open, txn.Open{
				Partition: p.partition, ProducerID: p.ProducerID, Epoch: p.ProducerEpoch, Start: p.CurrentTxnStartOffset,
			})
		}
	}
	return open, nil
}

// producerSeen is a producer as the leader of a partition knows it.
type producerSeen struct {
	partition int32
	kmsg.DescribeProducersResponseTopicPartitionActiveProducer
}

func (a *admin) producers(ctx context.Context, topic string, partitions []int32) ([]producerSeen, error) {
	req := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = topic, partitions
	req.Topics = append(req.Topics, rt)
	answered := 0
	var seen []producerSeen
	for _, shard := range a.cl.RequestSharded(ctx, req) {
		if shard.Err != nil {
			return nil, fmt.Errorf("describe the producers of %s: %w", topic, shard.Err)
		}
		for _, rt := range shard.Resp.(*kmsg.DescribeProducersResponse).Topics {
			for i := range rt.Partitions {
				p := &rt.Partitions[i]
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return nil, fmt.Errorf("describe the producers of %s/%d: %w", topic, p.Partition, err)
				}
				answered++
				for _, active := range p.ActiveProducers {
					seen = append(seen, producerSeen{p.Partition, active})
				}
			}
		}
	}
	if answered != len(partitions) {
		return nil, fmt.Errorf("describe the producers of %s: %d of %d partitions answered",
			topic, answered, len(partitions))
	}
	return seen, nil
}

// LeaderEpochs returns the leader epoch of each partition by what its leader says: metadata can
// be older than the records just written, and would make them look truncated.
func (a *admin) LeaderEpochs(ctx context.Context, topic string) (map[int32]int32, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	ends, err := kadm.NewClient(a.cl).ListEndOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, fmt.Errorf("end offsets of %s: %w", topic, err)
	}
	epochs := make(map[int32]int32)
	ends.Each(func(o kadm.ListedOffset) { epochs[o.Partition] = o.LeaderEpoch })
	return epochs, nil
}
