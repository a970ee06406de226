package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
)

// WriteMarker writes one control record behind the coordinator's back, as an operator would. Markers that the
// coordinator writes later are no older than it: it names the coordinator epoch that the partition
// knows already.
func (a *admin) WriteMarker(ctx context.Context, m txn.MarkerOrder) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	coordinatorEpoch, err := a.coordinatorEpoch(ctx, m)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	rm := kmsg.NewWriteTxnMarkersRequestMarker()
	rm.ProducerID, rm.ProducerEpoch, rm.Committed = m.ProducerID, m.Epoch, m.Marker == settle.Commit
	rm.CoordinatorEpoch = coordinatorEpoch
	rt := kmsg.NewWriteTxnMarkersRequestMarkerTopic()
	rt.Topic, rt.Partitions = m.Topic, []int32{m.Partition}
	rm.Topics = append(rm.Topics, rt)
	req.Markers = append(req.Markers, rm)
	for _, shard := range a.cl.RequestSharded(ctx, req) {
		err := shard.Err
		if err == nil {
			err = markerError(shard.Resp.(*kmsg.WriteTxnMarkersResponse))
		}
		if errors.Is(err, kerr.ClusterAuthorizationFailed) {
			err = txn.ErrNoRight
		}
		if err != nil {
			return fmt.Errorf("write a %s marker for producer %d, epoch %d to %s/%d: %w",
				m.Marker, m.ProducerID, m.Epoch, m.Topic, m.Partition, err)
		}
	}
	return nil
}

func markerError(resp *kmsg.WriteTxnMarkersResponse) error {
	for i := range resp.Markers {
		for j := range resp.Markers[i].Topics {
			for _, p := range resp.Markers[i].Topics[j].Partitions {
				if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// coordinatorEpoch asks the partition for the coordinator epoch of the producer's last marker: an older one is
// refused.
func (a *admin) coordinatorEpoch(ctx context.Context, m txn.MarkerOrder) (int32, error) {
	producers, err := a.producers(ctx, m.Topic, []int32{m.Partition})
	if err != nil {
		return 0, err
	}
	for _, p := range producers {
		if p.ProducerID == m.ProducerID {
			return p.CoordinatorEpoch, nil
		}
	}
	return -1, nil
}
