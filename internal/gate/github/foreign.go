package github

import (
	"context"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/fencepost/fencepost"
)

type statusesAnswer struct {
	Statuses []struct {
		ID      int64  `json:"id"`
		Context string `json:"context"`
	} `json:"statuses"`
}

// foreign lists what bears our check's name on a commit and is not a run of
// our App: a required check is met by any of them as well as by ours, or is
// met only when all are. Runs of our App count as foreign too where mine is
// false. The ids are sorted, with what they are in front.
func (l *Lane) foreign(ctx context.Context, name string, id fencepost.CommitID, mine bool) ([]string, error) {
	var runs, statuses []string
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return l.runs(ctx, l.listRuns(name, l.config.Check, id), func(run checkRun) error {
			if run.Name == l.config.Check && !(mine && run.by(l.client.app.ID)) {
				runs = append(runs, "run "+strconv.FormatInt(run.ID, 10))
			}
			return nil
		})
	})
	g.Go(func() error {
		k := l.call("get combined status", name, "/commits/"+id.String()+"/status", url.Values{"per_page": {"100"}})
		return pages(ctx, l.client, k, func(page statusesAnswer) error {
			for _, s := range page.Statuses {
				// Contexts of statuses do not distinguish case.
				if strings.EqualFold(s.Context, l.config.Check) {
					statuses = append(statuses, "status "+strconv.FormatInt(s.ID, 10))
				}
			}
			return nil
		})
	})
	if err := g.Wait(); err != nil {
		return nil, err
	}
	found := append(runs, statuses...)
	slices.Sort(found)
	return slices.Compact(found), nil
}
