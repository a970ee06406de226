// Package keygroup maps keys to key groups and key groups to subtasks.
//
// It is pure arithmetic: no state, no I/O. A key group is the smallest unit of keyed state that
// moves when a job is restored at another parallelism.
//
// Invariants:
//
//  1. A key's group depends on its hash and on max parallelism alone, never on parallelism.
//  2. Every group belongs to exactly one subtask, and a subtask's groups are contiguous.
//  3. HashName changes whenever Hash would answer differently for any key: it is kept in the
//     manifest, and a checkpoint with another name is refused.
package keygroup

import "github.com/cespare/xxhash/v2"

// DefaultMax is the max parallelism of a job that names none.
const DefaultMax = 128

// HashName names the hash in the manifest.
const HashName = "xxhash64"

// Hash returns the hash of a key's canonical encoding. It is unseeded: the same in every process.
func Hash(encoded []byte) uint64 { return xxhash.Sum64(encoded) }

// Of returns the key group of a hash, in [0, maxParallelism).
func Of(hash uint64, maxParallelism int) int {
	n := uint64(maxParallelism)
	if n&(n-1) == 0 { // as most often, and a division takes a while
		return int(hash & (n - 1))
	}
	return int(hash % n)
}

// Subtask returns the subtask that owns a group (as Flink assigns ranges).
func Subtask(group, maxParallelism, parallelism int) int {
	return group * parallelism / maxParallelism
}

// Range returns the groups [first, end) that a subtask owns.
func Range(subtask, maxParallelism, parallelism int) (first, end int) {
	first = (subtask*maxParallelism + parallelism - 1) / parallelism
	end = ((subtask+1)*maxParallelism + parallelism - 1) / parallelism
	return first, end
}
