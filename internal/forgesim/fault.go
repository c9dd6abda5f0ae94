package forgesim

import (
	"context"
	"strings"
	"time"
)

// A Fault is something that goes wrong with the requests it matches. Faults
// are tried in the order of [Forge.Inject]; each matching one that has times
// left acts, so a delay and a lost answer can meet in one request.
type Fault struct {
	// On names the requests: an operation as the API's description writes it,
	// "POST /repos/{owner}/{repo}/check-runs", or one of the git operations
	// [GitAdvertise] and [GitFetch]. A trailing "*" matches every operation
	// that begins so; "" matches all.
	On string
	// Repository restricts the fault to requests of this repository; zero: any.
	Repository int64
	// Skip lets this many matching requests pass first.
	Skip int
	// Times is how many matching requests are met after that; zero means one,
	// negative means all until [Forge.Calm].
	Times int
	// Effect is what happens. Required.
	Effect Effect
}

// Operations of the git server, for [Fault.On] and [Forge.Count].
const (
	// GitAdvertise is the capability advertisement.
	GitAdvertise = "GET /{owner}/{repo}.git/info/refs"
	// GitFetch is the command request of protocol v2.
	GitFetch = "POST /{owner}/{repo}.git/git-upload-pack"
)

// An Effect is what a [Fault] does to one request. The set is closed.
//
//sumtype:decl
type Effect interface{ isEffect() }

type (
	// Delay makes the answer late. The request is handled first.
	Delay struct{ For time.Duration }

	// Fail answers Code with a body that fits it, without handling the
	// request. RetryAfter, where positive, is sent in whole seconds.
	Fail struct {
		Code       int
		RetryAfter time.Duration
	}

	// DropRequest closes the connection before the request is handled.
	DropRequest struct{}

	// DropAnswer closes the connection after the request was handled: what it
	// wrote stands, and nobody was told.
	DropAnswer struct{}

	// Truncate sends the first Bytes of the answer's body under the whole
	// one's length and closes the connection. Zero means half of the body.
	Truncate struct{ Bytes int }

	// Garble sends the first half of the body as if it were all: a JSON text
	// that ends too soon under a length that fits.
	Garble struct{}

	// Stale repeats the last answer that was given to the same URL, if there
	// is one: a read from a replica that lags.
	Stale struct{}

	// StaleRefs shows refs by ls-refs as they were: full ref name → object id.
	// It knows no ref that was made or deleted since. See
	// [Repository.FreezeRefs].
	StaleRefs struct{ Refs map[string]string }

	// HideRuns leaves the repository's newest N Check Runs out of a list.
	HideRuns struct{ N int }

	// PrimaryLimit answers that the hour's requests are used up: 403 with
	// x-ratelimit-remaining 0 and a reset In from now. Code, where set, is
	// sent instead of 403.
	PrimaryLimit struct {
		In   time.Duration
		Code int
	}

	// SecondaryLimit answers 403 with RetryAfter, requests remaining. Code,
	// where set, is sent instead of 403; a zero RetryAfter sends no header.
	SecondaryLimit struct {
		RetryAfter time.Duration
		Code       int
	}

	// NotYet answers as if the commit that the request names were not there.
	NotYet struct{}

	// ExpireToken makes the installation token of the request invalid from
	// this request on.
	ExpireToken struct{}

	// Redirect answers Code (default 302) with Location.
	Redirect struct {
		Code     int
		Location string
	}

	// Before runs Do before the request is handled, outside of the forge's
	// lock: a head that moves between two calls. Its error is answered as 500.
	Before struct {
		Do func(context.Context) error
	}

	// After runs Do after the request was handled and before it is answered.
	After struct {
		Do func(context.Context) error
	}
)

func (Delay) isEffect()          {}
func (Fail) isEffect()           {}
func (DropRequest) isEffect()    {}
func (DropAnswer) isEffect()     {}
func (Truncate) isEffect()       {}
func (Garble) isEffect()         {}
func (Stale) isEffect()          {}
func (StaleRefs) isEffect()      {}
func (HideRuns) isEffect()       {}
func (PrimaryLimit) isEffect()   {}
func (SecondaryLimit) isEffect() {}
func (NotYet) isEffect()         {}
func (ExpireToken) isEffect()    {}
func (Redirect) isEffect()       {}
func (Before) isEffect()         {}
func (After) isEffect()          {}

// An InjectedFault is a [Fault] in force.
type InjectedFault struct {
	forge *Forge
	fault Fault
	// Guarded by Forge.mu.
	seen, met int
	off       bool
}

// Inject puts a fault into force. It panics on a fault without an effect.
func (f *Forge) Inject(fault Fault) *InjectedFault {
	if fault.Effect == nil {
		panic("forgesim: fault without an effect")
	}
	if fault.Times == 0 {
		fault.Times = 1
	}
	injected := &InjectedFault{forge: f, fault: fault}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults = append(f.faults, injected)
	return injected
}

// Calm ends every fault. Hostility goes on.
func (f *Forge) Calm() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, injected := range f.faults {
		injected.off = true
	}
	f.faults = nil
}

// Met returns how many requests the fault has met.
func (i *InjectedFault) Met() int {
	i.forge.mu.Lock()
	defer i.forge.mu.Unlock()
	return i.met
}

// End ends the fault.
func (i *InjectedFault) End() {
	i.forge.mu.Lock()
	defer i.forge.mu.Unlock()
	i.off = true
}

// meet returns the effects for one request, in the order of injection.
func (f *Forge) meet(operation string, repository int64) []Effect {
	f.mu.Lock()
	defer f.mu.Unlock()
	var effects []Effect
	for _, i := range f.faults {
		if i.meets(operation, repository) {
			i.met++
			effects = append(effects, i.fault.Effect)
		}
	}
	return effects
}

func (i *InjectedFault) meets(operation string, repository int64) bool {
	if i.off || !i.fault.matches(operation, repository) {
		return false
	}
	i.seen++
	if i.seen <= i.fault.Skip {
		return false
	}
	return i.fault.Times < 0 || i.met < i.fault.Times
}

func (f Fault) matches(operation string, repository int64) bool {
	if f.Repository != 0 && f.Repository != repository {
		return false
	}
	if prefix, ok := strings.CutSuffix(f.On, "*"); ok {
		return strings.HasPrefix(operation, prefix)
	}
	return f.On == "" || f.On == operation
}
