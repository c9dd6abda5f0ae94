package app

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/config"
	"github.com/fencepost/fencepost/internal/jobkeys"
)

// ErrRestart: the new configuration differs in more than keys, which only a
// start can take over.
var ErrRestart = errors.New("only keys can be changed without a restart")

// Reload takes over the keys of a newly loaded configuration: new ones are
// trusted and those that are gone are revoked, from the next look at a
// request on. No request is dropped. Either all sets change or none; on an
// error the old keys stay. It is called by one caller at a time. Its error matches [ErrRestart] when something else
// differs too.
func (a *App) Reload(_ context.Context, next *config.Config) error {
	if err := a.onlyKeysDiffer(next); err != nil {
		return err
	}
	public, err := jobAnchors(next, a.LookupEnv)
	if err != nil {
		return err
	}
	rings, err := keyrings(next, a.LookupEnv)
	if err != nil {
		return err
	}
	if err := a.exchangeJobKeys(public, mostAnchors(next, true)); err != nil {
		for _, ring := range rings {
			ring.Zero()
		}
		return err
	}
	// A set costs no less than its size: while it grows or shrinks, all the
	// others already, or still, cost as much.
	work := mostAnchors(next, false)
	a.work.set(max(a.work.get(), work))
	for name, ring := range rings {
		a.trust[name].exchange(ring)
	}
	a.work.set(work)
	return nil
}

func (a *App) onlyKeysDiffer(next *config.Config) error {
	now := a.Config
	if len(now.Trust) != len(next.Trust) {
		return fmt.Errorf("trust sets were added or removed: %w", ErrRestart)
	}
	for i := range now.Trust {
		if now.Trust[i].Name != next.Trust[i].Name || now.Trust[i].Public() != next.Trust[i].Public() {
			return fmt.Errorf("trust sets were added or removed: %w", ErrRestart)
		}
	}
	if len(now.Gates) != len(next.Gates) {
		return fmt.Errorf("gates were added or removed: %w", ErrRestart)
	}
	for i := range now.Gates {
		if now.Gates[i].Route != next.Gates[i].Route || now.Gates[i].Digest != next.Gates[i].Digest {
			return fmt.Errorf("the policy of gate %s changed: %w", now.Gates[i].Route, ErrRestart)
		}
	}
	if len(now.Sources) != len(next.Sources) {
		return fmt.Errorf("sources were added or removed: %w", ErrRestart)
	}
	for i := range now.Sources {
		if now.Sources[i].Route != next.Sources[i].Route || now.Sources[i].Digest != next.Sources[i].Digest {
			return fmt.Errorf("the policy of source %s changed: %w", now.Sources[i].Route, ErrRestart)
		}
	}
	// Everything else: bounds, listeners, stores.
	before, after := *now, *next
	for _, c := range []*config.Config{&before, &after} {
		c.Trust, c.Gates, c.Sources, c.Warnings = nil, nil, nil, nil
	}
	if !reflect.DeepEqual(before, after) {
		return fmt.Errorf("something else than keys changed: %w", ErrRestart)
	}
	return nil
}

// exchangeJobKeys takes over all sets of public keys, or none of them.
func (a *App) exchangeJobKeys(public map[fencepost.TrustSetName][]jobkeys.Anchor, work int) error {
	// Each is tried on a set of its own first, so that nothing has to be undone.
	for name, anchors := range public {
		if err := jobkeys.NewSet(name).Exchange(anchors); err != nil {
			return fmt.Errorf("trust.%s: %w", name, err)
		}
	}
	a.jobWork.set(max(a.jobWork.get(), work))
	for name, anchors := range public {
		if err := a.jobTrust[name].Exchange(anchors); err != nil {
			return fmt.Errorf("trust.%s: %w", name, err)
		}
	}
	a.jobWork.set(work)
	return nil
}
