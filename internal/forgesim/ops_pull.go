package forgesim

import (
	"net/http"
	"slices"
	"strings"
)

// pullOperations are the calls on pull requests.
func pullOperations() []route {
	return []route{
		read("/pulls", "pull_requests", listPulls),
		read("/pulls/{pull_number}", "pull_requests", getPull),
	}
}

// getPull is the one call that has the test merge refreshed. A merge that is
// due is made once the answer stands.
func getPull(f *Forge, c *call) answer {
	pr := c.repo.pull(int(c.number("pull_number")))
	if pr == nil {
		return notFound()
	}
	due, err := pr.refreshTestMerge(c.ctx)
	if err != nil {
		return failure(http.StatusInternalServerError, "Server Error")
	}
	shown, err := rendering{f}.pull(c.ctx, pr)
	if err == nil && due {
		err = pr.makeTestMerge(c.ctx)
	}
	if err != nil {
		return failure(http.StatusInternalServerError, "Server Error")
	}
	return found(dated(c, shown))
}

func listPulls(f *Forge, c *call) answer {
	var chosen []*PullRequest
	for _, pr := range c.repo.pulls {
		if c.wants(pr) {
			chosen = append(chosen, pr)
		}
	}
	updated := c.query.Get("sort") == "updated"
	slices.SortStableFunc(chosen, func(a, b *PullRequest) int {
		if order := a.updated.Compare(b.updated); updated && order != 0 {
			return order
		}
		return a.number - b.number
	})
	direction := c.query.Get("direction")
	if direction == "desc" || direction == "" && !c.query.Has("sort") || direction == "" && c.query.Get("sort") == "created" {
		slices.Reverse(chosen)
	}
	page, header := pageOf(c, chosen)
	shown := []object{}
	for _, pr := range page {
		shown = append(shown, dated(c, rendering{f}.pullSimple(pr)))
	}
	return found(shown).withHeader(header)
}

// wants reports whether a list's filters let a request through.
func (c *call) wants(pr *PullRequest) bool {
	state := c.query.Get("state")
	setDefault(&state, "open")
	if state != "all" && state != pr.state {
		return false
	}
	if base := c.query.Get("base"); base != "" && base != pr.baseBranch {
		return false
	}
	if head := c.query.Get("head"); head != "" && !strings.EqualFold(head, pr.head.owner.login+":"+pr.headBranch) {
		return false
	}
	return true
}
