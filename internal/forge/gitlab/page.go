package gitlab

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/fencepost/fencepost"
)

// ErrTooManyPages: a list has more pages than are read.
var ErrTooManyPages = errors.New("the list has more pages than are read")

// PageSize is how many items of a list are asked for at a time, the most that
// GitLab gives.
const PageSize = 100

// Pages reads a list to its end, page after page by the links between them,
// since totals are not always told, and calls each for every item. The path is
// below the base URL, with its query. found is false where there is no such
// list. Its error matches [ErrTooManyPages] where it ended before the list did.
func Pages[T any](ctx context.Context, c *Client, op, path string, each func(T)) (found bool, err error) {
	for range c.config.Limits.MaxPages {
		a, err := c.Get(ctx, op, path, "")
		if err != nil || !a.Found() {
			return false, err
		}
		var items []T
		if err := Decode(op, a.Body, &items); err != nil {
			return false, err
		}
		for _, item := range items {
			each(item)
		}
		if a.next == "" {
			return true, nil
		}
		path = a.next
	}
	return true, Fail(op, fencepost.ReasonProvider, ErrTooManyPages)
}

// nextPage is the path of the next page below the base URL; "" where there is
// none. A link that leads elsewhere is none that our token may follow.
func (c *Client) nextPage(op string, h http.Header) (string, error) {
	for _, line := range h.Values("Link") {
		for link := range strings.SplitSeq(line, ",") {
			address, parameters, _ := strings.Cut(link, ";")
			if !isNext(parameters) {
				continue
			}
			address = strings.TrimSpace(address)
			path, ours := strings.CutPrefix(strings.Trim(address, "<>"), c.base)
			if !ours || !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " #\\") || !strings.HasPrefix(address, "<") {
				return "", Fail(op, fencepost.ReasonProvider, errors.New("the next page is said to be elsewhere"))
			}
			return path, nil
		}
	}
	return "", nil
}

func isNext(parameters string) bool {
	for p := range strings.SplitSeq(parameters, ";") {
		if p = strings.TrimSpace(p); p == `rel="next"` || p == "rel=next" {
			return true
		}
	}
	return false
}
