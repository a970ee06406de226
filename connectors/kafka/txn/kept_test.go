package txn

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"example.com/weir/connector"
)

func drawBytes(t *rapid.T, label string) []byte {
	if rapid.IntRange(0, 20).Draw(t, label+" is large") == 0 {
		return bytes.Repeat([]byte{7}, rapid.IntRange(60<<10, 200<<10).Draw(t, label+" size"))
	}
	return rapid.SampledFrom([][]byte{nil, {}, {0}, []byte("a"), []byte("ab")}).Draw(t, label)
}

func drawRecord(t *rapid.T) Record {
	r := Record{
		Partition: rapid.Int32Range(0, 1<<31-1).Draw(t, "partition"), Timestamp: rapid.Int64().Draw(t, "timestamp"),
		Key: drawBytes(t, "key"), Value: drawBytes(t, "value"),
	}
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		r.Headers = append(r.Headers, Header{
			Key: rapid.SampledFrom([]string{"", "a"}).Draw(t, "header"), Value: drawBytes(t, "header value"),
		})
	}
	return r
}

func frame(records []Record) []byte {
	b := AppendKeptStart(nil)
	for i := range records {
		r := &records[i]
		b = AppendKept(b, r.Partition, r.Timestamp, r.Key, r.Value, len(r.Headers))
		for _, h := range r.Headers {
			b = AppendKeptHeader(b, h.Key, h.Value)
		}
	}
	return b
}

func readAll(from io.Reader) ([]Record, error) {
	k, err := NewKeptReader(from)
	if err != nil {
		return nil, err
	}
	var all []Record
	for {
		r, err := k.Next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
}

// Nil and empty, and every border between fields, are what they were. Cut anywhere but between two records, the
// stream is damaged, and said to be.
func TestKeptRecordsAreReadAsTheyWere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		records := rapid.SliceOfN(rapid.Custom(drawRecord), 0, 5).Draw(t, "records")
		framed := frame(records)
		got, err := readAll(iotest.OneByteReader(bytes.NewReader(framed)))
		require.NoError(t, err)
		require.Equal(t, len(records), len(got))
		for i := range records {
			require.Equal(t, records[i], got[i])
		}
		cut := rapid.IntRange(0, len(framed)-1).Draw(t, "cut")
		got, err = readAll(bytes.NewReader(framed[:cut]))
		if err == nil {
			require.Equal(t, framed[:cut], frame(got))
		} else {
			require.ErrorIs(t, err, ErrKeptDamaged)
		}
	})
}

// A storage that fails can be tried again; a format of a later release cannot be read.
func TestAStorageThatFailsIsNoDamage(t *testing.T) {
	away := errors.New("the storage is away")
	framed := frame([]Record{{Value: []byte("value")}})
	for at := range framed {
		_, err := readAll(io.MultiReader(bytes.NewReader(framed[:at]), iotest.ErrReader(away)))
		require.ErrorIs(t, err, away)
		require.NotErrorIs(t, err, ErrKeptDamaged)
	}
	_, err := readAll(bytes.NewReader([]byte{keptVersion + 1}))
	require.True(t, connector.IsStop(err))
	require.ErrorContains(t, err, "format 2")
}

func FuzzKeptRecords(f *testing.F) {
	f.Add(frame([]Record{{Partition: 3, Timestamp: 17, Key: []byte("k"), Value: []byte("v"), Headers: []Header{{Key: "h"}}}}))
	f.Add([]byte{keptVersion, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x07})
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = readAll(bytes.NewReader(b)) })
}

// Whoever reads of damage is told once which file it is, and how to go on without it.
func TestDamagedKeptRecordsAreNamedOnceAndWithAWayOut(t *testing.T) {
	n := &named{of: connector.Committable{Kept: connector.Kept{Name: "records/a"}}}
	for _, err := range []error{
		connector.Stop(errors.New("records/a is corrupt: it is missing")),
		ErrKeptDamaged,
	} {
		failed := keptFailed(n, err)
		require.True(t, connector.IsStop(failed))
		require.Equal(t, 1, strings.Count(failed.Error(), "records/a"), failed)
		require.ErrorContains(t, failed, "--lost-transaction skip")
	}
	away := keptFailed(n, errors.New("the storage is away"))
	require.False(t, connector.IsStop(away))
	require.EqualError(t, away, "kept records records/a: the storage is away")
}
