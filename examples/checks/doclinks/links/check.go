package links

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
)

// Defaults of [Limits].
const (
	DefaultEntries    = 500_000
	DefaultFiles      = 20_000
	DefaultFileBytes  = 1 << 20
	DefaultTotalBytes = 256 << 20
	DefaultFindings   = 2_000
)

// Limits bound what one check costs. A field of zero means its default.
type Limits struct {
	// Entries is how many files and directories a tree may have; default
	// [DefaultEntries]. Over it is [ErrTooLarge].
	Entries int
	// Files is how many Markdown files are read; default [DefaultFiles]. Over
	// it is [ErrTooLarge].
	Files int
	// FileBytes is the size of one Markdown file; default [DefaultFileBytes].
	// A larger one is not read, and that is a finding.
	FileBytes int64
	// TotalBytes is the size of all Markdown files that are read; default
	// [DefaultTotalBytes]. Over it is [ErrTooLarge].
	TotalBytes int64
	// Findings is how many findings are listed; default [DefaultFindings].
	// Those over it are counted.
	Findings int
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Entries:    cmp.Or(l.Entries, DefaultEntries),
		Files:      cmp.Or(l.Files, DefaultFiles),
		FileBytes:  cmp.Or(l.FileBytes, DefaultFileBytes),
		TotalBytes: cmp.Or(l.TotalBytes, DefaultTotalBytes),
		Findings:   cmp.Or(l.Findings, DefaultFindings),
	}
}

// ErrTooLarge: the tree is over one of the [Limits], so nothing can be said
// about it.
var ErrTooLarge = errors.New("tree too large")

// A Finding is one link that leads nowhere.
type Finding struct {
	// File is the path of the file from the root of the tree.
	File string `json:"file"`
	// Line is where the link begins, from 1; 0 for the file as a whole.
	Line int `json:"line"`
	// Link is the target as it is written in the file.
	Link string `json:"link"`
	// Why is what is wrong with it.
	Why Why `json:"why"`
	// Hint is a target that differs in case only, where there is one.
	Hint string `json:"hint,omitempty"`

	// offset orders the findings of one line.
	offset int
}

// A Why is what is wrong with a link, in words for people.
type Why string

// What can be wrong with a link.
const (
	WhyEmpty        Why = "the link is empty"
	WhyOutside      Why = "leads out of the tree"
	WhyMissing      Why = "no such file or directory"
	WhyNoDirectory  Why = "a file, not a directory"
	WhyNoImage      Why = "a directory, not an image"
	WhyNoAnchor     Why = "no such heading or anchor"
	WhyNoReadme     Why = "an anchor, but the directory has no README"
	WhyNoLine       Why = "not Markdown: only line anchors such as #L10 lead into it"
	WhyUndefined    Why = "the reference has no definition"
	WhyFileTooLarge Why = "the file is too large to be checked"
)

// A Result is what was found in one tree. It is the same for the same tree.
type Result struct {
	// Files is how many Markdown files were checked.
	Files int
	// Links is how many links were followed.
	Links int
	// Broken is how many of them lead nowhere, and BrokenFiles in how many
	// files they stand.
	Broken, BrokenFiles int
	// Findings are the broken ones, by file and place in it; at most
	// [Limits.Findings] of them.
	Findings []Finding
}

// Check follows the relative links of every Markdown file of fsys. Its error
// matches [ErrTooLarge] for a tree over the limits, or the context's cause
// when that ended first; any other says that the tree could not be read. No
// error comes with a Result.
func Check(ctx context.Context, fsys fs.FS, limits Limits) (Result, error) {
	limits = limits.withDefaults()
	t, err := readTree(ctx, fsys, limits)
	if err != nil {
		return Result{}, fmt.Errorf("list tree: %w", err)
	}
	c := checker{limits: limits, fsys: fsys, tree: t, markdown: newMarkdown(), pages: map[string]*page{}}
	if err := c.read(ctx, c.tree.sources); err != nil {
		return Result{}, err
	}
	if err := c.read(ctx, c.alsoNeeded()); err != nil {
		return Result{}, err
	}
	return c.result(ctx)
}

type checker struct {
	limits   Limits
	fsys     fs.FS
	markdown markdown
	tree     tree
	// pages are the files that were read; nil for one that is too large.
	pages map[string]*page
	// bytes is the size of all pages so far.
	bytes atomic.Int64
}

// read parses files, many at a time, and adds them to the pages.
func (c *checker) read(ctx context.Context, names []string) error {
	if len(c.pages)+len(names) > c.limits.Files {
		return fmt.Errorf("more than %d Markdown files: %w", c.limits.Files, ErrTooLarge)
	}
	pages := make([]*page, len(names))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var workers sync.WaitGroup
	var next atomic.Int64
	for range min(runtime.GOMAXPROCS(0), len(names)) {
		workers.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(names) && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				var err error
				if pages[i], err = c.readPage(ctx, names[i]); err != nil {
					cancel(fmt.Errorf("read %s: %w", names[i], err))
				}
			}
		})
	}
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return fmt.Errorf("read Markdown files: %w", err)
	}
	for i, name := range names {
		c.pages[name] = pages[i]
	}
	return nil
}

// readPage returns nil for a file over the limit. It ends the goroutine that
// called it when the context ends.
func (c *checker) readPage(ctx context.Context, name string) (*page, error) {
	f, err := c.fsys.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(io.LimitReader(f, c.limits.FileBytes+1)); err != nil {
		return nil, err
	}
	size := int64(text.Len())
	if size > c.limits.FileBytes {
		return nil, nil
	}
	if c.bytes.Add(size) > c.limits.TotalBytes {
		return nil, fmt.Errorf("more than %d bytes of Markdown: %w", c.limits.TotalBytes, ErrTooLarge)
	}
	return c.markdown.parse(ctx, text.Bytes()), nil
}

// alsoNeeded lists the files that are not checked themselves but whose anchors
// are linked to.
func (c *checker) alsoNeeded() []string {
	var names []string
	for _, from := range c.tree.sources {
		if c.pages[from] == nil {
			continue
		}
		for _, l := range c.pages[from].links {
			name, ok := c.tree.pageOf(from, l)
			if _, known := c.pages[name]; ok && !known {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func (c *checker) result(ctx context.Context) (Result, error) {
	r := Result{Files: len(c.tree.sources)}
	for _, name := range c.tree.sources {
		if err := context.Cause(ctx); err != nil {
			return Result{}, fmt.Errorf("stopped at %s: %w", name, err)
		}
		found, followed := c.judge(name)
		r.Links += followed
		r.Broken += len(found)
		if len(found) > 0 {
			r.BrokenFiles++
		}
		room := c.limits.Findings - len(r.Findings)
		r.Findings = append(r.Findings, found[:min(room, len(found))]...)
	}
	return r, nil
}

// judge follows the links of one page.
func (c *checker) judge(name string) (found []Finding, followed int) {
	p := c.pages[name]
	if p == nil {
		return []Finding{{File: name, Why: WhyFileTooLarge}}, 0
	}
	for _, l := range p.links {
		why, hint, ours := c.follow(name, l)
		if ours {
			followed++
		}
		if why != "" {
			found = append(found, Finding{File: name, Line: l.line, Link: l.written, Why: why, Hint: hint, offset: l.offset})
		}
	}
	slices.SortStableFunc(found, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.offset, b.offset))
	})
	return found, followed
}
