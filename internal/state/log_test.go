package state

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// taken is a log that was taken, and what was written to it.
type taken struct {
	chunks [][]byte
	want   []record
}

func (x *taken) check(t require.TestingT) {
	for _, chunk := range x.chunks {
		for d := NewDecoder(chunk); !d.Empty(); {
			r := readRecord(d)
			require.NoError(t, d.Err(), "a record lies in one chunk")
			require.NotEmpty(t, x.want)
			require.Equal(t, x.want[0], r)
			x.want = x.want[1:]
		}
	}
	require.Empty(t, x.want)
}

// Whatever is logged is what is taken, of whatever size, and it stays so until it is given back, while others
// are logged and given back.
func TestALogIsWhatWasLoggedUntilItIsGivenBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := newChangeLog(newChunks())
		table := tableLog{changeLog: log, state: 7}
		var held []taken
		var now taken
		fill := byte(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				now.chunks = log.take()
				held, now = append(held, now), taken{}
				require.Zero(t, log.records)
			case 1:
				if len(held) > 0 {
					i := rapid.IntRange(0, len(held)-1).Draw(t, "which")
					held[i].check(t)
					log.chunks.giveBack(held[i].chunks)
					held = slices.Delete(held, i, i+1)
				}
			case 2:
				log.timer(timerRecord, 3, 99, []byte{fill})
				now.want = append(now.want, record{kind: timerRecord, group: 3, at: 99, key: []byte{fill}})
			default:
				size := rapid.SampledFrom([]int{0, 100, 700, 5000, chunkBytes / 2, 2 * chunkBytes}).Draw(t, "size")
				for range rapid.IntRange(1, 40).Draw(t, "times") {
					fill++
					value := bytes.Repeat([]byte{fill}, size)
					require.NoError(t, table.set(append(table.put(5, []byte{fill}), value...), nil))
					now.want = append(now.want, record{kind: putRecord, group: 5, state: 7, key: []byte{fill}, value: value})
				}
			}
		}
		now.chunks = log.take()
		for _, x := range append(held, now) {
			x.check(t)
		}
	})
}

// A log of records that do not fit a chunk well uses its chunks again all the same, and after a burst no more
// memory stays than is used.
func TestALogUsesItsMemoryAgainAndNoMoreThanItNeeds(t *testing.T) {
	log := newChangeLog(newChunks())
	table := tableLog{changeLog: log}
	value := make([]byte, 3000)
	cut := func(records int) {
		for range records {
			require.NoError(t, table.set(append(table.put(1, nil), value...), nil))
		}
		log.chunks.giveBack(log.take())
	}
	cut(1000)
	cut(1000)
	log.chunks.takeIn()
	require.Greater(t, len(log.chunks.spare), 1000*len(value)/chunkBytes)
	const lists = 4 // of the chunks that are full
	require.LessOrEqual(t, testing.AllocsPerRun(10, func() { cut(1000) }), float64(lists))
	cut(1)
	cut(1)
	log.chunks.takeIn()
	require.LessOrEqual(t, len(log.chunks.spare), 3)
}
