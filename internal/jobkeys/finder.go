package jobkeys

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge/gitlab"
	"github.com/fencepost/fencepost/webhook"
)

// Path is where an instance publishes its keys, below its own URL.
const Path = "/oauth/discovery/keys"

// How often an issuer is asked.
const (
	// Interval is the pause between two looks while nothing is missing.
	Interval = time.Hour
	// Retry is the pause while something is, or after a look that failed.
	Retry = time.Minute
	// Pause is the least time between two looks, whoever wants one: tokens
	// that name unknown keys can be sent by anybody.
	Pause = 30 * time.Second
)

// Fetch asks an instance for its keys, once. The client is one of the
// instance's own URL that sends no token. Its error has a reason.
func Fetch(ctx context.Context, c *gitlab.Client) ([]webhook.JWK, error) {
	const op = "jobkeys.fetch"
	answer, err := c.Get(ctx, op, Path, "")
	if err != nil {
		return nil, err
	}
	if !answer.Found() {
		return nil, &fencepost.Error{Op: op, Reason: fencepost.ReasonProvider, Err: fmt.Errorf("the instance has no %s", Path)}
	}
	keys, err := webhook.ParseJWKS(answer.Body)
	if err != nil {
		return nil, &fencepost.Error{Op: op, Reason: fencepost.ReasonProvider, Err: err}
	}
	return keys, nil
}

// A Keeper keeps what was found; see [Store].
type Keeper interface {
	Keep(key webhook.JWK) error
}

// A Finder looks for the keys that a set pins by their thumbprints.
type Finder struct {
	Set *Set
	// Fetch asks the issuer.
	Fetch func(ctx context.Context) ([]webhook.JWK, error)
	// Store keeps what was found.
	Store Keeper
	// Report is told of each look; err is why it failed, or nil.
	Report func(state State, err error)
	Now    func() time.Time
	Log    *slog.Logger
}

// Run looks when it starts, at each interval, and when a key is wanted, until
// ctx ends. While the set pins nothing, it doesn't look. It returns nil.
func (f *Finder) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
			// What was wanted until now is looked for now.
			select {
			case <-f.Set.wanted:
			default:
			}
		case <-f.Set.wanted:
		}
		next := f.look(ctx)
		// Nobody is heard before the least pause is over; what is wanted
		// meanwhile is remembered.
		timer.Reset(min(next, Pause))
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(next - min(next, Pause))
	}
}

// look asks once, and says when to ask again.
func (f *Finder) look(ctx context.Context) time.Duration {
	if f.Set.State(f.Now()).Pinned == 0 {
		return Interval
	}
	keys, err := f.Fetch(ctx)
	if ctx.Err() != nil {
		return Retry
	}
	if err == nil {
		err = f.learn(keys)
	}
	st := f.Set.State(f.Now())
	if err == nil {
		f.Set.answered()
		if n := f.Set.Unpinned(keys); n > 0 {
			f.Log.Info("the instance has keys that are not pinned: what they sign is refused", "trust_set", string(f.Set.name), "keys", n)
		}
	} else {
		f.Log.Warn("the instance's keys could not be read", "trust_set", string(f.Set.name), "reason", string(fencepost.ReasonOf(err)))
	}
	if st.LiveMissing > 0 {
		f.Log.Warn("pinned keys were not found", "trust_set", string(f.Set.name), "missing", st.LiveMissing, "live", st.Live)
	}
	f.Report(st, err)
	if err != nil || st.Missing > 0 {
		return Retry
	}
	return Interval
}

func (f *Finder) learn(keys []webhook.JWK) error {
	fresh, err := f.Set.Learn(keys)
	if err != nil {
		return &fencepost.Error{Op: "jobkeys.learn", Reason: fencepost.ReasonProvider, Err: err}
	}
	for _, k := range fresh {
		f.Log.Info("found a pinned key", "trust_set", string(f.Set.name))
		// It is known all the same: only the next start has to look for it.
		if err := f.Store.Keep(k); err != nil {
			f.Log.Warn("a key that was found could not be kept", "trust_set", string(f.Set.name), "reason", string(fencepost.ReasonOf(err)))
		}
	}
	return nil
}
