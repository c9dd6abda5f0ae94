package gitlab

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
)

// PageSize is how many items of a list are asked for at a time, the most that
// GitLab gives.
const PageSize = 100

// Pages reads a list to its end, page after page by the links between them,
// since totals are not always told, and calls each for every item. The path is
// below the base URL, with its query. found is false where there is no such
// list. Its error matches [forge.ErrTooManyPages] where it ended before the list did.
func Pages[T any](ctx context.Context, c *Client, op, path string, each func(T)) (found bool, err error) {
	for range c.MaxPages() {
		a, err := c.Get(ctx, op, path, "")
		if err != nil || !a.Found() {
			return false, err
		}
		var items []T
		if err := forge.Decode(op, a.Body, &items); err != nil {
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
	return true, forge.Fail(op, fencepost.ReasonProvider, forge.ErrTooManyPages)
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
			path, ours := strings.CutPrefix(strings.Trim(address, "<>"), c.API())
			if !ours || !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " #\\") || !strings.HasPrefix(address, "<") {
				return "", forge.Fail(op, fencepost.ReasonProvider, errors.New("the next page is said to be elsewhere"))
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
