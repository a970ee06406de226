package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"example.com/weir/connector"
)

// The format of CURRENT, manifests and savepoints. It rises with every change that an older program
// must not overlook, and the one before it is still read. What makes no use of the change is written
// as before. Version 2: restores by name (root, restored, ancestors). Version 3: manifests that have taken
// another one's place (replacement), and kept records (kept). Version 4: checkpoints that have shown nothing
// (quiet_since).
const (
	textVersion = 1 // of what needs no more
	newestText  = 4 // that is read
)

// The kinds of envelopes.
const (
	currentKind   = "current"
	manifestKind  = "manifest"
	savepointKind = "savepoint"
)

// envelope is how CURRENT and manifests are written: JSON to be read by people, with a checksum
// of the content without its white space.
type envelope struct {
	Weir     string          `json:"weir"`
	Version  int             `json:"version"`
	Checksum digest          `json:"sha256"`
	Content  json.RawMessage `json:"content"`
}

// digest is a SHA-256 sum, in hexadecimal where it is written.
type digest [sha256.Size]byte

// MarshalText implements encoding.TextMarshaler.
func (d digest) MarshalText() ([]byte, error) { return []byte(hex.EncodeToString(d[:])), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *digest) UnmarshalText(text []byte) error {
	if hex.DecodedLen(len(text)) != len(d) || len(text)%2 != 0 {
		return fmt.Errorf("%d digits where a SHA-256 sum has %d", len(text), 2*len(d))
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// seal encodes content in an envelope, which says from which version on a program understands it.
func seal(kind string, version int, content any) ([]byte, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, err
	}
	out, err := json.MarshalIndent(envelope{
		Weir: kind, Version: version, Checksum: sha256.Sum256(raw), Content: raw,
	}, "", "  ")
	return append(out, '\n'), err
}

// unseal decodes what seal wrote. It refuses fields that it does not know: what they say would
// be lost without a word.
func unseal(file, kind string, data []byte, content any) error {
	corrupt := func(format string, args ...any) error {
		return connector.Stop(&CorruptError{File: file, What: fmt.Sprintf(format, args...)})
	}
	var head struct {
		Weir    string `json:"weir"`
		Version int    `json:"version"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return corrupt("%v", err)
	}
	if head.Weir != kind || head.Version < 1 {
		return corrupt("it says to be %q version %d, not %q", head.Weir, head.Version, kind)
	}
	if head.Version > newestText {
		return connector.Stop(&FormatError{File: file, Version: head.Version, Newest: newestText})
	}
	var e envelope
	if err := strict(data, &e); err != nil {
		return corrupt("%v", err)
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, e.Content); err != nil {
		return corrupt("%v", err)
	}
	if sum := digest(sha256.Sum256(compact.Bytes())); sum != e.Checksum {
		return corrupt("its content has checksum %x, and it says %x", sum[:4], e.Checksum[:4])
	}
	if err := strict(e.Content, content); err != nil {
		return corrupt("%v", err)
	}
	return nil
}

func strict(data []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() {
		return errors.New("something follows the content")
	}
	return nil
}
