package checkpoint

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// BenchmarkKeep is what keeping costs a sink for each record: 240 bytes of JSON, as a gateway writes it.
func BenchmarkKeep(b *testing.B) {
	s, err := Open("file://"+b.TempDir(), testOptions())
	require.NoError(b, err)
	defer s.Close()
	var rows [1024][]byte
	for i := range rows {
		rows[i] = fmt.Appendf(nil, `{"tenant":"tenant-%d","minute":"2026-03-02T%02d:%02d:00Z","requests":%d,"input_tokens":%d,`+
			`"output_tokens":%d,"cost_usd":"%d.%09d","revision":1,"models":["a-large-model","a-small-model"],"currency":"USD"}`,
			i*7919%97, i%24, i%60, i, i*31337, i*271, i%7, i*7919)
	}
	rec := NewRecorder(s, recordsOf7)
	x := rec.Begin()
	b.SetBytes(int64(len(rows[0])))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if x.Write(rows[n%len(rows)]); n%100_000 == 99_999 {
			x.Seal()
			x.Discard()
			require.NoError(b, s.DeleteRecords(b.Context(), []string{x.Name()}))
			x = rec.Begin()
		}
		n++
	}
	x.Discard()
}

// BenchmarkCheckpoint is the durable part of a checkpoint of one subtask, from the barrier to CURRENT: a
// snapshot of 4 KiB, and records that are not kept, kept in the manifest or in a file.
func BenchmarkCheckpoint(b *testing.B) {
	for _, kept := range []int{0, 200, 20_000} {
		b.Run(fmt.Sprintf("kept=%dB", len(rows(kept))), func(b *testing.B) {
			store, err := Open("file://"+b.TempDir(), testOptions())
			require.NoError(b, err)
			defer store.Close()
			l := &life{s: store.(*dirStore), retain: 3}
			require.NoError(b, l.claim())
			rec, data, n := NewRecorder(store, RecordsName{Lineage: testLineage, Generation: 1, Sink: "s"}), rows(kept), uint64(0)
			b.ResetTimer()
			var tail time.Duration
			for b.Loop() {
				b.StopTimer()
				x := rec.Begin()
				x.Write(data) // while the stream runs
				b.StartTimer()
				began := time.Now()
				n++
				m, err := l.manifest(n)
				require.NoError(b, err)
				m.Committables = m.Committables[:1]
				if kept > 0 {
					m.Committables[0].Kept = x.Seal()
					require.NoError(b, x.Sync())
				} else {
					x.Discard()
				}
				ref, err := store.PutManifest(b.Context(), m)
				require.NoError(b, err)
				next := l.cur
				next.Checkpoint, next.Manifest, next.ManifestDigest, next.Nonce = n, ref.Name, ref.Digest, ""
				require.NoError(b, l.swap(next))
				tail += time.Since(began)
				l.ref = ref
				b.StopTimer()
				require.NoError(b, store.DeleteRecords(b.Context(), []string{x.Name()}))
				_, err = store.Collect(b.Context(), 3)
				require.NoError(b, err)
				b.StartTimer()
			}
			b.ReportMetric(float64(tail.Microseconds())/float64(n), "µs/checkpoint")
		})
	}
}
