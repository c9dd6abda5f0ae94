package doctor

import (
	"fmt"
	"time"

	"github.com/fencepost/fencepost/webhook"
)

// A Pin is a public key that a configuration names.
type Pin struct {
	// ID is its anchor's.
	ID string
	// Thumbprint is the key's.
	Thumbprint webhook.Thumbprint
	// From and Until are its window; zero: no such end.
	From, Until time.Time
}

// live reports whether the pin is in its window.
func (p Pin) live(now time.Time) bool {
	return webhook.JobAnchor{From: p.From, Until: p.Until}.Live(now)
}

// JobKeys holds the keys that an issuer publishes now against those that are
// pinned, and gives for each that is not the line of configuration that pins
// it. It pins nothing itself: a person compares the thumbprint on another way.
func JobKeys(subject string, keys []webhook.JWK, pins []Pin, now time.Time) []Check {
	c := Check{Subject: subject, Name: "issuer.keys", Status: OK, Seen: fmt.Sprintf("%d published", len(keys))}
	if len(keys) == 0 {
		c.Status, c.Mend = Fail, "see that issuer is the instance's own URL"
	}
	all := []Check{c}
	present := map[webhook.Thumbprint]bool{}
	trusted := 0
	for _, k := range keys {
		present[k.Thumbprint] = true
		one := judgeKey(subject, k.Thumbprint, pins, now)
		if one.Status == OK {
			trusted++
		}
		all = append(all, one)
	}
	for _, p := range pins {
		if !present[p.Thumbprint] && p.live(now) {
			all = append(all, Check{
				Subject: subject, Name: "issuer.pin " + p.ID, Status: Warn, Seen: p.Thumbprint.String() + " is pinned and not published",
				Mend: "if the instance has rotated it, let its window end (until:), or take it out",
			})
		}
	}
	if trusted == 0 && len(keys) > 0 {
		all = append(all, Check{
			Subject: subject, Name: "issuer.trust", Status: Fail, Seen: "no key that is published is pinned and live: every job's token is refused",
			Mend: "compare a thumbprint with the instance's administrator, and pin it",
		})
	}
	return all
}

// judgeKey judges one that is published.
func judgeKey(subject string, key webhook.Thumbprint, pins []Pin, now time.Time) Check {
	c := Check{Subject: subject, Name: "issuer.key", Status: Warn, Seen: key.String() + " is published and not pinned"}
	c.Mend = fmt.Sprintf("if it is the instance's, add to the trust set: - {id: %s, thumbprint: %s}", now.UTC().Format("gitlab-2006-01-02"), key)
	for _, p := range pins {
		switch {
		case p.Thumbprint != key:
		case p.live(now):
			c.Status, c.Seen, c.Mend = OK, key.String()+" is pinned as "+p.ID, ""
			return c
		default:
			c.Seen, c.Mend = key.String()+" is pinned as "+p.ID+", out of its window", "give it another window, if it is to be trusted now"
		}
	}
	return c
}
