package connector

// Codec encodes values that go into state and committables. An encoding is read again by later
// releases: it names its fields or carries a version.
type Codec[T any] interface {
	// Append appends the encoding of v to dst and returns the extended slice.
	Append(dst []byte, v *T) ([]byte, error)
	// Decode sets v from src. It keeps nothing of src.
	Decode(src []byte, v *T) error
}

// Versioned is implemented by codecs that say what they write. A checkpoint keeps the name, and a
// restore asks the job's codec whether it reads that; without it, a codec must tell for itself
// whether bytes are what it wrote.
type Versioned interface {
	// Encoding names what Append writes, with a version: "request/2".
	Encoding() string
	// Reads reports whether Decode reads an encoding of this name: one of its own earlier ones,
	// "cbor" for the default codec, or "" for a codec that gave no name.
	Reads(encoding string) bool
}
