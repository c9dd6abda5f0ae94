package sqlledger

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/ledger/ledgertest"
)

func TestOpenRefusesWrongConfigs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		cfg  Config
		want string
	}{
		"nothing":        {Config{}, "either a path or a URL"},
		"both":           {Config{Path: "x", URL: "postgres://x"}, "either a path or a URL"},
		"lease short":    {Config{Path: "x", Lease: time.Second}, "lease must be"},
		"lease long":     {Config{Path: "x", Lease: time.Hour}, "lease must be"},
		"capacity":       {Config{Path: "x", Capacity: MaxCapacity + 1}, "capacity must be"},
		"parts":          {Config{Path: "x", Parts: 65}, "parts must be"},
		"parts over all": {Config{Path: "x", Parts: 8, Capacity: 7}, "one a part"},
		"window":         {Config{Path: "x", Window: fencepost.ReplayWindow{MaxSignedAge: 1}}, "replay window"},
	} {
		if _, err := Open(t.Context(), c.cfg); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: err = %v, want ErrConfig that says %q", name, err, c.want)
		}
	}
}

// openRefusesOtherParameters, by name, and changes nothing.
func openRefusesOtherParameters(t *testing.T, fresh maker) {
	f := fresh(t)
	made := f.ledger()
	for field, change := range map[string]func(*Config){
		"ledger.lease":          func(c *Config) { c.Lease = 30 * time.Second },
		"ledger.capacity":       func(c *Config) { c.Capacity = 65 },
		"replay.max_signed_age": func(c *Config) { c.Window = fencepost.DefaultReplayWindow; c.Window.MaxSignedAge += time.Second },
		"replay.max_queue_age":  func(c *Config) { c.Window = fencepost.DefaultReplayWindow; c.Window.MaxQueueAge -= time.Second },
		"ledger.parts":          func(c *Config) { c.Parts = 3 },
	} {
		cfg := f.cfg
		change(&cfg)
		_, err := Open(t.Context(), cfg)
		p, ok := errors.AsType[*ParameterError](err)
		if !ok || p.Field != field || !errors.Is(err, ErrParameters) || fencepost.ReasonOf(err) != fencepost.ReasonParameters {
			t.Errorf("%s: err = %v, want a ParameterError of it", field, err)
		}
	}
	again := f.ledger()
	if again.uuid != made.uuid || len(made.uuid) != 32 {
		t.Errorf("uuid %q, was %q", again.uuid, made.uuid)
	}
}

func manyMakeOneLedger(t *testing.T, fresh maker) {
	f := fresh(t)
	var group sync.WaitGroup
	ids := make([]string, 4)
	for i := range ids {
		group.Go(func() {
			l, err := Open(t.Context(), f.cfg)
			if err != nil {
				t.Errorf("open: %v", err)
				return
			}
			ids[i] = l.uuid
			if err := l.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	group.Wait()
	for _, id := range ids {
		if id != ids[0] || id == "" {
			t.Errorf("uuids %q, want one", ids)
		}
	}
}

func TestAClosedLedgerAnswersNothing(t *testing.T) {
	t.Parallel()
	clock := ledgertest.NewClock()
	l, err := Open(t.Context(), Config{Path: t.TempDir() + "/l.db", Now: clock.Now, Instant: clock.Instant})
	must0(t, err)
	must0(t, l.Close())
	if c, err := l.Claim(t.Context(), permanent(t, "a")); c != nil || fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
		t.Errorf("claim: %v, %v; want unavailable", c, err)
	}
	if err := l.CleanUp(t.Context()); fencepost.ReasonOf(err) != fencepost.ReasonUnavailable {
		t.Errorf("clean-up: %v; want unavailable", err)
	}
}
