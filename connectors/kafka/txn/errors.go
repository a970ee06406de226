package txn

import (
	"errors"
	"fmt"
	"strings"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
)

// ErrNoRight reports that this client may not write control records: that takes the right
// CLUSTER_ACTION on the cluster.
var ErrNoRight = errors.New("no right to write transaction markers")

// ErrNoTopic reports that no broker knows the topic.
var ErrNoTopic = errors.New("does not exist")

// NoTopic is the error of a topic that no broker knows.
func NoTopic(topic string) error {
	return fmt.Errorf("topic %s %w: create it with the partitions and retention that it shall have", topic, ErrNoTopic)
}

// ErrNotSettled reports that a slot was to be freed whose transaction is not settled.
var ErrNotSettled = errors.New("released before it was settled")

// stopError says what was lost, or what cannot be known, and what to do.
func stopError(id connector.CommittableID, h *settle.Handle, o *settle.Observation, v settle.Verdict) error {
	head := fmt.Sprintf("sink %s, subtask %d, checkpoint %d: %s", id.Sink, id.Subtask, id.Checkpoint, h.Describe())
	switch v.Kind {
	case settle.Aborted:
		return fmt.Errorf("%s: lost: %s. Somebody else ended the transaction (a timeout, or another producer with "+
			"its transactional ID) after its checkpoint was completed. No reader of committed records sees "+
			"these records, and they are not written again: that is the policy \"fail\"", head, v.Reason)
	case settle.Unmarked:
		return fmt.Errorf("%s: unmarked: %s. Readers of committed records wait in %s until a %s marker for "+
			"producer %d is written there (the request WriteTxnMarkers, by an administrator); no other one, and "+
			"nothing may use the transactional ID before. Then start the job again",
			head, v.Reason, undecided(h, o), v.Missing, h.ProducerID)
	case settle.Unknown, settle.Wait, settle.Open, settle.Committed:
	}
	return fmt.Errorf("%s: unknown: %s. Whether readers see these records has to be found out by reading the "+
		"topic; nothing was ended and nothing written again", head, v.Reason)
}

// undecided names the partitions that show no end.
func undecided(h *settle.Handle, o *settle.Observation) string {
	var names []string
	for i := range h.Parts {
		if s := &o.Parts[i]; s.Stable <= h.Parts[i].First && s.Marker == settle.NoMarker {
			names = append(names, fmt.Sprintf("%s/%d", h.Topic, h.Parts[i].Partition))
		}
	}
	return strings.Join(names, ", ")
}

// abortMarkerLost is the error of a transaction that was never named by a checkpoint, has ended at its
// coordinator, and is still open in the log. Whatever marker comes next from this producer would
// decide its records.
func abortMarkerLost(topic, id string, t *Open) error {
	return connector.Stop(fmt.Errorf("%s/%d: transaction %s (producer %d, epoch %d, from offset %d) has ended at "+
		"its coordinator and is still open in the log: its ABORT marker was lost, and readers of committed "+
		"records wait there. No checkpoint names it: write an ABORT marker (kafka-transactions.sh abort), then "+
		"start the job again", topic, t.Partition, id, t.ProducerID, t.Epoch, t.Start))
}

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}
