package truebill

import "time"

// machine applies the rules of the contract to one event after another.
//
//	                     Completed                       Started
//	waiting (Started) ─────────────▶ over ◀───────────── waiting (Completed)
//	     │ timeout                    ▲  ▲  timeout: billed alone, or unmatched │
//	     ▼               Completed    │  └───────────────────────────────────────┘
//	abandoned ────────────────────────┘
//
// A request is forgotten some time after it is over, or was abandoned.
type machine struct {
	cfg       Config
	reader    *reader
	book      *book
	watermark time.Time
	running   bool // there is a watermark; Compute has none before the end

	requests map[requestKey]*request
	minutes  map[Key]*minute
	timers   timerHeap // of requests
	windows  timerHeap
	order    int // how many timers were set
	bill     *Bill
}

type requestKey struct{ tenant, request string }

type request struct {
	key       requestKey
	started   *event
	completed *event
	seen      map[[2]string]bool // event ids by type
	over      bool               // assembled, or unmatched
}

func newMachine(cfg Config, priceBook []byte) (*machine, error) {
	b, err := parseBook(priceBook)
	if err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	return &machine{
		cfg: cfg, reader: newReader(cfg.MaxAhead), book: b,
		requests: map[requestKey]*request{}, minutes: map[Key]*minute{},
		bill: &Bill{
			Minutes: map[Key]Amounts{}, Tenants: map[string]Amounts{}, ErrorRates: map[Key]ErrorRate{},
		},
	}, nil
}

// take reads a record and assembles its event. It returns nil for a dead letter.
func (m *machine) take(rec Record) *event {
	e, err := m.reader.read(rec)
	if err != nil {
		m.bill.DeadLetters = append(m.bill.DeadLetters,
			Rejected{Partition: rec.Partition, Offset: rec.Offset, Reason: err.Error()})
		return nil
	}
	m.bill.Counts.Events++
	m.assemble(e)
	return e
}

// assemble is rule 1.
func (m *machine) assemble(e *event) {
	key := requestKey{e.tenant, e.request}
	r := m.requests[key]
	if r == nil {
		r = &request{key: key, seen: map[[2]string]bool{}}
		m.requests[key] = r
	}
	half := &r.started
	if e.kind == "RequestCompleted" {
		half = &r.completed
	}
	id := [2]string{e.kind, e.id}
	switch {
	case r.seen[id]:
		m.bill.Counts.Repeated++
		return
	case *half != nil:
		r.seen[id] = true
		m.bill.Counts.Conflicts++
		return
	case r.over: // billed alone or unmatched, and now its Started comes
		r.seen[id] = true
		*half = e
		m.bill.Counts.Overdue++
		return
	}
	r.seen[id] = true
	*half = e
	if r.started != nil && r.completed != nil {
		m.settle(r, true)
		return
	}
	deadline := e.at
	if m.running && m.watermark.After(deadline) {
		deadline = m.watermark
	}
	m.after(deadline.Add(m.cfg.CompletionTimeout), func(now time.Time) { m.timeout(r, now) })
}

// timeout is rule 3, for a request of which one half is missing.
func (m *machine) timeout(r *request, now time.Time) {
	switch {
	case r.over:
	case r.completed == nil:
		m.bill.Counts.Abandoned++
		m.after(now.Add(m.cfg.Deduplication), func(time.Time) {
			if !r.over {
				m.forget(r)
			}
		})
	default:
		m.settle(r, r.completed.provider != "" && r.completed.model != "")
	}
}

// settle ends a request that has its Completed: it is billed, or unmatched. It is then
// remembered until nothing of its minute can change any more.
func (m *machine) settle(r *request, matched bool) {
	r.over = true
	if matched {
		m.emit(r)
	} else {
		m.bill.Counts.Unmatched++
	}
	keep := max(m.cfg.AllowedLateness, m.cfg.Deduplication)
	m.after(windowEnd(r.completed.at).Add(keep), func(time.Time) { m.forget(r) })
}

// forget drops a request; another one of the same key, that came after it, stays.
func (m *machine) forget(r *request) {
	if m.requests[r.key] == r {
		delete(m.requests, r.key)
	}
}

// windowEnd is rule 2: the end of the minute that a time lies in.
func windowEnd(t time.Time) time.Time {
	return t.Add(time.Minute - time.Duration(t.Second())*time.Second - time.Duration(t.Nanosecond()))
}

// emit is rules 2, 4 and 6 for an assembled request.
func (m *machine) emit(r *request) {
	c := r.completed
	provider, model, pricedAt := c.provider, c.model, c.at
	if r.started != nil {
		pricedAt = r.started.at
		if provider == "" {
			provider = r.started.provider
		}
		if model == "" {
			model = r.started.model
		}
	}
	cost, err := m.book.price(provider, model, pricedAt, c.usage)
	failed := c.status == "failed"
	end := windowEnd(c.at)
	late := m.passed(end.Add(m.cfg.AllowedLateness))
	if !failed && err != nil {
		m.bill.Counts.Unpriced++
	}
	switch {
	case late:
		m.bill.Counts.Late++
	case failed:
		m.bill.Counts.Failed++
	}
	if late {
		return
	}
	key := Key{Tenant: c.tenant, WindowEnd: end.Format(time.RFC3339)}
	w := m.minute(key, end)
	w.all++
	switch {
	case failed:
		w.failed++
	case err == nil:
		w.add(cost, c.usage)
	}
	if m.passed(end) {
		m.fire(key, w)
	}
}

// minute returns a window, and makes it where nothing has come for it.
func (m *machine) minute(key Key, end time.Time) *minute {
	w := m.minutes[key]
	if w == nil {
		w = newMinute(end)
		m.minutes[key] = w
		m.window(key, w)
	}
	return w
}
