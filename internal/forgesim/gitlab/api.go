package gitlab

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/fencepost/fencepost/internal/forgesim"
)

// All functions here are called with Forge.mu held.

func getProject(c *call) { c.reply(c.project.render(c.level)) }

// onRequest finds the request that a path names.
func onRequest(serve func(*call, *MergeRequest)) func(*call) {
	return func(c *call) {
		m := c.project.request(c.number("iid"))
		if m == nil {
			c.fail(http.StatusNotFound, "")
			return
		}
		serve(c, m)
	}
}

func getRequest(c *call, m *MergeRequest) { c.reply(m.render()) }

func listRequests(c *call) {
	query := c.URL.Query()
	all := []object{}
	for _, m := range slices.Backward(c.project.requests) {
		state, target := query.Get("state"), query.Get("target_branch")
		if (state == "" || state == "all" || state == m.state) && (target == "" || target == m.target) {
			o := m.render()
			// A list computes nothing.
			delete(o, "diff_refs")
			delete(o, "head_pipeline")
			all = append(all, o)
		}
	}
	page(c, all)
}

func getMergeRef(c *call, m *MergeRequest) {
	if m.state == "opened" {
		if err := m.makeMergeRef(c.Context()); err != nil {
			c.fail(http.StatusInternalServerError, "")
			return
		}
	}
	if m.state != "opened" || m.conflicted {
		reply(c.ResponseWriter, http.StatusBadRequest, object{"message": "Merge request is not mergeable"})
		return
	}
	c.reply(object{"commit_id": m.ref})
}

// putMerge merges past the train, or joins it with auto_merge.
func putMerge(c *call, m *MergeRequest) {
	var ask struct {
		SHA       string `json:"sha"`
		AutoMerge bool   `json:"auto_merge"`
		SkipTrain bool   `json:"skip_merge_train"`
	}
	if err := decode(c.Request, &ask); err != nil {
		c.fail(http.StatusBadRequest, "")
		return
	}
	if ask.SHA != "" && ask.SHA != m.head {
		reply(c.ResponseWriter, http.StatusConflict, object{"message": "SHA does not match HEAD of source branch: " + m.head})
		return
	}
	var err error
	if ask.AutoMerge {
		_, err = m.join(c.Context(), c.by)
	} else {
		err = m.mergeNow(c.Context(), c.by, c.level, ask.SkipTrain)
	}
	switch {
	case errors.Is(err, ErrRefused):
		c.fail(http.StatusMethodNotAllowed, "")
	case err != nil:
		c.fail(http.StatusInternalServerError, "")
	default:
		c.reply(m.render())
	}
}

// listCars lists those of one branch, or of all.
func listCars(c *call) {
	query := c.URL.Query()
	all := []object{}
	for _, car := range c.project.cars {
		scope, branch := query.Get("scope"), c.PathValue("branch")
		switch {
		case car.status == "", branch != "" && branch != car.request.target,
			scope == "active" && !car.active(), scope == "complete" && car.active():
		default:
			all = append(all, car.render())
		}
	}
	if query.Get("sort") != "asc" {
		slices.Reverse(all)
	}
	page(c, all)
}

func getCar(c *call, m *MergeRequest) {
	if car := m.car(); car != nil {
		c.reply(car.render())
		return
	}
	for _, car := range slices.Backward(c.project.cars) {
		if car.request == m && car.status != "" {
			c.reply(car.render())
			return
		}
	}
	c.fail(http.StatusNotFound, "")
}

func postCar(c *call, m *MergeRequest) {
	var ask struct {
		SHA       string `json:"sha"`
		AutoMerge bool   `json:"auto_merge"`
		Squash    bool   `json:"squash"`
	}
	if err := decode(c.Request, &ask); err != nil || ask.SHA != "" && ask.SHA != m.head {
		c.fail(http.StatusConflict, "")
		return
	}
	m.squash = m.squash || ask.Squash
	switch car, err := m.join(c.Context(), c.by); {
	case errors.Is(err, ErrRefused):
		c.fail(http.StatusBadRequest, "")
	case err != nil:
		c.fail(http.StatusInternalServerError, "")
	default:
		reply(c.ResponseWriter, http.StatusCreated, []object{car.render()})
	}
}

func getPipeline(c *call) {
	pipe := c.project.pipeline(c.number("pipeline"))
	if pipe == nil || late(&pipe.unready) {
		c.fail(http.StatusNotFound, "Not found")
		return
	}
	c.reply(pipe.render())
}

func getJob(c *call) {
	j := c.project.job(c.number("job"))
	if j == nil || late(&j.unready) {
		c.fail(http.StatusNotFound, "Not found")
		return
	}
	c.reply(j.render())
}

// late counts down the reads that come too early.
func late(reads *int) bool {
	if *reads == 0 {
		return false
	}
	*reads--
	return true
}

func listProtected(c *call) {
	all := []object{}
	for i, b := range c.project.protected {
		all = append(all, b.render(i+1))
	}
	page(c, all)
}

func getProtected(c *call) {
	for i, b := range c.project.protected {
		if b.Name == c.PathValue("name") {
			c.reply(b.render(i + 1))
			return
		}
	}
	c.fail(http.StatusNotFound, "Not found")
}

func getBranch(c *call) {
	name := c.PathValue("branch")
	p := c.project
	commit, err := p.under.Commit(c.Context(), p.under.Ref("refs/heads/"+name))
	if err != nil {
		c.fail(http.StatusNotFound, "Branch Not Found")
		return
	}
	c.reply(object{
		"name": name, "commit": p.commit(commit), "protected": p.protects(name), "default": name == p.under.DefaultBranch(),
		"can_push": c.level >= Maintainer, "merged": false, "developers_can_push": false, "developers_can_merge": false,
		"web_url": p.web() + "/-/tree/" + name,
	})
}

// commit is a commit as the API shows it: without its tree.
func (p *Project) commit(c forgesim.Commit) object {
	title, _, _ := strings.Cut(c.Message, "\n")
	return object{
		"id": c.ID, "short_id": c.ID[:8], "parent_ids": list(c.Parents), "title": title, "message": c.Message,
		"author_name": c.AuthorName, "author_email": c.AuthorEmail, "committer_name": c.CommitterName, "committer_email": c.CommitterEmail,
		"created_at": stamp(p.made), "authored_date": stamp(p.made), "committed_date": stamp(p.made),
		"trailers": object{}, "extended_trailers": object{}, "web_url": p.web() + "/-/commit/" + c.ID,
	}
}

// resolve finds the commit of a branch's name or an id; "" for none.
func (c *call) resolve(ref string) string {
	if id := c.project.under.Ref("refs/heads/" + ref); id != "" {
		return id
	}
	if found, err := c.project.under.Commit(c.Context(), ref); err == nil {
		return found.ID
	}
	return ""
}

func getCommit(c *call) {
	found, err := c.project.under.Commit(c.Context(), c.resolve(c.PathValue("sha")))
	if err != nil {
		c.fail(http.StatusNotFound, "Commit Not Found")
		return
	}
	o := c.project.commit(found)
	o["last_pipeline"], o["status"], o["project_id"] = nil, nil, c.project.id
	for _, pipe := range c.project.pipelines {
		if pipe.sha == found.ID {
			o["last_pipeline"], o["status"] = pipe.render(), pipe.status()
		}
	}
	c.reply(o)
}

// compare lists what the second commit has that the first lacks, from where
// they parted.
func compare(c *call) {
	query := c.URL.Query()
	from, to := c.resolve(query.Get("from")), c.resolve(query.Get("to"))
	if from == "" || to == "" {
		c.fail(http.StatusNotFound, "Ref Not Found")
		return
	}
	commits, err := c.project.under.Between(c.Context(), from, to)
	if err != nil {
		c.fail(http.StatusInternalServerError, "")
		return
	}
	shown := []object{}
	for _, each := range commits {
		shown = append(shown, c.project.commit(each))
	}
	var last any
	if len(shown) > 0 {
		last = shown[len(shown)-1]
	}
	c.reply(object{"commit": last, "commits": shown, "diffs": []object{}, "compare_timeout": false, "compare_same_ref": from == to,
		"web_url": c.project.web() + "/-/compare/" + from + "..." + to})
}

func mergeBase(c *call) {
	refs := c.URL.Query()["refs[]"]
	if len(refs) < 2 {
		reply(c.ResponseWriter, http.StatusBadRequest, object{"message": "Provide at least 2 refs"})
		return
	}
	at := c.resolve(refs[0])
	for _, ref := range refs {
		id := c.resolve(ref)
		if id == "" {
			reply(c.ResponseWriter, http.StatusBadRequest, object{"message": "Could not find ref: " + ref})
			return
		}
		base, err := c.project.under.MergeBase(c.Context(), at, id)
		if err != nil {
			c.fail(http.StatusNotFound, "Merge Base Not Found")
			return
		}
		at = base
	}
	found, err := c.project.under.Commit(c.Context(), at)
	if err != nil {
		c.fail(http.StatusInternalServerError, "")
		return
	}
	c.reply(c.project.commit(found))
}

func getTree(c *call) {
	query := c.URL.Query()
	ref := query.Get("ref")
	if ref == "" {
		ref = c.project.under.DefaultBranch()
	}
	entries, err := c.project.under.Tree(c.Context(), c.resolve(ref), query.Get("path"), query.Get("recursive") == "true")
	if err != nil {
		c.fail(http.StatusNotFound, "Tree Not Found")
		return
	}
	all := []object{}
	for _, e := range entries {
		all = append(all, object{"id": e.ID, "name": path.Base(e.Path), "type": e.Type, "path": e.Path, "mode": e.Mode})
	}
	page(c, all)
}

// file reads the file of a path as of a ref, which has to be said.
func (c *call) file() (content []byte, blob, commit string, ok bool) {
	ref := c.URL.Query().Get("ref")
	if ref == "" {
		reply(c.ResponseWriter, http.StatusBadRequest, object{"error": "ref is missing"})
		return nil, "", "", false
	}
	if commit = c.resolve(ref); commit == "" {
		c.fail(http.StatusNotFound, "Commit Not Found")
		return nil, "", "", false
	}
	content, blob, err := c.project.under.File(c.Context(), commit, c.PathValue("path"))
	if err != nil {
		c.fail(http.StatusNotFound, "File Not Found")
		return nil, "", "", false
	}
	return content, blob, commit, true
}

func getFile(c *call) {
	content, blob, commit, ok := c.file()
	if !ok {
		return
	}
	name := c.PathValue("path")
	sum := sha256.Sum256(content)
	c.reply(object{
		"file_name": path.Base(name), "file_path": name, "size": len(content), "encoding": "base64",
		"content": base64.StdEncoding.EncodeToString(content), "content_sha256": hex.EncodeToString(sum[:]),
		"ref": c.URL.Query().Get("ref"), "blob_id": blob, "commit_id": commit, "last_commit_id": commit, "execute_filemode": false,
	})
}

func getRaw(c *call) {
	content, blob, commit, ok := c.file()
	if !ok {
		return
	}
	h := c.ResponseWriter.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Gitlab-Blob-Id", blob)
	h.Set("X-Gitlab-Commit-Id", commit)
	h.Set("X-Gitlab-File-Path", c.PathValue("path"))
	h.Set("X-Gitlab-Size", strconv.Itoa(len(content)))
	if _, err := c.ResponseWriter.Write(content); err != nil {
		panic(http.ErrAbortHandler)
	}
}
