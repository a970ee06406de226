package price

import "strings"

const (
	// cacheGeneration is the number of names after which a cache begins to forget those not asked for since.
	cacheGeneration = 4096
	// cacheName is the length in bytes of the longest pair of names that is kept.
	cacheName = 512
)

// Cache remembers what [Book.Find] found, an error too. It belongs to one goroutine.
//
// Names come from outside, so it is bounded: it keeps two generations of at most 4,096 pairs of names.
// When the young one is full it becomes the old one, and the old one is forgotten except for what is
// asked for again. So a flood of invented names costs walks through the book, but neither memory nor,
// for long, the entries of names in use.
type Cache struct {
	book       *Book
	young, old map[names]found
}

type names struct{ provider, model string }

type found struct {
	model *Model
	err   error
}

// NewCache returns an empty cache in front of b.
func (b *Book) NewCache() *Cache {
	return &Cache{book: b, young: make(map[names]found)}
}

// Find returns what [Book.Find] returns for the names.
func (c *Cache) Find(provider, model string) (*Model, error) {
	key := names{provider, model}
	if f, ok := c.young[key]; ok {
		return f.model, f.err
	}
	if len(provider)+len(model) > cacheName {
		return c.book.Find(provider, model)
	}
	// The caller's strings may be slices of something large; the entry keeps them, and so does an error.
	key = names{strings.Clone(provider), strings.Clone(model)}
	f, ok := c.old[key]
	if !ok {
		f.model, f.err = c.book.Find(key.provider, key.model)
	}
	if len(c.young) >= cacheGeneration {
		c.young, c.old = make(map[names]found), c.young
	}
	c.young[key] = f
	return f.model, f.err
}
