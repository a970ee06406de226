package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// explain says which right a source lacks, and how it is granted; and what else keeps a client from the cluster.
func (c *SourceConfig) explain(err error) error {
	switch {
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return say(err, "no right to READ topic %s: grant it to %s (kafka-acls.sh --add%s --operation READ --topic %s)",
			c.Topic, c.user(), c.principal(), c.Topic)
	case errors.Is(err, kerr.GroupAuthorizationFailed):
		return c.noRightToGroup(err, c.Start.group)
	}
	return c.Config.explain(err)
}

// noRightToGroup says how to get it. To see a group's offsets DESCRIBE would do; READ includes it.
func (c *SourceConfig) noRightToGroup(err error, group string) error {
	return say(err, "no right to READ consumer group %s: grant it to %s (kafka-acls.sh --add%s --operation READ --group %s)",
		group, c.user(), c.principal(), group)
}

// user names the client as rights do.
func (c *Config) user() string {
	if name := c.Security.SASL.Username; name != "" {
		return "User:" + name
	}
	return "the client's principal"
}

// principal is the option of kafka-acls.sh that names the client, where its name is known.
func (c *Config) principal() string {
	if name := c.Security.SASL.Username; name != "" {
		return " --allow-principal User:" + name
	}
	return ""
}
