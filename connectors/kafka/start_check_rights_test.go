package kafka

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
	"example.com/weir/internal/kafkatest"
)

// Rights are granted one after the other, as the errors ask for them, until the job starts, writes and commits. Then
// come those that it can do without.
func TestEveryMissingRightIsNamedAtTheStart(t *testing.T) {
	kafkatest.RunAuthorizer(t, func(t *testing.T, a *kafkatest.Authorizer) {
		j := newTestJob(t, a.Broker)
		password := filepath.Join(t.TempDir(), "password")
		require.NoError(t, os.WriteFile(password, []byte(a.Password), 0o600))
		j.cfg.Config = Config{Brokers: []string{a.Address}}
		j.cfg.Security.TLS.CAFile = a.CAFile
		j.cfg.Security.SASL = SASL{Mechanism: "plain", Username: a.User, PasswordFile: password}
		j.cfg.grace = time.Millisecond
		topic := func(ops ...kadm.ACLOperation) *kadm.ACLBuilder {
			return kadm.NewACLs().Topics(j.cfg.Topic).Operations(ops...)
		}
		ids := func(ops ...kadm.ACLOperation) *kadm.ACLBuilder {
			return kadm.NewACLs().TransactionalIDs(j.cfg.TransactionalIDPrefix + "-").
				ResourcePatternType(kadm.ACLPatternPrefixed).Operations(ops...)
		}
		// A source says the same of what it lacks: in its topic, and in the group that it begins at.
		source := SourceConfig{Config: j.cfg.Config, Topic: j.cfg.Topic, TopicWait: time.Millisecond}
		discover := func() error {
			_, err := Source(source, func(*Record, *string) error { return nil }).Discover(t.Context())
			return err
		}
		requireNamed(t, discover(), "no right to READ topic "+j.cfg.Topic,
			"kafka-acls.sh --add --allow-principal User:weir --operation READ --topic "+j.cfg.Topic)
		onIDs := "the transactional IDs " + j.cfg.TransactionalIDPrefix + "-…"
		for _, step := range []struct {
			missing string
			grant   *kadm.ACLBuilder
		}{
			{"no right to DESCRIBE topic " + j.cfg.Topic, topic(kadm.OpDescribe)},
			{"no right to WRITE and READ topic " + j.cfg.Topic, topic(kadm.OpWrite)},
			{"no right to READ topic " + j.cfg.Topic, topic(kadm.OpRead)},
			{"no right to DESCRIBE and WRITE " + onIDs, ids(kadm.OpDescribe)},
			{"no right to WRITE " + onIDs, ids(kadm.OpWrite)},
		} {
			var err error
			require.Eventually(t, func() bool { // a right is in effect a moment after it was granted
				err = j.refused(t, j.restoreContext())
				return strings.Contains(err.Error(), step.missing)
			}, 10*time.Second, 10*time.Millisecond, "%v", err)
			requireNamed(t, err, "User:weir", "kafka-acls.sh --add --allow-principal User:weir --operation ")
			a.Grant(t, step.grant)
		}
		require.Eventually(t, func() bool { return j.sink(t).Restore(t.Context(), j.restoreContext()) == nil },
			10*time.Second, 10*time.Millisecond)
		require.NoError(t, discover())
		source.Start = FromGroup("strangers", OrEarliest)
		requireNamed(t, discover(), "no right to READ consumer group strangers", "--operation READ --group strangers")

		log := j.logged(t, j.restoreContext())
		for _, name := range []string{
			"transaction.max.timeout.ms", "compaction and retention", "DESCRIBE_CONFIGS", "no right is known to write transaction markers",
		} {
			require.Contains(t, log, name)
		}
		require.NotContains(t, log, "level=WARN")

		w := j.writer(t, j.sink(t), 0)
		write(t, w, "a1")
		c := prepare(t, w, 1)
		require.NoError(t, w.Commit(t.Context(), c))
		write(t, w, "b1")
		require.NoError(t, w.Flush(t.Context(), false))
		j.restore(t, c) // asks, commits and ends

		adm, err := newAdmin(j.cfg.withDefaults(nil))
		require.NoError(t, err)
		defer adm.close()
		repair := func() error { // a marker that is there already
			h := handleOf(t, c)
			return adm.WriteMarker(t.Context(), txn.MarkerOrder{
				Topic: h.Topic, Partition: h.Parts[0].Partition, ProducerID: h.ProducerID, Epoch: h.Epoch + 1, Marker: settle.Commit,
			})
		}
		require.ErrorIs(t, repair(), txn.ErrNoRight, "it can be repaired without the right that is said to be missing")
		mark := kadm.OpAlter
		if a.Kind == kafkatest.Fake {
			mark = kadm.OpClusterAction // kfake knows no other right to it
		}
		for _, optional := range []*kadm.ACLBuilder{
			topic(kadm.OpDescribeConfigs),
			kadm.NewACLs().Clusters().Operations(kadm.OpDescribe, kadm.OpDescribeConfigs, mark),
		} {
			a.Grant(t, optional)
		}
		require.Eventually(t, func() bool { return j.logged(t, j.restoreContext(c)) == "" }, 10*time.Second, 50*time.Millisecond)
		require.NoError(t, repair())
	})
}

func TestOperationsAreKnownOnlyWhereTheBrokersToldThem(t *testing.T) {
	describe := operations(1 << kmsg.ACLOperationDescribe)
	require.True(t, describe.told())
	require.False(t, describe.may(kmsg.ACLOperationWrite))
	require.True(t, (describe | 1<<kmsg.ACLOperationWrite).may(kmsg.ACLOperationWrite))
	require.False(t, operations(-1<<31).told(), "not asked, or not known to the broker")
	require.False(t, operations(0).told())
}
