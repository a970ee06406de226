package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/settle"
	"example.com/weir/connectors/kafka/txn"
)

// operations are what a client may do, as brokers tell it: a bit for each kmsg.ACLOperation.
type operations int32

func (o operations) may(op kmsg.ACLOperation) bool { return o&(1<<op) != 0 }

// told reports whether the brokers said it. What they answered proves that the client may describe: where that is
// missing, they leave the field out.
func (o operations) told() bool { return o >= 0 && o.may(kmsg.ACLOperationDescribe) }

// checkTopicRights stops the job if the topic is not there, or may not be described, written and read. Reading it is
// what settles a commit: the log is the proof.
func (c *startCheck) checkTopicRights(ctx context.Context) error {
	return c.patiently(ctx, func(ctx context.Context) error {
		allowed, err := c.topicOperations(ctx)
		switch {
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			return c.missingOnTopic([]string{"DESCRIBE"}, []string{"WRITE", "READ"}) // which include it; more is not told
		case errors.Is(err, txn.ErrNoTopic):
			return connector.Stop(err)
		case err != nil:
			return err
		case !allowed.told():
			c.notChecked("the rights on the topic: the first record, or the first commit, tells",
				errors.New("the brokers do not say"))
			return nil
		}
		var missing []string
		for _, op := range []kmsg.ACLOperation{kmsg.ACLOperationWrite, kmsg.ACLOperationRead} {
			if !allowed.may(op) {
				missing = append(missing, op.String())
			}
		}
		if len(missing) > 0 {
			return c.missingOnTopic(missing, missing)
		}
		return nil
	})
}

func (c *startCheck) missingOnTopic(missing, grant []string) error {
	return connector.Stop(fmt.Errorf("no right to %s topic %s: a sink with transactions describes the topic, writes "+
		"it, and reads what it wrote, since the log is what proves a commit. Grant %s %s (kafka-acls.sh --add%s%s "+
		"--topic %s)", list(missing), c.cfg.Topic, c.cfg.user(), list(grant), c.cfg.principal(), options(grant), c.cfg.Topic))
}

func (c *startCheck) topicOperations(ctx context.Context) (operations, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(c.cfg.Topic)
	req.Topics = append(req.Topics, t)
	req.IncludeTopicAuthorizedOperations = true
	resp, err := req.RequestWith(ctx, c.admin.cl)
	if err == nil && len(resp.Topics) != 1 {
		err = errors.New("an incomplete answer")
	}
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	switch {
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return 0, txn.NoTopic(c.cfg.Topic)
	case err != nil:
		return 0, fmt.Errorf("metadata of topic %s: %w", c.cfg.Topic, err)
	}
	return operations(resp.Topics[0].AuthorizedOperations), nil
}

// checkTransactionRights stops the job if the transactional IDs of the prefix may not be used. Brokers tell such
// rights for no ID. So the offsets of a group are put into a transaction that there cannot be: of a producer that
// there never is, under an ID that no subtask has. They look at the right on the ID first, and then find out.
func (c *startCheck) checkTransactionRights(ctx context.Context) error {
	id := settle.ID{Prefix: c.cfg.TransactionalIDPrefix, Lineage: c.rc.Lineage, Subtask: math.MaxInt32}
	return c.patiently(ctx, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.TransactionalID, req.Group = id.String(), id.String()
		req.ProducerID, req.ProducerEpoch = -1, -1
		resp, err := req.RequestWith(ctx, c.admin.cl)
		switch {
		case errors.Is(err, kerr.TransactionalIDAuthorizationFailed): // its coordinator was not told
			return c.missingOnIDs("DESCRIBE", "WRITE")
		case err != nil:
			return fmt.Errorf("rights on transactional IDs %s-…: %w", c.cfg.TransactionalIDPrefix, err)
		}
		switch err := kerr.ErrorForCode(resp.ErrorCode); {
		case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
			return c.missingOnIDs("WRITE")
		case kerr.IsRetriable(err):
			return fmt.Errorf("rights on transactional IDs %s-…: %w", c.cfg.TransactionalIDPrefix, err)
		}
		return nil
	})
}

func (c *startCheck) missingOnIDs(missing ...string) error {
	return connector.Stop(fmt.Errorf("no right to %s the transactional IDs %s-…: grant %s %s on all that begin so "+
		"(kafka-acls.sh --add%s%s --transactional-id %s- --resource-pattern-type prefixed)", list(missing),
		c.cfg.TransactionalIDPrefix, c.cfg.user(), list(missing), c.cfg.principal(), options(missing), c.cfg.TransactionalIDPrefix))
}

// checkRepair says what is lost without a right that is not needed otherwise.
func (c *startCheck) checkRepair(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := kmsg.NewPtrDescribeClusterRequest()
	req.IncludeClusterAuthorizedOperations = true
	resp, err := req.RequestWith(ctx, c.admin.cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		c.notChecked("the right to repair lost transaction markers", err)
		return nil
	}
	allowed := operations(resp.ClusterAuthorizedOperations)
	if !allowed.may(kmsg.ACLOperationClusterAction) && !allowed.may(kmsg.ACLOperationAlter) {
		c.logger.Info("no right is known to write transaction markers (CLUSTER_ACTION or ALTER on the cluster, and "+
			"DESCRIBE to know it): should the brokers lose one, the job stops and an administrator has to write it",
			"topic", c.cfg.Topic)
	}
	return nil
}

// options spells operations for kafka-acls.sh.
func options(ops []string) string {
	var b strings.Builder
	for _, op := range ops {
		b.WriteString(" --operation " + op)
	}
	return b.String()
}
