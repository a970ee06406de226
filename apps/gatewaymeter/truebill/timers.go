package truebill

import (
	"container/heap"
	"fmt"
	"time"
)

// timer is what happens once the watermark has reached a time. Timers fire in the order of
// their times, and of two at one time the one that was set first.
type timer struct {
	at    time.Time
	order int
	fire  func(now time.Time)
}

type timerHeap []timer

func (h timerHeap) Len() int      { return len(h) }
func (h timerHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h timerHeap) Less(i, j int) bool {
	if !h[i].at.Equal(h[j].at) {
		return h[i].at.Before(h[j].at)
	}
	return h[i].order < h[j].order
}

// Push is for package heap.
func (h *timerHeap) Push(x any) { *h = append(*h, x.(timer)) }

// Pop is for package heap.
func (h *timerHeap) Pop() any {
	last := len(*h) - 1
	t := (*h)[last]
	*h = (*h)[:last]
	return t
}

// passed tells whether the watermark has reached a time.
func (m *machine) passed(at time.Time) bool { return m.running && !at.After(m.watermark) }

// after sets a timer, which fires at once where its time has passed.
func (m *machine) after(at time.Time, fire func(now time.Time)) {
	if m.passed(at) {
		fire(at)
		return
	}
	m.order++
	heap.Push(&m.timers, timer{at: at, order: m.order, fire: fire})
}

// advance moves the watermark, which never goes back: first the timers fire, at the old one,
// then the windows.
func (m *machine) advance(to time.Time) {
	for len(m.timers) > 0 && !m.timers[0].at.After(to) {
		t := heap.Pop(&m.timers).(timer)
		t.fire(t.at)
	}
	m.running, m.watermark = true, to
	for len(m.windows) > 0 && !m.windows[0].at.After(to) {
		heap.Pop(&m.windows).(timer).fire(to)
	}
}

// window lets a new window fire once the watermark has reached its end.
func (m *machine) window(key Key, w *minute) {
	m.order++
	heap.Push(&m.windows, timer{at: w.end, order: m.order, fire: func(time.Time) { m.fire(key, w) }})
}

// fire is the first firing of a window, at which an alert is judged.
func (m *machine) fire(key Key, w *minute) {
	if w.fired {
		return
	}
	w.fired = true
	if w.all >= m.cfg.ErrorRequests && w.failed*100 >= w.all*m.cfg.ErrorShare {
		m.bill.ErrorRates[key] = ErrorRate{Requests: w.all, Failed: w.failed}
	}
}

// finish takes event time to its end and returns the bill.
func (m *machine) finish() (*Bill, error) {
	m.advance(time.Date(1_000_000, 1, 1, 0, 0, 0, 0, time.UTC))
	total, tenants := newMinute(time.Time{}), map[string]*minute{}
	var err error
	for key, w := range m.minutes {
		if w.requests == 0 {
			continue // nothing was billed: nothing is emitted
		}
		if m.bill.Minutes[key], err = w.amounts(); err != nil {
			return nil, fmt.Errorf("bill of tenant %q, minute up to %s: %w", key.Tenant, key.WindowEnd, err)
		}
		if tenants[key.Tenant] == nil {
			tenants[key.Tenant] = newMinute(time.Time{})
		}
		tenants[key.Tenant].plus(w)
		total.plus(w)
	}
	for tenant, sum := range tenants {
		if m.bill.Tenants[tenant], err = sum.amounts(); err != nil {
			return nil, fmt.Errorf("bill of tenant %q: %w", tenant, err)
		}
	}
	if m.bill.Total, err = total.amounts(); err != nil {
		return nil, fmt.Errorf("bill: %w", err)
	}
	return m.bill, nil
}
