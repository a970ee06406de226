package gateway

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"
)

// maxDepth is how deep values may be nested, as in encoding/json.
const maxDepth = 10_000

// scanner reads JSON from buf. Its methods report false once something is wrong, and then the
// scanner says what: they are not called again.
type scanner struct {
	buf    []byte
	at     int
	depth  int
	reason Reason // NotJSON or InvalidUTF8
	detail string
}

func (s *scanner) fail(reason Reason, detail string) bool {
	s.reason, s.detail = reason, detail
	return false
}

// next skips white space and returns the byte after it without taking it, 0 at the end. (A NUL
// byte in the value returns 0 too: it is wrong wherever it stands outside a string.)
func (s *scanner) next() byte {
	if s.at < len(s.buf) && s.buf[s.at] > ' ' {
		return s.buf[s.at]
	}
	return s.nextAfterSpace()
}

func (s *scanner) nextAfterSpace() byte {
	for s.at < len(s.buf) {
		c := s.buf[s.at]
		if c > ' ' {
			return c
		}
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return 0
		}
		s.at++
	}
	return 0
}

// take skips white space and takes the byte c, which must follow.
func (s *scanner) take(c byte) bool {
	if s.next() != c {
		return s.unexpected()
	}
	s.at++
	return true
}

// unexpected reports what stands where something else should.
func (s *scanner) unexpected() bool {
	switch {
	case len(s.buf) == 0:
		return s.fail(NotJSON, "nothing there")
	case s.at >= len(s.buf):
		return s.fail(NotJSON, "unexpected end")
	case s.buf[s.at] >= utf8.RuneSelf:
		if r, n := utf8.DecodeRune(s.buf[s.at:]); r == utf8.RuneError && n == 1 {
			return s.fail(InvalidUTF8, "")
		}
	}
	return s.fail(NotJSON, "unexpected character")
}

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// str takes a string, its opening quote included, and returns what stands between the quotes
// and whether there is an escape sequence in it.
func (s *scanner) str() (raw []byte, escaped, ok bool) {
	if s.next() != '"' {
		return nil, false, s.unexpected()
	}
	s.at++
	from := s.at
	for {
		s.at = plain(s.buf, s.at)
		if s.at >= len(s.buf) {
			return nil, false, s.unexpected()
		}
		switch c := s.buf[s.at]; {
		case c == '"':
			raw = s.buf[from:s.at]
			s.at++
			return raw, escaped, true
		case c == '\\':
			escaped = true
			if !s.escape() {
				return nil, false, false
			}
		case c < ' ':
			return nil, false, s.fail(NotJSON, "control character in a string")
		default:
			r, n := utf8.DecodeRune(s.buf[s.at:])
			if r == utf8.RuneError && n <= 1 {
				return nil, false, s.fail(InvalidUTF8, "")
			}
			s.at += n
		}
	}
}

// plain returns where the first byte from at on is that a string cannot simply hold: a quote, a
// backslash, a control character, or one that is not ASCII.
//
// Eight bytes are looked at together: the mask has the high bit set in each such byte. A borrow
// can set a bit too many, but only above one that is rightly set, and the lowest is the one used.
func plain(buf []byte, at int) int {
	for at+8 <= len(buf) {
		x := binary.LittleEndian.Uint64(buf[at:])
		quote, slash := x^'"'*ones, x^'\\'*ones
		mask := ((quote-ones)&^quote | (slash-ones)&^slash | (x-' '*ones)&^x | x) & highs
		if mask != 0 {
			return at + bits.TrailingZeros64(mask)/8
		}
		at += 8
	}
	for at < len(buf) && buf[at] >= ' ' && buf[at] != '"' && buf[at] != '\\' && buf[at] < utf8.RuneSelf {
		at++
	}
	return at
}

// escape takes one escape sequence.
func (s *scanner) escape() bool {
	if s.at+1 >= len(s.buf) {
		s.at = len(s.buf)
		return s.unexpected()
	}
	switch s.buf[s.at+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		s.at += 2
		return true
	case 'u':
		s.at += 2
		for range 4 {
			if s.at >= len(s.buf) || hexDigit(s.buf[s.at]) < 0 {
				return s.unexpected()
			}
			s.at++
		}
		return true
	}
	s.at++
	return s.unexpected()
}

// hexDigit returns the value of c, or -1.
func hexDigit(c byte) rune {
	switch {
	case '0' <= c && c <= '9':
		return rune(c - '0')
	case 'a' <= c && c <= 'f':
		return rune(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return rune(c-'A') + 10
	}
	return -1
}

// text returns a string taken by str: a part of the value where nothing is escaped (G2).
func text(raw []byte, escaped bool) string {
	if !escaped {
		return unsafe.String(unsafe.SliceData(raw), len(raw))
	}
	return unescape(raw)
}

// unescape resolves the escape sequences of raw, which str has found to be right.
func unescape(raw []byte) string {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		if raw[i] != '\\' {
			out = append(out, raw[i])
			i++
			continue
		}
		c := raw[i+1]
		i += 2
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		case 'u':
			var r rune
			r, i = unescapeRune(raw, i)
			out = utf8.AppendRune(out, r)
			continue
		}
		out = append(out, c)
	}
	return string(out)
}

// unescapeRune reads the four hexadecimal digits at i, and the second half of a surrogate pair
// where it follows. Half a pair alone is U+FFFD.
func unescapeRune(raw []byte, i int) (rune, int) {
	r := hexRune(raw[i:])
	i += 4
	if !utf16.IsSurrogate(r) {
		return r, i
	}
	if len(raw) >= i+6 && raw[i] == '\\' && raw[i+1] == 'u' {
		if pair := utf16.DecodeRune(r, hexRune(raw[i+2:])); pair != utf8.RuneError {
			return pair, i + 6
		}
	}
	return utf8.RuneError, i
}

func hexRune(b []byte) rune {
	return hexDigit(b[0])<<12 | hexDigit(b[1])<<8 | hexDigit(b[2])<<4 | hexDigit(b[3])
}

// skip takes a value of any type, and checks that it is JSON.
func (s *scanner) skip() bool {
	switch c := s.next(); c {
	case '"':
		_, _, ok := s.str()
		return ok
	case '{':
		return s.object()
	case '[':
		return s.array()
	case 't':
		return s.literal("true")
	case 'f':
		return s.literal("false")
	case 'n':
		return s.literal("null")
	default:
		if c == '-' || '0' <= c && c <= '9' {
			_, ok := s.number()
			return ok
		}
	}
	return s.unexpected()
}

func (s *scanner) object() bool {
	more, ok := s.open('}')
	for more && ok {
		if _, _, ok = s.str(); !ok || !s.take(':') || !s.skip() {
			return false
		}
		more, ok = s.more('}')
	}
	return ok
}

func (s *scanner) array() bool {
	more, ok := s.open(']')
	for more && ok {
		if !s.skip() {
			return false
		}
		more, ok = s.more(']')
	}
	return ok
}

// open takes the bracket that opens an object or array, and tells whether anything is in it:
// if not, it takes the closing one too.
func (s *scanner) open(closing byte) (more, ok bool) {
	if s.depth++; s.depth > maxDepth {
		return false, s.fail(NotJSON, "nested too deep")
	}
	s.at++
	if s.next() == closing {
		s.at++
		s.depth--
		return false, true
	}
	return true, true
}

// more takes the comma or the closing bracket after an element, and tells which one it was.
func (s *scanner) more(closing byte) (more, ok bool) {
	switch s.next() {
	case ',':
		s.at++
		s.next()
		return true, true
	case closing:
		s.at++
		s.depth--
		return false, true
	}
	return false, s.unexpected()
}

func (s *scanner) literal(word string) bool {
	for i := range len(word) {
		if s.at >= len(s.buf) || s.buf[s.at] != word[i] {
			return s.unexpected()
		}
		s.at++
	}
	return true
}

// number takes a number and returns its text.
func (s *scanner) number() (raw []byte, ok bool) {
	from := s.at
	if s.buf[s.at] == '-' {
		s.at++
	}
	if s.at < len(s.buf) && s.buf[s.at] == '0' {
		s.at++
	} else if !s.digits() {
		return nil, false
	}
	if s.at < len(s.buf) && s.buf[s.at] == '.' {
		s.at++
		if !s.digits() {
			return nil, false
		}
	}
	if s.at < len(s.buf) && s.buf[s.at]|0x20 == 'e' {
		s.at++
		if s.at < len(s.buf) && (s.buf[s.at] == '+' || s.buf[s.at] == '-') {
			s.at++
		}
		if !s.digits() {
			return nil, false
		}
	}
	return s.buf[from:s.at], true
}

// digits takes one digit or more.
func (s *scanner) digits() bool {
	from := s.at
	for s.at < len(s.buf) && '0' <= s.buf[s.at] && s.buf[s.at] <= '9' {
		s.at++
	}
	return s.at > from || s.unexpected()
}
