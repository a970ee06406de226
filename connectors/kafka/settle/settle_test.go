package settle

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var tableAnswers = []Answer{AnswerNone, NotAsked, NoAnswer, 47, 48, 49, 51, 90}

func tableHandle() *Handle {
	return &Handle{
		ClusterID: "cluster", Topic: "t", TopicID: [16]byte{1}, TransactionalID: "p-0123456789abcdef-0-0",
		ProducerID: 7, Epoch: 5, EndTxnVersion: 5,
		Parts: []Part{
			{Partition: 0, First: 100, Last: 109, Records: 10},
			{Partition: 1, First: 100, Last: 109, Records: 10},
		},
	}
}

func TestEveryRowOfTheTable(t *testing.T) {
	f, err := os.Open("testdata/settle.txt")
	require.NoError(t, err)
	defer f.Close()
	rows := 0
	for sc := bufio.NewScanner(f); sc.Scan(); {
		line := strings.TrimSpace(sc.Text())
		if line == "" || line[0] == '#' || strings.HasPrefix(line, "case ") {
			continue
		}
		cols := strings.Split(line, "|")
		require.Len(t, cols, 7, line)
		for i := range cols {
			cols[i] = strings.TrimSpace(cols[i])
		}
		rows++
		t.Run(cols[0], func(t *testing.T) {
			h, a, o := readRow(t, cols)
			v := Settle(h, a, o)
			got := v.Kind.String()
			if v.Kind == Unmarked {
				got += " " + v.Missing.String()
			}
			require.Equal(t, cols[6], got, v.Reason)
			require.NotEmpty(t, v.Reason)
		})
	}
	require.Greater(t, rows, 50)
}

func readRow(t *testing.T, cols []string) (*Handle, Answer, *Observation) {
	h := tableHandle()
	_, err := fmt.Sscan(cols[1], &h.EndTxnVersion)
	require.NoError(t, err)
	o := &Observation{ClusterID: h.ClusterID, TopicID: h.TopicID}
	answer := NoAnswer
	for _, a := range tableAnswers {
		if a.String() == cols[2] {
			answer = a
		}
	}
	require.Equal(t, cols[2], answer.String(), "answer")
	for i, word := range strings.Fields(cols[3]) {
		switch {
		case i == 0 && word != "unreached":
			o.Coordinator.State = ParseState(word)
			require.Equal(t, word, o.Coordinator.State.String())
		case i == 0:
		case word == "late":
			o.Overdue = true
		case word == "cluster":
			o.ClusterID = "another"
		case word == "nobody":
			o.ClusterID = ""
		case word == "topic":
			o.TopicID = [16]byte{2}
		default:
			_, err := fmt.Sscanf(word, "%d:%d", &o.Coordinator.ProducerID, &o.Coordinator.Epoch)
			require.NoError(t, err, word)
		}
	}
	o.Parts = []PartSeen{readPart(t, cols[4]), readPart(t, cols[5])}
	return h, answer, o
}

func readPart(t *testing.T, text string) PartSeen {
	p := PartSeen{Answered: true, First: BatchOurs, OpenAt: StartUnknown}
	for _, token := range strings.Fields(text) {
		word, number, _ := strings.Cut(token, "@")
		var at int64
		if number != "" {
			_, err := fmt.Sscan(number, &at)
			require.NoError(t, err, token)
		}
		switch word {
		case "stable":
			p.Stable = 111
		case "held":
			p.Stable = 100
		case "aborted":
			p.Aborted = true
		case "inside":
			p.AbortedInside = true
		case "COMMIT":
			p.Marker, p.MarkerAt = Commit, at
		case "ABORT":
			p.Marker, p.MarkerAt = Abort, at
		case "open":
			p.OpenAt = at
		case "closed":
			p.OpenAt = -1
		case "start":
			p.LogStart = at
		case "gone":
			p.First = BatchGone
		case "foreign":
			p.First = BatchForeign
		case "truncated":
			p.Truncated = true
		case "silent":
			p = PartSeen{}
		default:
			t.Fatalf("token %q", token)
		}
	}
	return p
}

func drawObservation(t *rapid.T) *Observation {
	o := &Observation{
		ClusterID: rapid.SampledFrom([]string{"cluster", "cluster", "cluster", "", "other"}).Draw(t, "cluster"),
		TopicID:   [16]byte{1},
		Overdue:   rapid.Bool().Draw(t, "overdue"),
		Coordinator: Coordinator{
			State:      State(rapid.IntRange(0, int(CompleteAbort)).Draw(t, "state")),
			ProducerID: rapid.Int64Range(6, 8).Draw(t, "producer"),
			Epoch:      rapid.Int16Range(4, 7).Draw(t, "epoch"),
		},
	}
	for range 2 {
		o.Parts = append(o.Parts, PartSeen{
			Answered: rapid.Float64Range(0, 1).Draw(t, "answered") > 0.1,
			Stable:   rapid.SampledFrom([]int64{100, 111}).Draw(t, "stable"),
			LogStart: rapid.SampledFrom([]int64{0, 0, 0, 101}).Draw(t, "start"),
			First:    rapid.SampledFrom([]Batch{BatchOurs, BatchOurs, BatchOurs, BatchGone, BatchForeign}).Draw(t, "b"),
			Aborted:  rapid.Bool().Draw(t, "aborted"),
			Marker:   rapid.SampledFrom([]Marker{NoMarker, Commit, Abort}).Draw(t, "marker"),
			MarkerAt: rapid.SampledFrom([]int64{104, 110, 110}).Draw(t, "at"),
			OpenAt:   rapid.SampledFrom([]int64{-2, -1, 100}).Draw(t, "open"),
		})
	}
	return o
}

// S1, S2, S3: whatever is observed, committed and aborted need every partition's log to say so.
func TestOnlyTheLogProves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, o := tableHandle(), drawObservation(t)
		a := rapid.SampledFrom(tableAnswers).Draw(t, "answer")
		v := Settle(h, a, o)
		if v.Kind != Committed && v.Kind != Aborted {
			return
		}
		for i := range o.Parts {
			p := &o.Parts[i]
			stable := p.Stable > 100
			aborted := stable && p.Aborted || !stable && p.Marker == Abort
			committed := stable && !p.Aborted || !stable && p.Marker == Commit
			if !p.Answered || p.First != BatchOurs || v.Kind == Committed && !committed ||
				v.Kind == Aborted && !aborted {
				t.Fatalf("%s (%s) from %+v", v.Kind, v.Reason, o)
			}
		}
		// The answer and the coordinator change nothing about a proof.
		o.Coordinator = Coordinator{}
		if again := Settle(h, NoAnswer, o); again.Kind != v.Kind {
			t.Fatalf("%s became %s without the coordinator", v.Kind, again.Kind)
		}
	})
}

// EndTxn goes out only where the coordinator waits for it under the epoch of the handle.
func TestOpenNeedsOurEpoch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h, o := tableHandle(), drawObservation(t)
		v := Settle(h, NotAsked, o)
		if v.Kind == Open && o.Coordinator != (Coordinator{State: Ongoing, ProducerID: 7, Epoch: 5}) {
			t.Fatalf("open from %+v", o.Coordinator)
		}
		if v.Kind == Unmarked && !o.Overdue {
			t.Fatal("a marker given up before its time")
		}
	})
}
