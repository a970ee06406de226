package connector

// Codec encodes values that go into state and committables. An encoding is read again by later
// releases: it names its fields or carries a version.
type Codec[T any] interface {
	// Append appends the encoding of v to dst and returns the extended slice.
	Append(dst []byte, v *T) ([]byte, error)
	// Decode sets v from src. It keeps nothing of src.
	Decode(src []byte, v *T) error
}
