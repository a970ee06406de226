package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"example.com/weir/connector"
	"example.com/weir/connectors/kafka/txn"
)

// startCheck holds what a sink with transactions needs against what the cluster shows, before a restore ends or
// writes anything: what would go wrong days later, in the midst of a commit, is said now. It only asks (K9).
//
// A refusal is marked by connector.Stop. What this client has no right to ask is logged as not checked, and is no
// refusal.
type startCheck struct {
	cfg    SinkConfig
	rc     connector.RestoreContext
	admin  *admin
	logger *slog.Logger
}

// checkStart runs every check. The order is that of what can be asked: a topic that may not be described shows no
// configuration.
func checkStart(ctx context.Context, cfg SinkConfig, adm *admin, rc connector.RestoreContext) error {
	c := &startCheck{cfg: cfg, rc: rc, admin: adm, logger: rc.Logger}
	if c.logger == nil {
		c.logger = slog.New(slog.DiscardHandler)
	}
	for _, check := range []func(context.Context) error{
		c.checkTimeouts, c.checkTopicRights, c.checkTransactionRights, c.checkCleanup, c.checkRepair, c.checkPrefix,
	} {
		if err := check(ctx); err != nil {
			return err
		}
	}
	return nil
}

// notChecked says once a start what could not be asked, and what follows from that.
func (c *startCheck) notChecked(what string, err error) {
	c.logger.Info("not checked at the start: "+what, "topic", c.cfg.Topic, "because", err)
}

// window is how long after it was written a record may still be needed as the proof of its transaction, in the
// ordinary course: as long as the transaction may be open, a checkpoint may take and a restart may wait. After a
// longer outage it is needed for longer.
func (c *startCheck) window() time.Duration {
	return c.cfg.TransactionTimeout + c.rc.CheckpointTimeout + c.rc.RestartBudget
}

// patiently asks again for as long as patience lasts where the answer is a refusal: a topic or a right that was made
// a moment ago may not be known to every broker yet. The same goes for answers that brokers give for a moment.
func (c *startCheck) patiently(ctx context.Context, ask func(context.Context) error) error {
	since := time.Now()
	for try := 0; ; try++ {
		err := ask(ctx)
		if !connector.IsStop(err) && !kerr.IsRetriable(err) || time.Since(since) > c.cfg.grace {
			return err
		}
		if txn.Pause(ctx, wallClock{}, try) != nil {
			return err
		}
	}
}

// checkTimeouts holds the transaction timeout against what the job may take and what the brokers allow.
func (c *startCheck) checkTimeouts(ctx context.Context) error {
	timeout := c.cfg.TransactionTimeout
	if need := c.rc.CheckpointTimeout + c.rc.RestartBudget; timeout < need {
		return connector.Stop(fmt.Errorf("transaction timeout %s is below checkpoint timeout %s plus restart "+
			"budget %s: a transaction would be aborted before its commit; raise the one or lower the others",
			timeout, c.rc.CheckpointTimeout, c.rc.RestartBudget))
	}
	broker, err := c.anyBroker(ctx)
	if err != nil {
		return err
	}
	const key = "transaction.max.timeout.ms"
	configs, err := c.configs(ctx, kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(broker)), key)
	if err != nil && !unauthorized(err) {
		return err
	}
	limit, err := milliseconds(configs, key, err)
	if err != nil {
		c.notChecked("the transaction timeout "+timeout.String()+" against the brokers' "+key+": if it is above, the "+
			"first transaction stops the job", err)
		return nil
	}
	if timeout > limit {
		return timeoutTooLong(timeout, limit)
	}
	return nil
}

// anyBroker returns the number of a broker that lives.
func (c *startCheck) anyBroker(ctx context.Context) (int32, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := req.RequestWith(ctx, c.admin.cl)
	if err == nil && len(resp.Brokers) == 0 {
		err = errors.New("an empty answer")
	}
	if err != nil {
		return 0, fmt.Errorf("list the brokers: %w", err)
	}
	return resp.Brokers[0].NodeID, nil
}

// configs asks for the configuration of a broker or a topic as it is in effect. Values that are secret, or that the
// broker does not know, are left out.
func (c *startCheck) configs(
	ctx context.Context, kind kmsg.ConfigResourceType, name string, keys ...string,
) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	req := kmsg.NewPtrDescribeConfigsRequest()
	rr := kmsg.NewDescribeConfigsRequestResource()
	rr.ResourceType, rr.ResourceName, rr.ConfigNames = kind, name, keys
	req.Resources = append(req.Resources, rr)
	kresp, err := c.admin.cl.Request(ctx, req)
	if err != nil {
		return nil, fmt.Errorf("configuration of %s: %w", name, err)
	}
	values := map[string]string{}
	for i := range kresp.(*kmsg.DescribeConfigsResponse).Resources {
		r := &kresp.(*kmsg.DescribeConfigsResponse).Resources[i]
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			return nil, fmt.Errorf("configuration of %s: %w", name, err)
		}
		for j := range r.Configs {
			if v := r.Configs[j].Value; v != nil {
				values[r.Configs[j].Name] = *v
			}
		}
	}
	return values, nil
}

// milliseconds reads a duration of a configuration. err is that of asking for it.
func milliseconds(configs map[string]string, key string, err error) (time.Duration, error) {
	n, err := number(configs, key, err)
	if err != nil {
		return 0, err
	}
	if n > int64(forever/time.Millisecond) {
		return forever, nil
	}
	return time.Duration(n) * time.Millisecond, nil
}

// forever is longer than whatever is held against it.
const forever = time.Duration(1<<63 - 1)

func number(configs map[string]string, key string, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	v, ok := configs[key]
	if !ok {
		return 0, fmt.Errorf("the brokers do not say what %s is", key)
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s is %q: %w", key, v, err)
	}
	return n, nil
}

// unauthorized reports whether an error says that a right is missing.
func unauthorized(err error) bool {
	return errors.Is(err, kerr.TopicAuthorizationFailed) || errors.Is(err, kerr.ClusterAuthorizationFailed) ||
		errors.Is(err, kerr.TransactionalIDAuthorizationFailed)
}

func timeoutTooLong(timeout, limit time.Duration) error {
	above := "the brokers' transaction.max.timeout.ms"
	if limit > 0 {
		above += " (" + limit.String() + ")"
	}
	return connector.Stop(fmt.Errorf("transaction timeout %s is above %s: lower the one or raise the other",
		timeout, above))
}

// list joins words as a sentence does.
func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
