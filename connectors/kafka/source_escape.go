package kafka

import (
	"fmt"
	"regexp"
	"slices"
)

// escapes are what the user has accepted by name. Each names one loss exactly as the error that
// stopped the job did: where it was, or what the topic has become. It lets the job go on from there
// once, for that place or that topic lies behind it then; another loss stops the job again.
type escapes struct {
	losses      []string // topic/partition@offset
	truncations []string // topic/partition@offset:leader epoch
	recreated   []string // topic@topic ID
}

func lossName(split string, pos Position) string { return fmt.Sprintf("%s@%d", split, pos.Next) }

func truncationName(split string, pos Position) string {
	return fmt.Sprintf("%s@%d:%d", split, pos.Next, pos.LeaderEpoch)
}

func recreationName(topic string, id [16]byte) string { return topic + "@" + hexID(id) }

func (e *escapes) acceptsLoss(split string, pos Position) bool {
	return slices.Contains(e.losses, lossName(split, pos))
}

func (e *escapes) acceptsTruncation(split string, pos Position) bool {
	return slices.Contains(e.truncations, truncationName(split, pos))
}

func (e *escapes) acceptsRecreation(topic string, id [16]byte) bool {
	return slices.Contains(e.recreated, recreationName(topic, id))
}

// check refuses what no error can have named: it would be ignored in silence.
func (e *escapes) check() error {
	for _, c := range []struct {
		field string
		names []string
		want  string
		form  *regexp.Regexp
	}{
		{"AcceptLoss", e.losses, "topic/partition@offset", regexp.MustCompile(`^.+/\d+@\d+$`)},
		{
			"AcceptTruncation", e.truncations, "topic/partition@offset:epoch",
			regexp.MustCompile(`^.+/\d+@\d+:(-1|\d+)$`),
		},
		{"AcceptRecreated", e.recreated, "topic@topic ID", regexp.MustCompile(`^.+@[0-9a-f]{32}$`)},
	} {
		for _, name := range c.names {
			if !c.form.MatchString(name) {
				return fmt.Errorf("%s: %q: want %s, as the error that stopped the job names it", c.field, name, c.want)
			}
		}
	}
	return nil
}
