package gateway

// The names of an event, in the order in which faults are looked for.
const (
	fieldType = iota
	fieldEventID
	fieldEventTime
	fieldTenantID
	fieldRequestID
	fieldProvider
	fieldModel
	fieldStatus
	fieldUsage
	fieldInput
	fieldOutput
	fieldCacheRead
	fieldCacheWrite
	fieldCount
	fieldOther = -1
)

// fieldName returns the name of a field as an error shows it.
func fieldName(field int) string {
	return [fieldCount]string{
		"type", "event_id", "event_time", "tenant_id", "request_id", "provider", "model", "status", "usage",
		"usage.input_tokens", "usage.output_tokens", "usage.cache_read_tokens", "usage.cache_write_tokens",
	}[field]
}

// Decode sets e from the value of a record. It fails with a *DecodeError for every value that
// the contract sends to the dead-letter output, but for an event time too far ahead of the
// record's own: that is judged where the record's time is known. After an error e means nothing.
//
// The strings of e may be parts of value (G2).
func Decode(value []byte, e *Event) error {
	*e = Event{}
	d := decoder{scanner: scanner{buf: value}, event: e}
	if d.next() != '{' {
		return d.notObject()
	}
	if !d.fields() || !d.end() {
		return &DecodeError{Reason: d.reason, Offset: d.at, Detail: d.detail}
	}
	return d.verdict()
}

// decoder reads one event. state holds, for each name, whether its last value can be used: the
// verdict is only given at the end, because the last value counts and the type may come last.
type decoder struct {
	scanner
	event *Event
	state [fieldCount]Reason
}

// notObject tells whether a value that does not begin with a brace is JSON at all.
func (d *decoder) notObject() error {
	if d.skip() && d.end() {
		return &DecodeError{Reason: NotObject}
	}
	return &DecodeError{Reason: d.reason, Offset: d.at, Detail: d.detail}
}

// end reports whether only white space is left.
func (d *decoder) end() bool {
	d.next()
	return d.at == len(d.buf) || d.unexpected()
}

func (d *decoder) fields() bool {
	more, ok := d.open('}')
	expected := fieldEventID
	for more && ok {
		field := expected
		if !d.usualName(expected) {
			name, escaped, good := d.str()
			if !good || !d.take(':') {
				return false
			}
			field = eventField(name, escaped)
		}
		if !d.field(field) {
			return false
		}
		expected = d.usuallyAfter(field)
		more, ok = d.more('}')
	}
	return ok
}

// usualName takes the name of a field with its colon, if it stands there in the plainest way.
// Nearly all gateways write nearly all names in one order: to expect the next one and compare
// is cheaper than to scan a string and look it up.
func (d *decoder) usualName(field int) bool {
	if field == fieldOther {
		return false
	}
	name := [fieldCount]string{
		`"type":`, `"event_id":`, `"event_time":`, `"tenant_id":`, `"request_id":`,
		`"provider":`, `"model":`, `"status":`, `"usage":`,
		`"input_tokens":`, `"output_tokens":`, `"cache_read_tokens":`, `"cache_write_tokens":`,
	}[field]
	end := d.at + len(name)
	if end > len(d.buf) || string(d.buf[d.at:end]) != name {
		return false
	}
	d.at = end
	return true
}

// usuallyAfter returns the field that follows another one in the contract's examples.
func (d *decoder) usuallyAfter(field int) int {
	switch field {
	case fieldEventID:
		return fieldType
	case fieldType:
		return fieldEventTime
	case fieldRequestID:
		if d.event.Kind == Completed {
			return fieldStatus
		}
		return fieldProvider
	case fieldOther, fieldUsage, fieldCacheWrite:
		return fieldOther
	}
	return field + 1
}

// eventField returns the field that a name of the event stands for.
func eventField(raw []byte, escaped bool) int {
	switch text(raw, escaped) {
	case "event_id":
		return fieldEventID
	case "type":
		return fieldType
	case "event_time":
		return fieldEventTime
	case "tenant_id":
		return fieldTenantID
	case "request_id":
		return fieldRequestID
	case "provider":
		return fieldProvider
	case "model":
		return fieldModel
	case "status":
		return fieldStatus
	case "usage":
		return fieldUsage
	}
	return fieldOther
}

// usageField returns the field that a name inside usage stands for.
func usageField(raw []byte, escaped bool) int {
	switch text(raw, escaped) {
	case "input_tokens":
		return fieldInput
	case "output_tokens":
		return fieldOutput
	case "cache_read_tokens":
		return fieldCacheRead
	case "cache_write_tokens":
		return fieldCacheWrite
	}
	return fieldOther
}

// field takes the value of a name of the event.
func (d *decoder) field(field int) bool {
	switch field {
	case fieldOther:
		return d.skip()
	case fieldUsage:
		return d.usage()
	}
	if c := d.next(); c != '"' {
		d.state[field] = typeFault(c)
		return d.skip()
	}
	raw, escaped, ok := d.str()
	if !ok {
		return false
	}
	d.state[field] = d.set(field, raw, escaped)
	return true
}

// typeFault returns the state of a field whose value has another type than it should.
func typeFault(first byte) Reason {
	if first == 'n' {
		return null
	}
	return WrongField
}

// set keeps the string that a name was given, and returns what is wrong with it.
func (d *decoder) set(field int, raw []byte, escaped bool) Reason {
	e, value := d.event, text(raw, escaped)
	switch field {
	case fieldEventID:
		e.EventID = value
	case fieldTenantID:
		e.TenantID = value
		return nonEmpty(value)
	case fieldRequestID:
		e.RequestID = value
		return nonEmpty(value)
	case fieldProvider:
		e.Provider = value
	case fieldModel:
		e.Model = value
	case fieldEventTime:
		var fault Reason
		e.Time, fault = parseTime(value)
		return fault
	case fieldType:
		switch value {
		case "RequestStarted":
			e.Kind = Started
		case "RequestCompleted":
			e.Kind = Completed
		default:
			return UnknownType
		}
	case fieldStatus:
		var known bool
		if e.Status, known = parseStatus(value); !known {
			return UnknownStatus
		}
	}
	return present
}

func parseStatus(s string) (status Status, known bool) {
	switch s {
	case "ok":
		return OK, true
	case "cancelled":
		return Cancelled, true
	case "failed":
		return Failed, true
	}
	return 0, false
}

func nonEmpty(s string) Reason {
	if s == "" {
		return EmptyField
	}
	return present
}

// usage takes the value of usage. It forgets an earlier one whole.
func (d *decoder) usage() bool {
	d.event.Usage = Usage{}
	clear(d.state[fieldInput:])
	if c := d.next(); c != '{' {
		d.state[fieldUsage] = typeFault(c)
		return d.skip()
	}
	d.state[fieldUsage] = present
	more, ok := d.open('}')
	expected := fieldInput
	for more && ok {
		field := expected
		if !d.usualName(expected) {
			name, escaped, good := d.str()
			if !good || !d.take(':') {
				return false
			}
			field = usageField(name, escaped)
		}
		if field == fieldOther && !d.skip() || field != fieldOther && !d.tokens(field) {
			return false
		}
		expected = d.usuallyAfter(field)
		more, ok = d.more('}')
	}
	return ok
}

// tokens takes a number inside usage.
func (d *decoder) tokens(field int) bool {
	c := d.next()
	if c != '-' && (c < '0' || c > '9') {
		d.keepTokens(field, 0, typeFault(c))
		return d.skip()
	}
	if n, ok := d.plainTokens(); ok {
		d.keepTokens(field, n, present)
		return true
	}
	raw, ok := d.number()
	if !ok {
		return false
	}
	n, state := parseTokens(raw)
	d.keepTokens(field, n, state)
	return true
}

// plainTokens takes a number of at most 15 digits that stands in the plainest way.
func (d *decoder) plainTokens() (n int64, ok bool) {
	n, end := digitsAt(d.buf, d.at)
	if end == d.at || end == len(d.buf) || d.buf[end] != ',' && d.buf[end] != '}' {
		return 0, false
	}
	d.at = end
	return n, true
}

// digitsAt reads a number of at most 15 digits, and returns where it ends: where it begins if there is none.
func digitsAt(buf []byte, from int) (n int64, end int) {
	end = from
	for end < len(buf) && buf[end]-'0' <= 9 {
		n = n*10 + int64(buf[end]-'0')
		end++
	}
	if digits := end - from; digits > 15 || digits > 1 && buf[from] == '0' {
		return 0, from
	}
	return n, end
}

func (d *decoder) keepTokens(field int, n int64, state Reason) {
	*d.event.Usage.tokens(field) = n
	d.state[field] = state
}

// tokens returns where the number of a field inside usage is kept.
func (u *Usage) tokens(field int) *int64 {
	switch field {
	case fieldInput:
		return &u.InputTokens
	case fieldOutput:
		return &u.OutputTokens
	case fieldCacheRead:
		return &u.CacheReadTokens
	}
	return &u.CacheWriteTokens
}

// verdict judges the fields once the whole value is known to be JSON.
func (d *decoder) verdict() error {
	for field := fieldType; field <= fieldRequestID; field++ {
		if d.state[field] != present {
			return d.refuse(field)
		}
	}
	if d.event.Kind == Started {
		return d.verdictStarted()
	}
	return d.verdictCompleted()
}

func (d *decoder) verdictStarted() error {
	for field := fieldProvider; field <= fieldModel; field++ {
		if d.state[field] != present {
			return d.refuse(field)
		}
	}
	d.event.Status, d.event.Usage = 0, Usage{} // not the type's own: unknown names
	return nil
}

func (d *decoder) verdictCompleted() error {
	for field, value := range [...]*string{&d.event.Provider, &d.event.Model} {
		switch d.state[fieldProvider+field] {
		case absent, present:
		case null:
			*value = "" // an earlier value of the same name does not count
		default:
			return d.refuse(fieldProvider + field)
		}
	}
	if d.state[fieldStatus] != present {
		return d.refuse(fieldStatus)
	}
	for field := fieldUsage; field < fieldCount; field++ {
		switch d.state[field] {
		case absent, null:
		case present:
			d.event.Usage.Given |= GivenUsage << (field - fieldUsage)
		default:
			return d.refuse(field)
		}
	}
	return nil
}

// refuse makes the error for a field that is not as it must be.
func (d *decoder) refuse(field int) error {
	reason := d.state[field]
	switch reason {
	case absent:
		reason = MissingField
	case null:
		reason = WrongField
	}
	return &DecodeError{Reason: reason, Field: fieldName(field)}
}
