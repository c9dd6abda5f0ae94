package forgesim

import (
	"context"
	"fmt"
	"strings"
)

// What follows is for forges of another make that keep their Git data in
// repositories of this one: it tells nobody, and sends no webhook.

// A Commit is one commit as Git has it.
type Commit struct {
	ID, Tree string
	Parents  []string
	// Author and Committer are names and mail addresses.
	AuthorName, AuthorEmail, CommitterName, CommitterEmail string
	Message                                                string
}

// Commit reads a commit; [ErrNotFound] where the repository has none of that
// id.
func (r *Repository) Commit(ctx context.Context, id string) (Commit, error) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	c, err := r.readCommit(ctx, id)
	if err != nil {
		return Commit{}, err
	}
	return c.export(), nil
}

// SetRef points a ref by its full name at a commit; an empty id deletes it.
func (r *Repository) SetRef(ctx context.Context, ref, id string) error {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	if err := r.setRef(ctx, ref, id); err != nil {
		return fmt.Errorf("set %s of %s: %w", ref, r.fullName(), err)
	}
	return nil
}

// Merge makes the commit of merging head into base, with parents base and head
// in this order, which no ref names; [ErrConflict] where they don't merge.
func (r *Repository) Merge(ctx context.Context, base, head, message string) (string, error) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	tree, err := r.mergeTree(ctx, base, head)
	if err != nil {
		return "", fmt.Errorf("merge in %s: %w", r.fullName(), err)
	}
	return r.commitTree(ctx, tree, message, base, head)
}

// MergeBase returns the newest common commit of two; [ErrNotFound] where they
// have none.
func (r *Repository) MergeBase(ctx context.Context, a, b string) (string, error) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	out, err := r.forge.git.run(ctx, gitCall{dir: r.dir, args: []string{"merge-base", a, b}})
	if exitedWith(err, 1) {
		return "", fmt.Errorf("merge base in %s: %w", r.fullName(), ErrNotFound)
	}
	if err != nil {
		return "", fmt.Errorf("merge base in %s: %w", r.fullName(), err)
	}
	return out, nil
}

// Take fetches a commit of another repository to a ref.
func (r *Repository) Take(ctx context.Context, from *Repository, id, ref string) error {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	if from != r {
		if err := r.fetchFrom(ctx, from.dir, 0, "+"+id+":"+ref); err != nil {
			return fmt.Errorf("take a commit into %s: %w", r.fullName(), err)
		}
	}
	return r.setRef(ctx, ref, id)
}

// A TreeEntry is one entry of a tree.
type TreeEntry struct{ ID, Path, Type, Mode string }

// Tree lists a directory of a commit, the root for an empty path;
// [ErrNotFound] where there is none.
func (r *Repository) Tree(ctx context.Context, commit, path string, recursive bool) ([]TreeEntry, error) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	args := []string{"ls-tree", "-z"}
	if recursive {
		args = append(args, "-r", "-t")
	}
	args = append(args, commit)
	if path != "" {
		args = append(args, "--", strings.TrimSuffix(path, "/")+"/")
	}
	out, err := r.forge.git.run(ctx, gitCall{dir: r.dir, args: args})
	if err != nil || out == "" && path != "" {
		return nil, fmt.Errorf("tree of %s: %w", r.fullName(), ErrNotFound)
	}
	var entries []TreeEntry
	for line := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		about, name, ok := strings.Cut(line, "\t")
		if parts := strings.Fields(about); ok && len(parts) == 3 {
			entries = append(entries, TreeEntry{Mode: parts[0], Type: parts[1], ID: parts[2], Path: name})
		}
	}
	return entries, nil
}

// File reads a file of a commit; [ErrNotFound] where there is none.
func (r *Repository) File(ctx context.Context, commit, path string) (content []byte, blob string, err error) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	at := commit + ":" + path
	git := r.forge.git
	if blob, err = git.run(ctx, gitCall{dir: r.dir, args: []string{"rev-parse", "--verify", "--quiet", at}}); err != nil {
		return nil, "", fmt.Errorf("file of %s: %w", r.fullName(), ErrNotFound)
	}
	kind, err := git.run(ctx, gitCall{dir: r.dir, args: []string{"cat-file", "-t", blob}})
	if err != nil || kind != "blob" {
		return nil, "", fmt.Errorf("file of %s: %w", r.fullName(), ErrNotFound)
	}
	// The runner takes one line end away, which the size gives back.
	size, err := git.run(ctx, gitCall{dir: r.dir, args: []string{"cat-file", "-s", blob}})
	if err != nil {
		return nil, "", fmt.Errorf("file of %s: %w", r.fullName(), err)
	}
	text, err := git.run(ctx, gitCall{dir: r.dir, args: []string{"cat-file", "blob", blob}})
	if err != nil {
		return nil, "", fmt.Errorf("file of %s: %w", r.fullName(), err)
	}
	if fmt.Sprint(len(text)) != size {
		text += "\n"
	}
	return []byte(text), blob, nil
}

// Between lists the commits that the second has and the first lacks, oldest
// first.
func (r *Repository) Between(ctx context.Context, from, to string) ([]Commit, error) {
	r.forge.mu.Lock()
	defer r.forge.mu.Unlock()
	out, err := r.forge.git.run(ctx, gitCall{dir: r.dir, args: []string{"rev-list", "--reverse", "--topo-order", "^" + from, to}})
	if err != nil {
		return nil, fmt.Errorf("commits of %s: %w", r.fullName(), err)
	}
	var commits []Commit
	for id := range strings.FieldsSeq(out) {
		c, err := r.readCommit(ctx, id)
		if err != nil {
			return nil, err
		}
		commits = append(commits, c.export())
	}
	return commits, nil
}

func (c commitObject) export() Commit {
	return Commit{
		ID: c.sha, Tree: c.tree, Parents: c.parents, Message: c.message,
		AuthorName: c.author.name, AuthorEmail: c.author.email,
		CommitterName: c.committer.name, CommitterEmail: c.committer.email,
	}
}
