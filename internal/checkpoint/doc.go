// Package checkpoint keeps checkpoints: the snapshots of subtasks, the manifests that describe
// checkpoints, and CURRENT, the one object that says which checkpoint exists and who may
// complete the next. It also reads them back for a restore, and deletes what retention lets go.
//
// It is not the protocol: package protocol decides what is written and swapped, and when. What
// is in a snapshot or a committable is opaque here.
//
// A directory store looks like this (lineage, generation, checkpoint, operator, subtask):
//
//	CURRENT                                            which checkpoint exists
//	LOCK                                               who owns the directory, which is locked itself too
//	manifests/5b1f…-g3-c17.json                        what checkpoint 17 consists of
//	snapshots/5b1f…-g3-c17-assemble-0                  one subtask's state
//	savepoints/before-upgrade.json                     which manifest is kept under that name
//	records/5b1f…-g3-n12-sink-0                        what is in an open transaction, to write it again
//	committables/5b1f…-g3-c17-sink-0-<digest>          a committable too large for the manifest
//
// Invariants (the numbers are cited where code enforces them):
//
//	K1. Whatever CURRENT names is durable before CURRENT is swapped: the files, and the entries
//	    of their directories.
//	K2. A swap replaces CURRENT whole or not at all, and only if it holds what the caller
//	    expects, nonce included.
//	K3. Names of manifests and snapshots contain lineage and generation: what a dead generation
//	    left behind never meets what this one writes.
//	K4. After a failed fsync nothing is written any more: the kernel may have dropped the data
//	    and will report success the next time. Every later call returns the same error.
//	K5. What is read back is what was written, or an error that names the file. A format newer
//	    than this program is refused by name.
//	K6. Clean-up deletes a manifest before what it refers to, and nothing that a kept manifest
//	    refers to. Kept are the last checkpoints of CURRENT's lineage and every savepoint. Cut
//	    short anywhere, it leaves a store that is in order. Records are another matter: they
//	    are kept for as long as an unsettled CURRENT names them, whatever else names them.
//	K7. Directories are 0700 and files 0600: what is in them is customers' data.
//
// What a crashed process left in the page cache is read by the next one before it is durable.
// That is harmless, because the first thing the next one does is to claim CURRENT: the swap makes
// durable what was read, and nothing is committed before it.
package checkpoint
