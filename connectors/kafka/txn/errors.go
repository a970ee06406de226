package txn

import (
	"errors"
	"fmt"
	"strings"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
)

// ErrNoRight reports that this client may not write control records: that takes the right CLUSTER_ACTION on the
// cluster, or ALTER on it where the brokers are Apache Kafka.
var ErrNoRight = errors.New("no right to write transaction markers")

// ErrNoTopic reports that no broker knows the topic.
var ErrNoTopic = errors.New("does not exist")

// NoTopic is the error of a topic that no broker knows.
func NoTopic(topic string) error {
	return fmt.Errorf("topic %s %w: create it with the partitions and retention that it shall have", topic, ErrNoTopic)
}

// ErrNotSettled reports that a slot was to be freed whose transaction is not settled.
var ErrNotSettled = errors.New("released before it was settled")

// stopError says what cannot be done or known, and what to do.
func stopError(of connector.Committable, h *settle.Handle, o *settle.Observation, v settle.Verdict) error {
	if v.Kind == settle.Unmarked {
		return fmt.Errorf("%s: unmarked: %s. Readers of committed records wait in %s until a %s marker for "+
			"producer %d, epoch %d is written there (the request WriteTxnMarkers), and this job's user may not: give it "+
			"the right CLUSTER_ACTION on the cluster (Apache Kafka takes ALTER too), or let an administrator write it; no other marker, and "+
			"nothing may use the transactional ID before. Then start the job again",
			head(of, h), v.Reason, names(h.Topic, undecided(h, o)), v.Missing, h.ProducerID, v.MarkerEpoch)
	}
	return fmt.Errorf("%s: unknown: %s. Whether readers see these records has to be found out by reading the "+
		"topic; nothing was ended and nothing written again", head(of, h), v.Reason)
}

// names names partitions as errors do.
func names(topic string, partitions []int32) string {
	all := make([]string, len(partitions))
	for i, p := range partitions {
		all[i] = fmt.Sprintf("%s/%d", topic, p)
	}
	return strings.Join(all, ", ")
}

// abortMarkerLost is the error of a transaction that was never named by a checkpoint, has ended at its
// coordinator, and is still open in the log. Whatever marker comes next from this producer would
// decide its records.
func abortMarkerLost(topic, id string, t *Open) error {
	return connector.Stop(fmt.Errorf("%s/%d: transaction %s (producer %d, epoch %d, from offset %d) has ended at "+
		"its coordinator and is still open in the log: its ABORT marker was lost, and readers of committed "+
		"records wait there. No checkpoint names it: write an ABORT marker (kafka-transactions.sh abort), or give "+
		"this job's user the right CLUSTER_ACTION on the cluster (Apache Kafka takes ALTER too); then start the job "+
		"again", topic, t.Partition, id, t.ProducerID, t.Epoch, t.Start))
}

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}
