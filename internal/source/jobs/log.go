package jobs

import (
	"context"
	"log/slog"
	"slices"
)

// quiet returns a logger for River: warnings and above, and of their
// attributes numbers and names of ours alone. The text of its errors may hold
// addresses and values of rows.
func quiet(l *slog.Logger) *slog.Logger { return slog.New(quietHandler{l.Handler()}) }

type quietHandler struct{ slog.Handler }

// Enabled implements [slog.Handler].
func (h quietHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn && h.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
func (h quietHandler) Handle(ctx context.Context, r slog.Record) error {
	out := slog.NewRecord(r.Time, r.Level, "job queue: "+r.Message, 0)
	r.Attrs(func(a slog.Attr) bool {
		if allowed(a) {
			out.AddAttrs(a)
		}
		return true
	})
	return h.Handler.Handle(ctx, out)
}

// WithAttrs implements [slog.Handler].
func (h quietHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	kept := slices.DeleteFunc(slices.Clone(attrs), func(a slog.Attr) bool { return !allowed(a) })
	return quietHandler{h.Handler.WithAttrs(kept)}
}

// WithGroup implements [slog.Handler].
func (h quietHandler) WithGroup(name string) slog.Handler {
	return quietHandler{h.Handler.WithGroup(name)}
}

func allowed(a slog.Attr) bool {
	return slices.Contains([]string{
		"attempt", "duration", "job_id", "job_kind", "kind", "num_jobs_running", "num_jobs_stuck", "queue", "timeout",
	}, a.Key)
}
