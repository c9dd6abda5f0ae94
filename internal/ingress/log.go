package ingress

import (
	"context"
	"log/slog"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/fencepost/fencepost"
)

// refusalsPerSecond is how many refusals are logged; the next one after more
// says how many were not.
const refusalsPerSecond = 10

// A logger writes of answers what DESIGN §10 lets into logs: never an
// address, header, body or path, and no route that the sender made up.
type logger struct {
	slog *slog.Logger
	now  func() time.Time

	mu      sync.Mutex
	second  time.Time // guarded by mu: start of the present second
	logged  int       // guarded by mu: refusals logged in it
	dropped int       // guarded by mu: refusals not logged since the last one
}

// answered logs good answers at debug level, since whoever takes a delivery
// up tells of it, and others at info or, if they are our own fault, warn.
func (l *logger) answered(ctx context.Context, what string, route fencepost.RouteName, a answer, took time.Duration) {
	level, dropped := slog.LevelDebug, 0
	switch {
	case a.status >= 500:
		level = slog.LevelWarn
	case a.status >= 400 || a.outcome == OutcomeAborted:
		level = slog.LevelInfo
	}
	if !l.slog.Enabled(ctx, level) {
		return
	}
	if level > slog.LevelDebug {
		var ok bool
		if dropped, ok = l.admit(); !ok {
			return
		}
	}
	attrs := make([]slog.Attr, 0, 6)
	if route != "" {
		attrs = append(attrs, slog.String("route", string(route)))
	}
	if a.delivery != "" {
		attrs = append(attrs, slog.String("delivery", string(a.delivery)))
	}
	if a.reason != fencepost.ReasonNone {
		attrs = append(attrs, slog.String("reason", string(a.reason)))
	}
	attrs = append(attrs, slog.Int("status", a.status), slog.Int64("duration_ms", took.Milliseconds()))
	if dropped > 0 {
		attrs = append(attrs, slog.Int("suppressed", dropped))
	}
	l.slog.LogAttrs(ctx, level, what+" "+string(a.outcome), attrs...)
}

// admit reports whether another refusal is logged, and how many before it
// were not.
func (l *logger) admit() (dropped int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := l.now(); now.Sub(l.second) >= time.Second {
		l.second, l.logged = now, 0
	}
	if l.logged >= refusalsPerSecond {
		l.dropped++
		return 0, false
	}
	l.logged++
	dropped, l.dropped = l.dropped, 0
	return dropped, true
}

// panicked logs where a panic came from: functions and lines alone.
func (l *logger) panicked(ctx context.Context, route fencepost.RouteName) {
	var pcs [32]uintptr
	// Callers, panicked, recover and the runtime's panic are known.
	frames := runtime.CallersFrames(pcs[:runtime.Callers(4, pcs[:])])
	var stack []string
	for {
		f, more := frames.Next()
		stack = append(stack, f.Function+":"+strconv.Itoa(f.Line))
		if !more {
			break
		}
	}
	l.slog.LogAttrs(ctx, slog.LevelError, "webhook handler panicked",
		slog.String("route", string(route)), slog.Any("stack", stack))
}

// Write takes what net/http says of connections, which has remote addresses
// in it: the fact alone is logged.
func (l *logger) Write(p []byte) (int, error) {
	if dropped, ok := l.admit(); ok {
		l.slog.Debug("http server reported a connection's fault", slog.Int("suppressed", dropped))
	}
	return len(p), nil
}
