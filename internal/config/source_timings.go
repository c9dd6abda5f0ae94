package config

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/fencepost/fencepost"
)

// timings holds a source's bounds against each other and against the target.
func (v *validator) timings(path string, s sourceTimings) fencepost.Timings {
	t := fencepost.Timings(s)
	if v.faultyWithin(path) {
		return t
	}
	if t.Renew > t.Lease/2 {
		v.refuse(path+".renew", "must be at most half of timings.lease (%s), is %s", t.Lease/2, t.Renew)
	}
	between := t.Reconcile + 2*t.Observe
	if t.AlertAfter <= between {
		v.refuse(path+".alert_after", "must be more than timings.reconcile and two timings.observe (%s), or every pause raises the alert; is %s", between, t.AlertAfter)
	}
	sums := t.Sums()
	complete, alert := fencepost.Total(sums.Complete), fencepost.Total(sums.Alert)
	// What an attempt takes that meets no trouble, after a lost webhook.
	once := between + t.QueueAge + 2*t.Observe + t.Checkout + t.Sink
	switch {
	case !t.Kept():
		v.refuse(path, "the freshness target of %s is kept neither by the path to complete, %s = %s, nor by the path to the alert, %s = %s; shorten alert_after or evaluate, or what a run may take",
			t.Target, sumText(sums.Complete), complete, sumText(sums.Alert), alert)
	case alert > t.Target:
		v.warn(path, "keeps the freshness target of %s by the path to complete alone (%s); the path to the alert takes %s, so that an outage can hide a change for longer: shorten alert_after",
			t.Target, complete, alert)
	case once > t.AlertAfter:
		v.warn(path, "lets one attempt take %s after a lost webhook, which is more than alert_after (%s): a slow run alone raises the alert", once, t.AlertAfter)
	}
	return t
}

// sumText is a sum's terms on one line: "reconcile 2m0s + observe 8×10s".
func sumText(terms []fencepost.Term) string {
	texts := make([]string, len(terms))
	for i, term := range terms {
		texts[i] = term.Name + " " + timesText(term.Times, term.Each)
	}
	return strings.Join(texts, " + ")
}

func timesText(times int, each time.Duration) string {
	if times == 1 {
		return each.String()
	}
	return fmt.Sprintf("%d×%s", times, each)
}

// overlaid is base with the fields of own that were written.
func (v *validator) overlaid(path string, base, own Fetch) Fetch {
	into, from := reflect.ValueOf(&base).Elem(), reflect.ValueOf(own)
	set := v.fieldsOf(from.Type())
	for _, name := range set.names {
		if v.given(path + "." + name) {
			index := set.byName[name].index
			into.FieldByIndex(index).Set(from.FieldByIndex(index))
		}
	}
	return base
}
