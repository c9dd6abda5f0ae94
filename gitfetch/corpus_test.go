package gitfetch_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/metrics"
	"strings"
	"testing"
	"unicode"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// An attack is one row of the corpus: a repository, a pack or a server that
// no honest one would be, and how the fetch must end. docs/fetch.md shows the
// rows as they stand here.
type attack struct {
	name string // unique, and what it is in a few words
	from string // the rule, document or CVE that it is an instance of
	end  ending
	// scenes makes what the fetch meets: mostly one thing, or one for each
	// place at which the same thing goes wrong.
	scenes func(t *testing.T) []scene
}

// A scene is one server, and the fetch that is tried on it.
type scene struct {
	url    string
	commit fencepost.ObjectID
	change func(*gitfetch.Request)
	before func() // where set, what is to be done right before the fetch
	// most bytes that the fetch may allocate, the server's share included; 0
	// means usualBytes.
	most uint64
}

// usualBytes bounds what a fetch that is refused allocates altogether,
// garbage included: a packet's and a connection's buffers, the tables of an
// inflater, and the blocks of a spool.
const usualBytes = 12 << 20

// serverWords stands wherever the corpus lets a server speak. No error text
// may hold it.
const serverWords = "serverwords"

// A family is the attacks on one part.
type family struct {
	on      string
	attacks []attack
}

// corpus returns all of it.
func corpus() []family {
	return []family{
		{"HTTP", httpAttacks()}, {"TLS", tlsAttacks()}, {"time", timeAttacks()}, {"refs", pktAttacks()}, {"answer", answerAttacks()},
		{"pack", packAttacks()}, {"delta", deltaAttacks()}, {"damage", damageAttacks()}, {"object", objectAttacks()}, {"tree", treeAttacks()},
		{"name", nameAttacks()}, {"link", linkAttacks()}, {"bomb", bombAttacks()}, {"inert", inertAttacks()},
	}
}

func attacks() []attack {
	var all []attack
	for _, f := range corpus() {
		all = append(all, f.attacks...)
	}
	return all
}

// TestHostileCorpus runs the corpus, one fetch at a time: what it allocates
// is read from the runtime, which counts for the whole process.
func TestHostileCorpus(t *testing.T) {
	seen := make(map[string]bool)
	for _, a := range attacks() {
		if seen[a.name] {
			t.Errorf("two rows are called %q", a.name)
		}
		seen[a.name] = true
		t.Run(a.name, func(t *testing.T) { a.run(t) })
	}
	if len(seen) < 150 {
		t.Errorf("%d rows", len(seen))
	}
}

func (a *attack) run(t *testing.T) { a.runIn(t, t.TempDir()) }

// runIn runs all scenes of a row in a fresh directory.
func (a *attack) runIn(t *testing.T, outer string) {
	leak := goleak.IgnoreCurrent()
	// Cleanups run last first: the servers are gone when this looks.
	t.Cleanup(func() {
		if err := goleak.Find(leak); err != nil {
			t.Errorf("goroutines left: %v", err)
		}
	})
	base := filepath.Join(outer, "base")
	err := errors.Join(
		os.Mkdir(base, 0o755),
		os.WriteFile(filepath.Join(outer, "secret"), []byte("not to be read"), 0o600),
		os.WriteFile(filepath.Join(base, "kept"), []byte("not to be touched"), 0o644),
	)
	if err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, outer)
	for i, s := range a.scenes(t) {
		a.play(t, i, s, base)
		if diff := cmp.Diff(before, snapshot(t, outer)); diff != "" {
			t.Fatalf("scene %d left something behind (-before +after):\n%s", i, diff)
		}
	}
}

func (a *attack) play(t *testing.T, i int, s scene, base string) {
	t.Helper()
	req := gitfetch.Request{URL: s.url, Commit: fencepost.CommitID{ObjectID: s.commit}, AllowHTTP: true, Dir: filepath.Join(base, "out")}
	if s.change != nil {
		s.change(&req)
	}
	if s.before != nil {
		s.before()
	}
	start := allocated()
	c, err := gitfetch.Fetch(t.Context(), req)
	spent := allocated() - start
	if most := max(s.most, usualBytes); spent > most {
		t.Errorf("scene %d: allocated %d KiB, more than %d", i, spent>>10, most>>10)
	}
	a.end.check(t, i, err)
	if err == nil {
		if err := errors.Join(c.Verify(t.Context()), c.Remove()); err != nil {
			t.Errorf("scene %d: %v", i, err)
		}
	} else if c != nil {
		t.Errorf("scene %d: a checkout beside %v", i, err)
	}
}

// allocated is what this process ever allocated.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// snapshot lists everything below a directory with its content and, of all
// but directories, its time.
func snapshot(t *testing.T, root string) []string {
	t.Helper()
	var got []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		line := fmt.Sprintf("%s %v", path, info.Mode())
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			line += fmt.Sprintf(" %q %v", content, info.ModTime())
		}
		got = append(got, line)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// An ending is how a fetch must end. One field is set; none means that the
// tree is written as it is stored, and nothing else happens.
type ending struct {
	is     error           // a sentinel
	budget gitfetch.Budget // a BudgetError of this budget
	rule   string          // a PathError of this rule
	remote string          // a RemoteError with this text
	status int             // a StatusError with this status
	typed  bool            // any error that can be matched
	reason fencepost.Reason
}

func fails(sentinel error) ending { return ending{is: sentinel, reason: fencepost.ReasonAcquisition} }
func over(budget gitfetch.Budget) ending {
	return ending{budget: budget, reason: fencepost.ReasonAcquisition}
}
func breaks(rule string) ending                    { return ending{rule: rule, reason: fencepost.ReasonContent} }
func said(text string) ending                      { return ending{remote: text, reason: fencepost.ReasonAcquisition} }
func status(code int) ending                       { return ending{status: code, reason: fencepost.ReasonAcquisition} }
func anyError() ending                             { return ending{typed: true, reason: fencepost.ReasonAcquisition} }
func asStored() ending                             { return ending{} }
func (e ending) because(r fencepost.Reason) ending { e.reason = r; return e }

// sentinels are those that a fetch's errors match, by the names that the
// documentation calls them.
func sentinels() map[error]string {
	return map[error]string{
		gitfetch.ErrConnection: "ErrConnection", gitfetch.ErrTLS: "ErrTLS", gitfetch.ErrProtocol: "ErrProtocol", gitfetch.ErrNotV2: "ErrNotV2",
		gitfetch.ErrUnsupported: "ErrUnsupported", gitfetch.ErrObjectFormat: "ErrObjectFormat", gitfetch.ErrRejected: "ErrRejected",
		gitfetch.ErrNotOurRef: "ErrNotOurRef", gitfetch.ErrRedirect: "ErrRedirect", gitfetch.ErrAddress: "ErrAddress",
		gitfetch.ErrCredential: "ErrCredential", gitfetch.ErrNotFound: "ErrNotFound", gitfetch.ErrRateLimited: "ErrRateLimited",
		gitfetch.ErrPack: "ErrPack", gitfetch.ErrObject: "ErrObject", gitfetch.ErrCollision: "ErrCollision", gitfetch.ErrNotCommit: "ErrNotCommit",
		gitfetch.ErrMissingObject: "ErrMissingObject", gitfetch.ErrExtraObject: "ErrExtraObject", gitfetch.ErrContent: "ErrContent",
	}
}

// String is the cell of the documentation.
func (e ending) String() string {
	switch {
	case e.is != nil:
		return "`" + sentinels()[e.is] + "`"
	case e.budget != "":
		return "budget `" + string(e.budget) + "`"
	case e.rule != "":
		return "rule `" + e.rule + "`"
	case e.remote != "":
		return "`RemoteError`"
	case e.status != 0:
		return fmt.Sprintf("`StatusError` %d", e.status)
	case e.typed:
		return "an error of these"
	}
	return "written as stored"
}

func (e ending) check(t *testing.T, scene int, err error) {
	t.Helper()
	if !e.matches(err) {
		t.Errorf("scene %d: err = %v, want %s", scene, err, e)
	}
	if err == nil {
		return
	}
	if got := fencepost.ReasonOf(err); got != e.reason {
		t.Errorf("scene %d: err = %v with reason %s, want %s", scene, err, got, e.reason)
	}
	const longest = 2 << 10 // a path of 512 bytes, quoted, and some words
	text := err.Error()
	odd := strings.IndexFunc(text, func(r rune) bool { return !unicode.IsPrint(r) && r != '\n' })
	if odd >= 0 || len(text) > longest || strings.Contains(strings.ToLower(text), serverWords) {
		t.Errorf("scene %d: text of %d bytes, %q", scene, len(text), text)
	}
}

func (e ending) matches(err error) bool {
	budget, isBudget := errors.AsType[*gitfetch.BudgetError](err)
	path, isPath := errors.AsType[*gitfetch.PathError](err)
	remote, isRemote := errors.AsType[*gitfetch.RemoteError](err)
	status, isStatus := errors.AsType[*gitfetch.StatusError](err)
	switch {
	case e.is != nil:
		return errors.Is(err, e.is)
	case e.budget != "":
		return isBudget && budget.Budget == e.budget
	case e.rule != "":
		return isPath && path.Rule == e.rule && errors.Is(err, gitfetch.ErrContent)
	case e.remote != "":
		return isRemote && remote.Text == e.remote
	case e.status != 0:
		return isStatus && status.Status == e.status
	case e.typed:
		for sentinel := range sentinels() {
			if errors.Is(err, sentinel) {
				return true
			}
		}
		return isBudget
	}
	return err == nil
}

// corpusTable is the corpus as docs/fetch.md shows it: a line for each way to
// end, the attacks of one family together.
func corpusTable() string {
	var b strings.Builder
	b.WriteString("| on | ends with | attacks |\n| --- | --- | --- |\n")
	for _, f := range corpus() {
		var ends []string
		rows := make(map[string]*bySource)
		for _, a := range f.attacks {
			end := a.end.String()
			if rows[end] == nil {
				ends, rows[end] = append(ends, end), new(bySource)
			}
			rows[end].add(a)
		}
		for _, end := range ends {
			fmt.Fprintf(&b, "| %s | %s | %s |\n", f.on, end, rows[end])
		}
	}
	return b.String()
}

// bySource lists attacks by what they are instances of, in the order in which
// that first came.
type bySource struct {
	order []string
	names map[string][]string
}

func (s *bySource) add(a attack) {
	if s.names == nil {
		s.names = make(map[string][]string)
	}
	if s.names[a.from] == nil {
		s.order = append(s.order, a.from)
	}
	s.names[a.from] = append(s.names[a.from], a.name)
}

// String is one cell of the table.
func (s *bySource) String() string {
	var parts []string
	for _, from := range s.order {
		parts = append(parts, fmt.Sprintf("%s: %s", cell(from), cell(strings.Join(s.names[from], "; "))))
	}
	return strings.Join(parts, ". ")
}

// cell keeps Markdown from reading a name as anything but text.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "*", `\*`, "_", `\_`, "<", "&lt;", "~", `\~`, "`", "\\`").Replace(s)
}

// TestTheCorpusCoversKnownAttacks names what was found in Git, go-git and
// gitoxide over the years in just what this package does.
func TestTheCorpusCoversKnownAttacks(t *testing.T) {
	t.Parallel()
	covered := make(map[string]bool)
	for _, a := range attacks() {
		for word := range strings.FieldsSeq(a.from) {
			covered[strings.Trim(word, ",;()")] = true
		}
	}
	for _, cve := range []string{
		"CVE-2014-9390", "CVE-2017-15298", "CVE-2018-11235", "CVE-2018-17456", "CVE-2019-1351", "CVE-2019-1352", "CVE-2019-1353", "CVE-2019-1354",
		"CVE-2019-1387", "CVE-2019-19604", "CVE-2020-5260", "CVE-2020-11008", "CVE-2021-21300", "CVE-2022-23521", "CVE-2023-23946",
		"CVE-2024-32002", "CVE-2024-35197", "CVE-2025-48384", "CVE-2025-48385", "CVE-2026-41506", "CVE-2026-44471", "CVE-2026-71556",
	} {
		if !covered[cve] {
			t.Errorf("no row for %s", cve)
		}
	}
}
