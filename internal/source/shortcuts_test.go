package source

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/gitfetch"
)

// TestARunSaysWhatWasNotSpared: that everything came over the wire, or that an
// earlier checkout was of no use, shows nowhere else.
func TestARunSaysWhatWasNotSpared(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name string
		cost gitfetch.Stats
		want string // the end of the line
	}{
		{"nothing to spare", gitfetch.Stats{Files: 3}, "wire_bytes=9"},
		{"an earlier checkout", gitfetch.Stats{Incremental: true, LinkedFiles: 3}, "wire_bytes=9"},
		{"a filter", gitfetch.Stats{LeftOut: 4, Filtered: true}, "wire_bytes=9 left_out=4 filtered=true"},
		{"no filter", gitfetch.Stats{LeftOut: 4}, "wire_bytes=9 left_out=4 filtered=false"},
		{"an altered checkout", gitfetch.Stats{Fallback: gitfetch.FallbackAltered}, "wire_bytes=9 fallback=altered"},
		{"a server that fails at a filter", gitfetch.Stats{LeftOut: 4, Fallback: gitfetch.FallbackAnswer}, "wire_bytes=9 left_out=4 filtered=false fallback=answer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var line bytes.Buffer
			w := &Worker{Log: slog.New(slog.NewTextHandler(&line, nil))}
			r := result{ending: Ending{Status: Complete, Counts: Counts{Wire: 9}}, cost: tt.cost}
			w.report(t.Context(), &Source{}, Began{}, r, time.Time{}, 0, nil)
			if !strings.HasSuffix(strings.TrimSpace(line.String()), tt.want) {
				t.Errorf("the line is %q, want it to end in %q", line.String(), tt.want)
			}
		})
	}
}
