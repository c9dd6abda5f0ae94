package app

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/doctor"
	"github.com/fencepost/fencepost/internal/gate"
)

// Bounds of an examination.
const (
	// looksAtOnce is how many gates and sources are looked at at a time.
	looksAtOnce = 8
	// lookWithin bounds one of them, and each other question.
	lookWithin = 30 * time.Second
	// soonOver is how long before its end a key is spoken of.
	soonOver = 14 * 24 * time.Hour
)

// Examine looks at all that a configuration rests on: its secrets and keys,
// the data directory, the ledger or the database, the sandbox, the clock, and
// the providers' side of each gate and source. It serves nothing, and a
// controller may be running meanwhile. What is wrong is in the report; the
// error is of the look itself.
func Examine(ctx context.Context, o Options, secrets []config.SecretTrial) (r doctor.Report, err error) {
	a := &App{Options: o}
	defer func() {
		if closing := a.Close(); err == nil {
			err = closing
		}
	}()
	r.Add(a.examineConfig(secrets)...)
	r.Add(a.examineKeys()...)
	mine, checks := a.examineDataDir()
	r.Add(checks...)
	if a.Config.Database.IsPostgres() {
		r.Add(a.examineDatabase(ctx)...)
	} else {
		r.Add(a.examineLedger(ctx, mine))
	}
	r.Add(a.examineSandbox(ctx, mine)...)
	r.Add(doctor.Synchronized())
	r.Add(a.examineReach(ctx)...)
	r.Add(a.examineProviders(ctx, mine)...)
	return r, ctx.Err()
}

// examineConfig tells the file's warnings, and which secrets can be used.
func (a *App) examineConfig(secrets []config.SecretTrial) (all []doctor.Check) {
	all = append(all, doctor.Check{Subject: "configuration", Name: "file", Status: doctor.OK, Seen: a.Config.File + " is valid"})
	for _, w := range a.Config.Warnings {
		all = append(all, doctor.Check{Subject: "configuration", Name: "warning", Status: doctor.Warn, Seen: w, Mend: "correct the file; `fencepost check` shows it too"})
	}
	for _, s := range secrets {
		c := doctor.Check{Subject: "secret " + s.Path, Name: "usable", Status: doctor.OK, Seen: fmt.Sprintf("%s, %d bytes", s.Ref, s.Bytes)}
		if s.Problem != "" {
			c.Status, c.Seen, c.Mend = doctor.Fail, s.Problem, "put the secret where the reference says, readable by the service's user alone"
		}
		all = append(all, c)
	}
	return all
}

// examineKeys looks at the windows of all keys.
func (a *App) examineKeys() (all []doctor.Check) {
	now := a.Now()
	for _, set := range a.Config.Trust {
		c := doctor.Check{Subject: "trust " + string(set.Name), Name: "keys", Status: doctor.OK}
		live, until, forever := 0, time.Time{}, false
		var next time.Time
		for _, k := range set.Anchors {
			switch {
			case !k.Until.IsZero() && !now.Before(k.Until):
			case now.Before(k.From):
				if next.IsZero() || k.From.Before(next) {
					next = k.From
				}
			default:
				live++
				forever = forever || k.Until.IsZero()
				if k.Until.After(until) {
					until = k.Until
				}
			}
		}
		c.Seen = fmt.Sprintf("%d live of %d", live, len(set.Anchors))
		const mend = "add a key with its window to the set, and to the provider"
		switch {
		case live == 0:
			c.Status, c.Mend = doctor.Fail, mend+": every delivery is refused now"
		case forever:
		case until.Sub(now) < soonOver && (next.IsZero() || next.After(until)):
			c.Status, c.Mend = doctor.Warn, mend
			c.Seen += ", the last until " + until.UTC().Format(time.RFC3339)
		default:
			c.Seen += ", until " + until.UTC().Format(time.RFC3339)
		}
		all = append(all, c)
	}
	return all
}

// examineReach asks each server once, without a credential, and compares
// clocks.
func (a *App) examineReach(ctx context.Context) []doctor.Check {
	var reach []doctor.Reach
	known := map[string]bool{}
	add := func(r doctor.Reach) {
		if !known[r.URL.String()] {
			known[r.URL.String()] = true
			reach = append(reach, r)
		}
	}
	for _, g := range a.Config.Gates {
		add(doctor.Reach{Subject: "provider " + g.API.Host, Name: "reach", URL: g.API})
	}
	for _, s := range a.Config.Sources {
		add(doctor.Reach{Subject: "provider " + s.API.Host, Name: "reach", URL: s.API})
	}
	if u := a.Config.Alerts.Alertmanager; u != nil {
		add(doctor.Reach{Subject: "alertmanager", Name: "reach", URL: u.JoinPath("/-/ready"), Healthy: http.StatusOK})
	}
	client := &http.Client{
		Timeout:       min(lookWithin, a.Config.Provider.Timeout),
		Transport:     &http.Transport{Proxy: http.ProxyFromEnvironment, DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	all := together(len(reach), func(i int) []doctor.Check { return doctor.Look(ctx, client, reach[i], a.Now) })
	return append(all, a.examineIssuers(ctx)...)
}

// together does n looks, some at a time, and returns what they found in their
// order.
func together(n int, look func(int) []doctor.Check) (all []doctor.Check) {
	found := make([][]doctor.Check, n)
	var group errgroup.Group
	group.SetLimit(looksAtOnce)
	for i := range n {
		group.Go(func() error {
			found[i] = look(i)
			return nil
		})
	}
	// None of them returns an error.
	_ = group.Wait()
	for _, f := range found {
		all = append(all, f...)
	}
	return all
}

// examineProviders looks at the providers' side of each gate and each source.
func (a *App) examineProviders(ctx context.Context, mine bool) []doctor.Check {
	room := a.examineRoom()
	lanes := &lanes{app: a}
	// Gates share clients, which are made at their first use.
	var opening sync.Mutex
	gates := together(len(a.Config.Gates), func(i int) []doctor.Check {
		g := a.Config.Gates[i]
		opening.Lock()
		l, err := lanes.open(g)
		opening.Unlock()
		subject := "gate " + string(g.Route)
		if err != nil {
			return []doctor.Check{{Subject: subject, Name: "policy", Status: doctor.Fail, Seen: err.Error(), Mend: "correct the gate's section"}}
		}
		return append(examineGate(ctx, subject, string(g.Provider), l), a.examineAction(ctx, g)...)
	})
	return append(append(room, gates...), a.examineSources(ctx, mine)...)
}

// examineRoom makes a workspace, in which what is fetched to be looked at and
// sinks of rows are, and says so only where it can't.
func (a *App) examineRoom() []doctor.Check {
	dir, err := os.MkdirTemp("", "fencepost-doctor-")
	if err == nil {
		a.opened(func() error { return os.RemoveAll(dir) })
		if a.fetch, err = gitfetch.OpenWorkspace(dir); err == nil {
			a.opened(a.fetch.Close)
			return nil
		}
	}
	return []doctor.Check{{
		Subject: "machine", Name: "temporary files", Status: doctor.Warn, Seen: err.Error(),
		Mend: "see that " + os.TempDir() + " (TMPDIR) may be written to: plans and sinks are looked at there",
	}}
}

// examineGate has a lane look at its provider.
func examineGate(ctx context.Context, subject, provider string, l lane) (all []doctor.Check) {
	e, ok := l.(gate.Examiner)
	if !ok {
		return []doctor.Check{{Subject: subject, Name: "provider", Status: doctor.Skipped, Seen: "gates at " + provider + " can't be looked at without an event"}}
	}
	ctx, cancel := context.WithTimeout(ctx, 2*lookWithin)
	defer cancel()
	for _, f := range e.Examine(ctx) {
		all = append(all, checkOf(subject, f))
	}
	return all
}

// checkOf is a lane's finding as a check.
func checkOf(subject string, f gate.Finding) doctor.Check {
	c := doctor.Check{Subject: subject, Name: f.Name, Status: doctor.OK, Seen: f.Observed}
	switch {
	case f.Skipped != "":
		c.Status, c.Seen = doctor.Skipped, f.Skipped
	case f.Met():
	default:
		c.Status, c.Want, c.Mend = doctor.Fail, f.Expected, f.Mend
		if f.Advice {
			c.Status = doctor.Warn
		}
	}
	return c
}
