package checkpoint

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"path"
	"strconv"
	"strings"
)

// The names inside a store, relative to its root.
const (
	currentName      = "CURRENT"
	currentTemp      = "CURRENT.tmp"
	lockName         = "LOCK"
	importName       = "IMPORT" // a manifest is being made before there is a CURRENT
	manifestsDir     = "manifests"
	manifestSuffix   = ".json"
	snapshotsDir     = "snapshots"
	committablesDir  = "committables"
	recordsDir       = "records"
	savepointsDir    = "savepoints"
	savepointTemp    = ".tmp" // no savepoint has such a name
	longestInName    = 120    // of an operator's uid; file systems allow 255 bytes for a name
	lineageHexDigits = 16
)

// origin is what every name says about the file: which checkpoint of which generation (K3).
type origin struct {
	lineage                string
	generation, checkpoint uint64
	// replacement counts the manifests that a generation has written for a checkpoint that it found
	// there (Manifest.Replacement). It is 0 for everything else.
	replacement uint64
}

func (o origin) String() string {
	s := fmt.Sprintf("%s-g%d-c%d", o.lineage, o.generation, o.checkpoint)
	if o.replacement != 0 {
		s += fmt.Sprintf("-r%d", o.replacement)
	}
	return s
}

// compare orders what may be the manifest of one checkpoint: a later one has taken the place of an
// earlier one, or never became a checkpoint's.
func (o origin) compare(to origin) int {
	return cmp.Or(cmp.Compare(o.generation, to.generation), cmp.Compare(o.replacement, to.replacement))
}

// sameCheckpoint reports whether two manifests, both of which CURRENT has named at some time, describe
// the same checkpoint: an ID that was completed is never used again in its lineage.
func (o origin) sameCheckpoint(as origin) bool {
	return o.lineage == as.lineage && o.checkpoint == as.checkpoint
}

func (o origin) valid() error {
	if len(o.lineage) != lineageHexDigits || strings.Trim(o.lineage, "0123456789abcdef") != "" {
		return fmt.Errorf("lineage %q: want %d hexadecimal digits", o.lineage, lineageHexDigits)
	}
	if o.generation == 0 || o.checkpoint == 0 {
		return fmt.Errorf("generation %d, checkpoint %d: both begin at 1", o.generation, o.checkpoint)
	}
	return nil
}

// parseOrigin reads the origin back from a file's name. ok is false for a file of another kind,
// which is nobody's to delete.
func parseOrigin(name string) (o origin, ok bool) {
	lineage, rest, _ := strings.Cut(path.Base(name), "-g")
	generation, rest, _ := strings.Cut(rest, "-c")
	end := strings.IndexAny(rest, "-.")
	if end < 0 {
		return origin{}, false
	}
	replacement, isManifest := strings.CutSuffix(rest[end:], manifestSuffix)
	if strings.HasPrefix(rest[end:], ".") && !isManifest {
		return origin{}, false
	}
	g, errG := strconv.ParseUint(generation, 10, 64)
	c, errC := strconv.ParseUint(rest[:end], 10, 64)
	o = origin{lineage: lineage, generation: g, checkpoint: c}
	if isManifest && replacement != "" {
		n, isReplacement := strings.CutPrefix(replacement, "-r")
		var err error
		if o.replacement, err = strconv.ParseUint(n, 10, 64); err != nil || !isReplacement || o.replacement == 0 {
			return origin{}, false
		}
	}
	return o, errG == nil && errC == nil && o.valid() == nil
}

func manifestName(o origin) string { return path.Join(manifestsDir, o.String()+manifestSuffix) }

func snapshotName(o origin, operator string, subtask int) string {
	return path.Join(snapshotsDir, fmt.Sprintf("%s-%s-%d", o, fileName(operator), subtask))
}

// committableName contains a part of the payload's digest: a committable may be given a new
// handle under the same identity, and the old file must stay as long as a manifest names it.
func committableName(o origin, sink string, subtask int, digest [32]byte) string {
	return path.Join(committablesDir,
		fmt.Sprintf("%s-%s-%d-%x", o, fileName(sink), subtask, digest[:8]))
}

// RecordsName says whose kept records they are, and tells those of one subtask apart. The checkpoint that
// will name them is not known when they begin.
type RecordsName struct {
	Lineage    string
	Generation uint64
	Sink       string
	Subtask    int
	Number     uint64 // counted in the generation, from 1
}

func (n RecordsName) file() string {
	return path.Join(recordsDir, fmt.Sprintf("%s-g%d-n%d-%s-%d", n.Lineage, n.Generation, n.Number, fileName(n.Sink), n.Subtask))
}

// recordsOrigin reads lineage and generation back from the name of a file of kept records. ok is false for a
// file of another kind.
func recordsOrigin(name string) (lineage string, generation uint64, ok bool) {
	lineage, rest, _ := strings.Cut(path.Base(name), "-g")
	number, rest, _ := strings.Cut(rest, "-n")
	counted, _, named := strings.Cut(rest, "-")
	generation, errG := strconv.ParseUint(number, 10, 64)
	_, errN := strconv.ParseUint(counted, 10, 64)
	o := origin{lineage: lineage, generation: generation, checkpoint: 1}
	return lineage, generation, named && errG == nil && errN == nil && o.valid() == nil
}

// fileName writes a uid so that any file system takes it, and different ones stay different.
func fileName(uid string) string {
	var b strings.Builder
	for i := range len(uid) {
		c := uid[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' ||
			c == '-' || c == '_' || c == '.' {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	if b.Len() <= longestInName {
		return b.String()
	}
	sum := sha256.Sum256([]byte(uid))
	return fmt.Sprintf("%s%%%x", b.String()[:longestInName-17], sum[:8])
}
