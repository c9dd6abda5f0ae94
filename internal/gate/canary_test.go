package gate_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
)

// TestNothingForeignIsTold plants canaries in every error that a part can
// give, and looks for them wherever a gate writes.
func TestNothingForeignIsTold(t *testing.T) {
	t.Parallel()
	canary := func(where string) error {
		return fmt.Errorf("CANARY-%s token ghs_CANARY at /host/path 192.0.2.7", where)
	}
	inWorld(t, func(t *testing.T, w *world) {
		w.limits.Attempts = 2
		calls := 0
		w.provider.onRefresh = func(n int) error {
			if calls = n; n%3 == 1 {
				return &fencepost.Error{Op: "refresh", Reason: fencepost.ReasonProvider, Err: canary("refresh")}
			}
			return nil
		}
		w.provider.onFetch = func(gitfetch.Request) error { return canary("fetch") }
		w.provider.onCreate = func(int) (error, error) { return canary("create"), nil }
		w.store.setFail(canary("store"))
		w.deliverAs(7, w.provider.head.ID, "a", "CANARY-body")
		p := w.start(nil)
		time.Sleep(30 * time.Minute)
		w.journal.setFail(canary("journal"))
		time.Sleep(10 * time.Minute)
		w.journal.setFail(nil)
		time.Sleep(10 * time.Minute)
		p.end(t)
		if calls == 0 {
			t.Fatal("nothing happened")
		}
		shown := fmt.Sprint(w.provider.shown())
		for where, text := range map[string]string{
			"log": w.logs.String(), "journal": w.journal.String(), "alerts": fmt.Sprint(w.alerts.open, w.alerts.raised),
			"evidence": fmt.Sprint(w.store.kept), "result": shown,
		} {
			if strings.Contains(text, "CANARY") || strings.Contains(text, "/host/path") || strings.Contains(text, "192.0.2") {
				t.Errorf("the %s holds a canary:\n%s", where, text)
			}
		}
		if w.logs.String() == "" {
			t.Error("nothing was logged")
		}
	})
	inWorld(t, func(t *testing.T, w *world) {
		w.deliverAs(7, w.provider.head.ID, "a", "CANARY-body")
		w.run()
		w.wantRuns("success")
		if strings.Contains(w.journal.String()+w.logs.String()+fmt.Sprint(w.store.kept), "CANARY") {
			t.Error("a body was kept")
		}
	})
}
