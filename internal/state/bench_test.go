package state

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"example.com/weir/internal/keygroup"
)

type benchKey struct{ Tenant, Request string }

func (k benchKey) AppendKey(dst []byte) []byte {
	dst = append(dst, byte(len(k.Tenant)))
	return append(append(dst, k.Tenant...), k.Request...)
}

func (k *benchKey) DecodeKey(src []byte) error {
	both := string(src[1:])
	k.Tenant, k.Request = both[:src[0]], both[src[0]:]
	return nil
}

type benchValue struct{ fields [10]int64 }

// BenchmarkTable measures one look-up of a key among many, in an order that no cache knows.
func BenchmarkTable(b *testing.B) {
	for _, n := range []int{1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table, keys := benchTable(b, n)
			b.ReportAllocs()
			at := 0
			for b.Loop() {
				at = (at*1103515245 + 12345) & (1<<31 - 1)
				k := keys[at%n]
				if v := table.Peek(&k); v != nil {
					v.fields[0]++
				}
			}
		})
	}
}

func benchTable(b *testing.B, n int) (*Table[benchKey, benchValue], []Key[benchKey]) {
	b.Helper()
	codec, err := NewKeyCodec[benchKey]()
	require.NoError(b, err)
	table := NewTable[benchKey, benchValue](0, keygroup.DefaultMax, codec)
	keys := make([]Key[benchKey], n)
	for i := range keys {
		k := benchKey{Tenant: fmt.Sprintf("tenant-%03d", i%50), Request: fmt.Sprintf("r1-%08x", i*7919)}
		keys[i] = codec.Key(k, keygroup.DefaultMax)
		own := keys[i]
		_, err := table.Put(&own)
		require.NoError(b, err)
	}
	return table, keys
}

// BenchmarkTimers measures a timer from being set to firing, with many others pending.
func BenchmarkTimers(b *testing.B) {
	codec, err := NewKeyCodec[int]()
	require.NoError(b, err)
	timers := NewTimers(0, keygroup.DefaultMax, codec)
	now, encoded := int64(0), make([]byte, 8)
	var k Key[int]
	set := func(i int) {
		binary.BigEndian.PutUint64(encoded, uint64(i))
		k.Set(&codec, uint64(i)*0x9E3779B97F4A7C15, i*31%keygroup.DefaultMax, encoded, i)
		if err := timers.Set(&k, now+3_600_000_000+int64(i%1000)); err != nil {
			b.Fatal(err)
		}
	}
	i := 0
	for ; i < 360_000; i++ {
		now += 10_000
		set(i)
	}
	b.ReportAllocs()
	fired := 0
	count := func(*Key[int], int64) error { fired++; return nil }
	for b.Loop() {
		now += 10_000
		set(i)
		i++
		if timers.Advance(now) {
			if err := timers.Fire(now, count); err != nil {
				b.Fatal(err)
			}
		}
	}
}

// BenchmarkTablePrefetched measures the same, for batches of keys.
func BenchmarkTablePrefetched(b *testing.B) {
	for _, n := range []int{1_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			table, keys := benchTable(b, n)
			hashes, groups, batch := make([]uint64, 256), make([]uint16, 256), make([]Key[benchKey], 256)
			at := 0
			for b.Loop() {
				for i := range batch {
					at = (at*1103515245 + 12345) & (1<<31 - 1)
					batch[i] = keys[at%n]
					hashes[i], groups[i] = batch[i].Hash, uint16(batch[i].Group)
				}
				table.Prefetch(groups, hashes)
				for i := range batch {
					if v := table.Peek(&batch[i]); v != nil {
						v.fields[0]++
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/key")
		})
	}
}

type benchCodec struct{}

func (benchCodec) Append(dst []byte, v *benchValue) ([]byte, error) {
	for _, f := range v.fields {
		dst = AppendInt(dst, f)
	}
	return dst, nil
}

func (benchCodec) Decode([]byte, *benchValue) error { return nil }

// BenchmarkChange measures an entry from being changed to lying in the log, its share of bases included, with
// many others and in batches that are read ahead.
func BenchmarkChange(b *testing.B) {
	for _, n := range []int{10_000, 500_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			codec, err := NewKeyCodec[benchKey]()
			require.NoError(b, err)
			k := NewKeyed(0, keygroup.DefaultMax, codec, true)
			table, err := Declare(k, "values", benchCodec{})
			require.NoError(b, err)
			_, keys := benchTable(b, n)
			hashes, groups, batch := make([]uint64, 256), make([]uint16, 256), make([]Key[benchKey], 256)
			at, rows := 0, 0
			change := func() {
				for i := range batch {
					at = (at*1103515245 + 12345) & (1<<31 - 1)
					batch[i] = keys[at%n]
					hashes[i], groups[i] = batch[i].Hash, uint16(batch[i].Group)
				}
				k.Prefetch(groups, hashes)
				for i := range batch {
					v, err := table.Put(&batch[i])
					require.NoError(b, err)
					v.fields[0]++
				}
				require.NoError(b, k.Work())
				if rows += len(batch); rows%(1<<20) == 0 {
					_, records, err := k.Cut(func(int) int64 { return 0 })
					require.NoError(b, err)
					k.GiveBack(records)
				}
			}
			for range 8192 {
				change()
			}
			b.ReportAllocs()
			for b.Loop() {
				change()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/256, "ns/change")
		})
	}
}
