package app

import (
	"context"
	"errors"
	"strings"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/doctor"
	"github.com/fencepost/fencepost/internal/source/sink"
)

// examineSources looks at each source's repository and sink.
func (a *App) examineSources(ctx context.Context, mine bool) []doctor.Check {
	s := &sourcing{conns: gitfetch.NewTransport(gitfetch.TransportOptions{})}
	a.opened(func() error { s.conns.Close(); return nil })
	// Sources share clients, which are made at their first use.
	var opening sync.Mutex
	return together(len(a.Config.Sources), func(i int) []doctor.Check {
		c := a.Config.Sources[i]
		subject := "source " + string(c.Route)
		if !c.Enabled {
			return []doctor.Check{{Subject: subject, Name: "enabled", Status: doctor.Skipped, Seen: "it is off"}}
		}
		ctx, cancel := context.WithTimeout(ctx, lookWithin)
		defer cancel()
		checks := []doctor.Check{a.examineRemote(ctx, &opening, s, c)}
		checks = append(checks, a.examineWebhook(ctx, &opening, c)...)
		return append(checks, a.examineSink(ctx, &opening, c, mine)...)
	})
}

// examineRemote looks at the repository's head as the reconciler does.
func (a *App) examineRemote(ctx context.Context, opening *sync.Mutex, s *sourcing, c config.Source) doctor.Check {
	check := doctor.Check{Subject: "source " + string(c.Route), Name: "repository", Status: doctor.Fail}
	opening.Lock()
	remote, err := a.sourceRemote(s, c)
	opening.Unlock()
	if err != nil {
		check.Seen, check.Mend = err.Error(), "correct the source's section"
		return check
	}
	o, err := remote.Observe(ctx)
	if err != nil {
		why := fencepost.ReasonOf(err)
		check.Seen, check.Want, check.Mend = string(why), "identity, "+c.Ref+" and credential proven", mendOf(why)
		return check
	}
	check.Status, check.Seen = doctor.OK, "identity proven, "+strings.TrimPrefix(c.Ref, "refs/heads/")+" at "+o.Head.String()[:12]
	return check
}

// mendOf says what to do where a repository can't be observed.
func mendOf(why fencepost.Reason) string {
	switch why {
	case fencepost.ReasonCredential:
		return "see that the credential is valid, not expired, and may read the repository"
	case fencepost.ReasonIdentity:
		return "the name leads to another repository or owner: correct repository.id, owner_id and name if that is meant"
	case fencepost.ReasonRateLimited:
		return "try again later"
	}
	return "docs/reasons.md says of " + string(why) + " what to do"
}

// examineSink tries the place where content goes, as `serve` does at its
// start; what a program does can't be tried.
func (a *App) examineSink(ctx context.Context, opening *sync.Mutex, c config.Source, mine bool) []doctor.Check {
	check := doctor.Check{Subject: "source " + string(c.Route), Name: "sink", Status: doctor.Skipped}
	switch {
	case c.Sink.Kind == config.SinkProgram:
		check.Seen = "a program runs only with content"
		return []doctor.Check{check}
	case a.fetch == nil:
		check.Seen = "there is no place to try it from"
		return []doctor.Check{check}
	case !mine:
		check.Seen = "it is tried by the service's user alone, whose data directory is there"
		return []doctor.Check{check}
	}
	opening.Lock()
	to, err := a.sourceSink(c)
	opening.Unlock()
	if err == nil {
		err = to.Probe(ctx)
	}
	if err == nil {
		check.Status, check.Seen = doctor.OK, "its place works"
		return []doctor.Check{check}
	}
	check.Status, check.Seen, check.Mend = doctor.Fail, string(fencepost.ReasonOf(err)), "see that its database is up, and that its user may use it"
	if place, ok := errors.AsType[*sink.PlaceError](err); ok {
		check.Seen, check.Mend = place.What, place.Mend
	}
	return []doctor.Check{check}
}
