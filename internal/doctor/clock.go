package doctor

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"
)

// How far a clock may be from a server's. A Date header has whole seconds, and
// the answer took its time.
const (
	driftSeen = 5 * time.Second
	// GitHub refuses an App whose clock is a minute off, as this program
	// allows for. contracts/github.md §4
	driftMost = time.Minute
)

// A Reach is a server to be reached.
type Reach struct {
	// Subject is who needs it, Name the check's.
	Subject, Name string
	URL           *url.URL
	// Healthy is the status that the answer must have; 0: any says that the
	// server is there.
	Healthy int
}

// Look asks a server once, without a credential, and holds our clock against
// its own. Redirects are not followed.
func Look(ctx context.Context, client *http.Client, r Reach, now func() time.Time) []Check {
	c := Check{Subject: r.Subject, Name: r.Name, Status: OK}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.URL.String(), http.NoBody)
	if err != nil {
		c.Status, c.Seen, c.Mend = Fail, "no URL that can be asked", "correct the URL"
		return []Check{c}
	}
	sent := now()
	resp, err := client.Do(req)
	if err != nil {
		c.Status, c.Seen = Fail, "no answer from "+r.URL.Host
		c.Mend = "see that the host's name is right, and that firewall, proxy and certificates let this machine reach it"
		return []Check{c}
	}
	received := now()
	// Only the header counts.
	if err := resp.Body.Close(); err != nil {
		c.Status, c.Seen, c.Mend = Fail, "the connection to "+r.URL.Host+" broke", "try again"
		return []Check{c}
	}
	c.Seen = fmt.Sprintf("%s answers", r.URL.Host)
	if r.Healthy != 0 && resp.StatusCode != r.Healthy {
		c.Status, c.Seen, c.Mend = Fail, fmt.Sprintf("%s answers %d", r.URL.Host, resp.StatusCode), "see that the URL is the service's own root"
	}
	date, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return []Check{c}
	}
	return []Check{c, drift(r, sent.Add(received.Sub(sent)/2).Sub(date.Add(time.Second/2)))}
}

// drift judges how far ahead our clock is.
func drift(r Reach, ahead time.Duration) Check {
	c := Check{Subject: r.Subject, Name: "clock", Status: OK, Seen: "within " + driftSeen.String() + " of " + r.URL.Host}
	by := ahead.Abs()
	if by <= driftSeen {
		return c
	}
	side := "ahead of"
	if ahead < 0 {
		side = "behind"
	}
	c.Status, c.Seen = Warn, fmt.Sprintf("%s %s %s", by.Round(time.Second), side, r.URL.Host)
	c.Mend = "synchronize this machine's clock (timedatectl set-ntp true), or the server's"
	if by > driftMost {
		c.Status = Fail
	}
	return c
}
