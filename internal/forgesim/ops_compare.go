package forgesim

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// maxCompared is how many commits a comparison lists that is not paged.
const maxCompared = 250

// compareCommits tells how two commits stand to each other. Commits without a
// common one can't be compared.
func compareCommits(f *Forge, c *call) answer {
	from, to, ok := strings.Cut(c.path("basehead"), "...")
	base, head := c.repo.resolve(c.ctx, from), c.repo.resolve(c.ctx, to)
	if !ok || base == "" || head == "" {
		return notFound()
	}
	run := func(args ...string) (string, error) {
		return f.git.run(c.ctx, gitCall{dir: c.repo.dir, args: args})
	}
	common, err := run("merge-base", base, head)
	if exitedWith(err, 1) {
		return failure(http.StatusNotFound, "No common ancestor between "+from+" and "+to+".")
	}
	counts, err2 := run("rev-list", "--left-right", "--count", base+"..."+head)
	listed, err3 := run("rev-list", "--reverse", head, "^"+base)
	var behind, ahead int
	_, err4 := fmt.Sscan(counts, &behind, &ahead)
	for _, err := range []error{err, err2, err3, err4} {
		if err != nil {
			return missing(err)
		}
	}
	return c.comparison(f, comparison{base: base, head: head, common: common, ahead: ahead, behind: behind, ids: strings.Fields(listed)})
}

// A comparison is how head stands to base; ids are what it has in addition.
type comparison struct {
	base, head, common string
	ahead, behind      int
	ids                []string
}

func (x comparison) status() string {
	switch {
	case x.ahead > 0 && x.behind > 0:
		return "diverged"
	case x.ahead > 0:
		return "ahead"
	case x.behind > 0:
		return "behind"
	}
	return "identical"
}

// comparison renders one. What differs in content is left out.
func (c *call) comparison(f *Forge, x comparison) answer {
	page, header := x.ids[max(len(x.ids)-maxCompared, 0):], http.Header{}
	if c.query.Has("page") || c.query.Has("per_page") {
		page, header = pageOf(c, x.ids)
	}
	render := rendering{f}
	shown := func(id string) (object, error) {
		commit, err := c.repo.readCommit(c.ctx, id)
		if err != nil {
			return nil, err
		}
		return render.commit(c.repo, commit), nil
	}
	commits := []object{}
	for _, id := range page {
		o, err := shown(id)
		if err != nil {
			return missing(err)
		}
		commits = append(commits, o)
	}
	base, err := shown(x.base)
	if err != nil {
		return missing(err)
	}
	common, err := shown(x.common)
	if err != nil {
		return missing(err)
	}
	name := c.repo.fullName()
	web := f.webURL("/%s/compare/%s...%s", name, x.base, x.head)
	permanent := f.webURL("/%s/compare/%s:%.7s...%s:%.7s", name, strconv.FormatInt(c.repo.id, 10), x.base, strconv.FormatInt(c.repo.id, 10), x.head)
	return found(object{
		"url": f.apiURL("/repos/%s/compare/%s...%s", name, x.base, x.head), "html_url": web, "permalink_url": permanent,
		"diff_url": web + ".diff", "patch_url": web + ".patch", "base_commit": base, "merge_base_commit": common,
		"status": x.status(), "ahead_by": x.ahead, "behind_by": x.behind, "total_commits": len(x.ids), "commits": commits, "files": []object{},
	}).withHeader(header)
}
