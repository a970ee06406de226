package engine

import "time"

// pace says when a checkpoint that comes by the interval may begin: MinPause after the end of the last
// one. It is pure: it is told the time, and what it returns is how long to wait.
type pace struct {
	pause time.Duration
	ended time.Time // the last checkpoint, completed or aborted; zero before
	late  bool      // one is due and waits for the pause
}

// due reports whether a checkpoint may begin now. If not, it is late, and wait tells when to ask again.
func (p *pace) due(now time.Time, open bool) bool {
	if p.pause > 0 && (open || now.Before(p.ended.Add(p.pause))) {
		p.late = true
		return false
	}
	p.late = false
	return true
}

// wait returns how long it is until a late checkpoint may begin, and false if none waits or one is in
// progress: its end is what comes next.
func (p *pace) wait(now time.Time, open bool) (time.Duration, bool) {
	if !p.late || open {
		return 0, false
	}
	return max(p.ended.Add(p.pause).Sub(now), 0), true
}
