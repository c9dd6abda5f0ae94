package forgesim

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// zeroID stands for no object in pushes.
const zeroID = "0000000000000000000000000000000000000000"

// A Change is what one commit changes. Paths are relative, with slashes; they
// are written as they are, so a test can make what no working copy could.
type Change struct {
	// Files are written: path → content.
	Files map[string]string
	// Modes are the files' modes where they are not 100644: "100755", or
	// "120000" for a symlink whose content is its target.
	Modes map[string]string
	// Delete are removed.
	Delete []string
	// Message is the commit's; default "Change".
	Message string
}

func (c Change) empty() bool { return len(c.Files) == 0 && len(c.Delete) == 0 && c.Message == "" }

// initBare makes a bare repository whose attributes change no byte.
func (g *gitRunner) initBare(ctx context.Context, dir string) error {
	if _, err := g.run(ctx, gitCall{args: []string{"init", "-q", "--bare", "--template=", "--object-format=sha1", dir}}); err != nil {
		return err
	}
	info := filepath.Join(dir, "info")
	if err := os.MkdirAll(info, 0o700); err != nil {
		return err
	}
	attributes := []byte("* -text -filter -ident -working-tree-encoding\n")
	return os.WriteFile(filepath.Join(info, "attributes"), attributes, 0o600)
}

// fill brings the first content. Called with mu held.
func (r *Repository) fill(ctx context.Context, in Import) error {
	ref := "refs/heads/" + r.defaultBranch
	if in.Source == "" {
		_, err := r.commit(ctx, ref, "", Change{Files: in.Files, Message: "First content"})
		return err
	}
	source, err := filepath.Abs(in.Source)
	if err != nil {
		return err
	}
	isRepository, err := isGitRepository(source)
	if err != nil {
		return err
	}
	if isRepository {
		return r.fetchFrom(ctx, source, in.Depth, "+HEAD:"+ref)
	}
	return r.addDirectory(ctx, source, ref)
}

func isGitRepository(dir string) (bool, error) {
	if info, err := os.Stat(dir); err != nil {
		return false, err
	} else if !info.IsDir() {
		return false, fmt.Errorf("%s: %w", dir, errors.New("not a directory"))
	}
	for _, mark := range []string{".git", "HEAD"} {
		if _, err := os.Stat(filepath.Join(dir, mark)); err == nil {
			if mark == ".git" {
				return true, nil
			}
			_, err := os.Stat(filepath.Join(dir, "objects"))
			return err == nil, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}

// fetchFrom fetches from another repository on this disk.
func (r *Repository) fetchFrom(ctx context.Context, dir string, depth int, refspec string) error {
	args := []string{"fetch", "-q", "--no-tags", "--no-write-fetch-head"}
	if depth > 0 {
		args = append(args, "--depth="+strconv.Itoa(depth))
	}
	from := url.URL{Scheme: "file", Path: filepath.ToSlash(dir)}
	_, err := r.forge.git.run(ctx, gitCall{dir: r.dir, args: append(args, from.String(), refspec)})
	return err
}

// addDirectory makes one commit of a directory's files.
func (r *Repository) addDirectory(ctx context.Context, dir, ref string) error {
	index := filepath.Join(r.dir, "import-index")
	defer os.Remove(index)
	env := []string{"GIT_INDEX_FILE=" + index}
	git := r.forge.git
	add := []string{"--work-tree=" + dir, "add", "--all", "--force", "--", "."}
	if _, err := git.run(ctx, gitCall{dir: r.dir, args: add, env: env}); err != nil {
		return err
	}
	tree, err := git.run(ctx, gitCall{dir: r.dir, args: []string{"write-tree"}, env: env})
	if err != nil {
		return err
	}
	commit, err := git.run(ctx, gitCall{dir: r.dir, args: []string{"commit-tree", tree, "-m", "Import"}})
	if err != nil {
		return err
	}
	return r.setRef(ctx, ref, commit)
}

// commit makes a commit with parent (empty: none) and points ref at it.
// Called with mu held.
func (r *Repository) commit(ctx context.Context, ref, parent string, c Change) (string, error) {
	setDefault(&c.Message, "Change")
	var in bytes.Buffer
	who := fmt.Sprintf("Fencepost Forge <forge@forge.invalid> %d +0000", r.forge.now().Unix())
	fmt.Fprintf(&in, "commit %s\nmark :1\nauthor %s\ncommitter %s\ndata %d\n%s\n", ref, who, who, len(c.Message), c.Message)
	if parent != "" {
		fmt.Fprintf(&in, "from %s\n", parent)
	}
	for _, path := range slices.Sorted(slices.Values(c.Delete)) {
		fmt.Fprintf(&in, "D %s\n", quotePath(path))
	}
	for _, path := range sortedKeys(c.Files) {
		mode := c.Modes[path]
		setDefault(&mode, "100644")
		fmt.Fprintf(&in, "M %s inline %s\ndata %d\n%s\n", mode, quotePath(path), len(c.Files[path]), c.Files[path])
	}
	in.WriteString("\nget-mark :1\ndone\n")
	out, err := r.forge.git.run(ctx, gitCall{
		dir: r.dir, args: []string{"fast-import", "--quiet", "--force", "--done", "--date-format=raw"}, stdin: in.Bytes(),
	})
	if err != nil {
		return "", err
	}
	r.refs[ref] = out
	return out, nil
}

// quotePath writes a path as git fast-import reads it, whatever bytes it has.
func quotePath(path string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i := range len(path) {
		if c := path[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' {
			fmt.Fprintf(&b, `\%03o`, c)
		} else {
			b.WriteByte(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// setRef points a ref, or deletes it with an empty id. Called with mu held.
func (r *Repository) setRef(ctx context.Context, ref, id string) error {
	args := []string{"update-ref", ref, id}
	if id == "" {
		args = []string{"update-ref", "-d", ref}
	}
	if _, err := r.forge.git.run(ctx, gitCall{dir: r.dir, args: args}); err != nil {
		return err
	}
	if id == "" {
		delete(r.refs, ref)
	} else {
		r.refs[ref] = id
	}
	return nil
}

// loadRefs reads every ref from git. Called with mu held.
func (r *Repository) loadRefs(ctx context.Context) error {
	out, err := r.forge.git.run(ctx, gitCall{dir: r.dir, args: []string{"for-each-ref", "--format=%(objectname) %(refname)"}})
	if err != nil {
		return err
	}
	clear(r.refs)
	for line := range strings.Lines(out) {
		id, ref, ok := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if ok {
			r.refs[ref] = id
		}
	}
	return nil
}

// A commitObject is a commit as git has it.
type commitObject struct {
	sha, tree         string
	parents           []string
	author, committer signature
	message           string
}

// A signature is who and when, of a commit.
type signature struct {
	name, email string
	when        time.Time
}

// maxCachedCommits bounds what is remembered of a repository's commits.
const maxCachedCommits = 4096

// readCommit reads a commit; [ErrNotFound] where the repository has no commit
// of that id. Called with mu held.
func (r *Repository) readCommit(ctx context.Context, sha string) (commitObject, error) {
	if !isObjectID(sha) {
		return commitObject{}, fmt.Errorf("commit: %w", ErrNotFound)
	}
	if c, ok := r.commits[sha]; ok {
		return c, nil
	}
	out, err := r.forge.git.run(ctx, gitCall{dir: r.dir, args: []string{"cat-file", "commit", sha}})
	if exitedWith(err, 128) {
		return commitObject{}, fmt.Errorf("commit %s: %w", sha, ErrNotFound)
	}
	if err != nil {
		return commitObject{}, fmt.Errorf("commit %s: %w", sha, err)
	}
	head, message, _ := strings.Cut(out, "\n\n")
	c := commitObject{sha: sha, message: message}
	for line := range strings.Lines(head) {
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		switch key {
		case "tree":
			c.tree = value
		case "parent":
			c.parents = append(c.parents, value)
		case "author":
			c.author = parseSignature(value)
		case "committer":
			c.committer = parseSignature(value)
		}
	}
	if len(r.commits) >= maxCachedCommits {
		clear(r.commits)
	}
	r.commits[sha] = c
	return c, nil
}

// parseSignature reads "name <email> seconds zone" as far as it goes: history
// is full of odd ones.
func parseSignature(s string) signature {
	name, rest, _ := strings.Cut(s, " <")
	email, date, _ := strings.Cut(rest, "> ")
	seconds, _, _ := strings.Cut(date, " ")
	n, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		n = 0
	}
	return signature{name: name, email: email, when: time.Unix(n, 0).UTC()}
}

func isObjectID(s string) bool {
	if len(s) != 40 {
		return false
	}
	for i := range len(s) {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
