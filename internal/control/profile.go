package control

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"strings"
	"time"
)

// profiles answers as net/http/pprof does to go tool pprof and go tool trace. That package is not used,
// because importing it registers handlers by itself.
func profiles() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		name := strings.TrimPrefix(r.URL.Path, "/debug/pprof/")
		switch name {
		case "":
			listProfiles(w)
		case "profile":
			timed(w, r, 30*time.Second, func() error { return pprof.StartCPUProfile(w) }, pprof.StopCPUProfile)
		case "trace":
			timed(w, r, time.Second, func() error { return trace.Start(w) }, trace.Stop)
		default:
			writeProfile(w, r, name)
		}
	})
}

func listProfiles(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	fmt.Fprintln(w, "profile?seconds=30\ntrace?seconds=1")
	for _, p := range pprof.Profiles() {
		fmt.Fprintf(w, "%s?debug=1\t%d\n", p.Name(), p.Count())
	}
}

// timed writes a profile of the next seconds.
func timed(w http.ResponseWriter, r *http.Request, usual time.Duration, start func() error, stop func()) {
	length := usual
	if s := r.FormValue("seconds"); s != "" {
		seconds, err := strconv.ParseFloat(s, 64)
		if err != nil || seconds <= 0 || seconds > 3600 {
			refuse(w, http.StatusBadRequest, fmt.Errorf("seconds=%s: want more than 0 and at most 3600", s))
			return
		}
		length = time.Duration(seconds * float64(time.Second))
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := start(); err != nil { // one at a time
		refuse(w, http.StatusConflict, err)
		return
	}
	defer stop()
	ctx, cancel := context.WithTimeout(r.Context(), length)
	defer cancel()
	<-ctx.Done()
}

func writeProfile(w http.ResponseWriter, r *http.Request, name string) {
	p := pprof.Lookup(name)
	if p == nil {
		refuse(w, http.StatusNotFound, fmt.Errorf("no profile is called %q", name))
		return
	}
	if name == "heap" && r.FormValue("gc") != "" {
		runtime.GC()
	}
	debug, err := strconv.Atoi(r.FormValue("debug"))
	if err != nil {
		debug = 0
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	if debug > 0 {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	}
	_ = p.WriteTo(w, debug) // the peer may be gone
}
