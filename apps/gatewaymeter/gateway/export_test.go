package gateway

// NewEagerDecoder returns a Decoder that learns from every value that it does not know.
func NewEagerDecoder() *Decoder { return &Decoder{every: 1} }

// Misses returns how many right values looked otherwise than what was known.
func (d *Decoder) Misses() int { return int(d.misses.Load()) }
