package kafka

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
)

// Configuration of a topic that decides for how long its log proves a commit.
const (
	cleanupPolicy  = "cleanup.policy"
	retentionTime  = "retention.ms"
	retentionBytes = "retention.bytes"
	compactionLag  = "min.compaction.lag.ms"
)

// checkCleanup stops the job if the brokers may remove a record before its commit is proved by it: what is
// not there proves nothing, and the job would stop in the midst of a commit.
func (c *startCheck) checkCleanup(ctx context.Context) error {
	configs, err := c.configs(ctx, kmsg.ConfigResourceTypeTopic, c.cfg.Topic,
		cleanupPolicy, retentionTime, retentionBytes, compactionLag)
	if unauthorized(err) {
		c.notChecked("compaction and retention of the topic (DESCRIBE_CONFIGS on it): should either remove a record "+
			"within "+c.window().String()+", a commit cannot be proved, and the job stops", err)
		return nil
	}
	if err != nil {
		return err
	}
	keeps := cleanupOf(configs)
	if err := keeps.refusal(c.cfg.Topic, c.window(), c.cfg.AcceptCompaction); err != nil {
		return connector.Stop(err)
	}
	if keeps.compacts(c.window()) {
		c.logger.Warn("the topic is compacted, as accepted: a commit whose record has been compacted away cannot be "+
			"proved, and stops the job", "topic", c.cfg.Topic, compactionLag, keeps.lag)
	}
	if keeps.deleted && keeps.bytes >= 0 {
		c.logger.Warn("the topic is limited by size: where more is written to a partition before a commit is proved, the "+
			"proof is deleted, and the job stops", "topic", c.cfg.Topic, retentionBytes, keeps.bytes, "within", c.window())
	}
	return nil
}

// cleanup is what removes records from a topic's log.
type cleanup struct {
	compacted bool
	lag       time.Duration // before a record may be compacted away
	deleted   bool
	retention time.Duration // before it may be deleted
	bytes     int64         // of a partition, above which it may be deleted; negative: any number
}

// cleanupOf reads the configuration of a topic. What the brokers leave out has Kafka's default.
func cleanupOf(configs map[string]string) cleanup {
	policies := strings.Split(configs[cleanupPolicy], ",")
	for i := range policies {
		policies[i] = strings.TrimSpace(policies[i])
	}
	k := cleanup{
		compacted: slices.Contains(policies, "compact"), deleted: slices.Contains(policies, "delete"),
		retention: forever, bytes: -1,
	}
	if d, err := milliseconds(configs, compactionLag, nil); err == nil {
		k.lag = d
	}
	if d, err := milliseconds(configs, retentionTime, nil); err == nil && d >= 0 {
		k.retention = d
	}
	if n, err := number(configs, retentionBytes, nil); err == nil {
		k.bytes = n
	}
	return k
}

// compacts reports whether compaction may remove a record within the window.
func (k *cleanup) compacts(window time.Duration) bool { return k.compacted && k.lag < window }

// refusal says why the topic does not keep records for the window.
func (k *cleanup) refusal(topic string, window time.Duration, acceptCompaction bool) error {
	switch {
	case k.compacts(window) && !acceptCompaction:
		return fmt.Errorf("topic %s is compacted (%s) and may lose a record %s after it was written, but the record "+
			"proves its commit for %s (transaction timeout, checkpoint timeout and restart budget). Set %s=%d on "+
			"the topic (kafka-configs.sh --alter): what is older is compacted as before. Or accept that a commit "+
			"which cannot be proved stops the job (AcceptCompaction; --accept-compaction of weir run)", topic, cleanupPolicy,
			k.lag, window, compactionLag, window.Milliseconds())
	case k.deleted && k.retention < window:
		return fmt.Errorf("topic %s deletes records %s after they were written (%s), but they prove their commit for "+
			"%s (transaction timeout, checkpoint timeout and restart budget): raise %s to %d at least, and above the "+
			"longest outage that the job shall survive; or lower the others", topic, k.retention, retentionTime, window,
			retentionTime, window.Milliseconds())
	}
	return nil
}
