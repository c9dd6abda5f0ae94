package github

import (
	"context"
	"errors"
	"net/url"
	"strings"

	"github.com/fencepost/fencepost"
)

// maxLink bounds a Link header that is looked at, in bytes.
const maxLink = 8 << 10

// nextPage returns the target of the rel="next" link of a Link header, or ""
// for none. Page URLs are never built by hand: a cursor is GitHub's own.
// RFC 8288 §3
func nextPage(link string) string {
	if len(link) > maxLink {
		return ""
	}
	for link != "" {
		_, rest, ok := strings.Cut(link, "<")
		if !ok {
			return ""
		}
		target, rest, ok := strings.Cut(rest, ">")
		if !ok {
			return ""
		}
		params := rest
		if i := strings.IndexByte(rest, '<'); i >= 0 {
			params, rest = rest[:i], rest[i:]
		} else {
			rest = ""
		}
		if hasRelNext(params) {
			return target
		}
		link = rest
	}
	return ""
}

// hasRelNext looks through `; rel="next"; title="…",`.
func hasRelNext(params string) bool {
	for p := range strings.SplitSeq(params, ";") {
		name, value, ok := strings.Cut(strings.Trim(p, " \t,"), "=")
		if !ok || !strings.EqualFold(strings.TrimSpace(name), "rel") {
			continue
		}
		for rel := range strings.FieldsSeq(strings.Trim(strings.TrimSpace(value), `"`)) {
			if strings.EqualFold(rel, "next") {
				return true
			}
		}
	}
	return false
}

// below returns target as a URL if it lies below base: same scheme, host and
// path prefix, no user. Anything else could carry a token to another host.
func below(base *url.URL, target string) (*url.URL, bool) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, false
	}
	u = base.ResolveReference(u)
	inside := u.Scheme == base.Scheme && strings.EqualFold(u.Host, base.Host) && u.User == nil && u.Fragment == "" &&
		strings.HasPrefix(u.EscapedPath(), strings.TrimSuffix(base.EscapedPath(), "/")+"/") &&
		!strings.Contains(u.EscapedPath(), "/../") && !strings.HasSuffix(u.EscapedPath(), "/..")
	return u, inside
}

// pages calls each with every page of a list, in order. A list of more pages
// than the limit is an error, since what was not read can't be ruled out.
func pages[T any](ctx context.Context, c *Client, k call, each func(T) error) error {
	for range c.limits.MaxPages {
		var page T
		header, err := c.do(ctx, k, &page)
		if err != nil {
			return err
		}
		if err := each(page); err != nil {
			return err
		}
		target := nextPage(header.Get("Link"))
		if target == "" {
			return nil
		}
		next, ok := below(c.base, target)
		if !ok {
			return providerError(k.op, "the next page lies outside of the API")
		}
		k.next = next
	}
	return &fencepost.Error{Op: k.op, Reason: fencepost.ReasonProvider, Err: errTooManyPages}
}

// errTooManyPages ends a list at the limit; what came before it was read.
var errTooManyPages = errors.New("the list has more pages than are read")

func providerError(op, text string) error {
	return &fencepost.Error{Op: op, Reason: fencepost.ReasonProvider, Err: errors.New(text)}
}
