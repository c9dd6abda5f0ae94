package links

import (
	"context"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// A kind is what stands at a path.
type kind uint8

const (
	missing kind = iota
	file
	directory
	symlink
)

// A tree is what a checkout holds, by exact path. Its paths are those of
// [fs.FS], "." for the root.
type tree struct {
	fsys  fs.FS
	kinds map[string]kind
	// sources are the Markdown files to check, sorted.
	sources []string
	// readmes are the files that a forge shows below a directory's listing.
	readmes map[string]string
	// folded maps names in lower case to what is there; nil until needed.
	folded map[string]string
	// links says whether the tree has any symbolic link at all.
	links bool
}

// othersWork are directories whose Markdown is not the tree's own.
func othersWork(base string) bool {
	return base == "node_modules" || base == "vendor" || base == "testdata"
}

func readTree(ctx context.Context, fsys fs.FS, limits Limits) (tree, error) {
	t := tree{fsys: fsys, kinds: map[string]kind{}, readmes: map[string]string{}}
	// Paths below skipped begin with it; WalkDir visits them in one run.
	skipped := ""
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		if len(t.kinds) == limits.Entries {
			return fmt.Errorf("more than %d files and directories: %w", limits.Entries, ErrTooLarge)
		}
		ours := skipped == "" || !strings.HasPrefix(name, skipped)
		switch {
		case d.IsDir() && d.Name() == ".git":
			return fs.SkipDir
		case d.IsDir():
			t.kinds[name] = directory
			if ours && othersWork(d.Name()) {
				skipped = name + "/"
			}
		case d.Type()&fs.ModeSymlink != 0:
			t.kinds[name], t.links = symlink, true
			t.addReadme(name)
		default:
			t.kinds[name] = file
			t.addReadme(name)
			if ours && d.Type().IsRegular() && isMarkdown(name) {
				t.sources = append(t.sources, name)
			}
		}
		return nil
	})
	slices.Sort(t.sources)
	return t, err
}

// addReadme keeps the README of each directory: in Markdown if there is one,
// and else the first by name.
func (t *tree) addReadme(name string) {
	base := path.Base(name)
	if !strings.EqualFold(strings.TrimSuffix(base, path.Ext(base)), "readme") {
		return
	}
	dir := path.Dir(name)
	if old, ok := t.readmes[dir]; !ok || isMarkdown(name) && !isMarkdown(old) {
		t.readmes[dir] = name
	}
}

// lookup says what stands at a path, through symbolic links.
func (t *tree) lookup(name string) kind {
	k := t.kinds[name]
	if k == file || k == directory || !t.links || k == missing && !t.behindLink(name) {
		return k
	}
	// The file system refuses links out of the tree, and those in a circle.
	info, err := fs.Stat(t.fsys, name)
	switch {
	case err != nil:
		return missing
	case info.IsDir():
		return directory
	default:
		return file
	}
}

// behindLink reports whether a directory on the way is a symbolic link.
func (t *tree) behindLink(name string) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if t.kinds[dir] == symlink {
			return true
		}
	}
	return false
}

// inOtherCase finds a path that differs from name in case only; "" for none.
func (t *tree) inOtherCase(name string) string {
	if t.folded == nil {
		t.folded = make(map[string]string, len(t.kinds))
		for have := range t.kinds {
			low := strings.ToLower(have)
			if old, ok := t.folded[low]; !ok || have < old {
				t.folded[low] = have
			}
		}
	}
	if have := t.folded[strings.ToLower(name)]; have != name {
		return have
	}
	return ""
}

// isMarkdown goes by the name, as forges do.
func isMarkdown(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".md", ".markdown":
		return true
	}
	return false
}

// hasOwnAnchors reports whether files of this kind can have anchors that this
// package knows nothing of.
func hasOwnAnchors(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".html", ".htm", ".xhtml", ".svg", ".pdf", ".ipynb", ".rst", ".adoc", ".asciidoc", ".asc", ".org", ".textile",
		".wiki", ".mediawiki", ".creole", ".pod", ".rdoc", ".mdx", ".mkd", ".mdown", ".mkdn":
		return true
	}
	return false
}
