package artifact_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/fencepost/fencepost/internal/artifact"
	"github.com/fencepost/fencepost/internal/artifact/artifacttest"
	"github.com/fencepost/fencepost/internal/durable"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	artifacttest.Run(t, func(t *testing.T, limits artifact.Limits) artifacttest.Harness {
		dir, c := t.TempDir(), &clock{noon}
		return artifacttest.Harness{
			Open: func(t testing.TB) artifacttest.Store {
				s, err := artifact.Open(t.Context(), durable.OS(dir), limits, c.now)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() {
					if err := s.Close(); err != nil {
						t.Error(err)
					}
				})
				return s
			},
			Elapse: func(_ testing.TB, d time.Duration) { c.t = c.t.Add(d) },
			Spoil: func(t testing.TB, data []byte) {
				held, err := filepath.Glob(filepath.Join(dir, "2026-*", "*"))
				if err != nil || len(held) == 0 {
					t.Fatalf("files = %v, %v", held, err)
				}
				for _, name := range held {
					if err := os.WriteFile(name, data, 0o600); err != nil {
						t.Fatal(err)
					}
				}
			},
		}
	})
}
