package crashfs

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/fencepost/fencepost/internal/durable"
)

// A Site is a place in a package's code at which something is asked of the
// disk that a later start may find.
type Site struct {
	// File and Line are of the call: the innermost that is the package's own.
	File string
	Line int
	// Op is what is asked.
	Op Op
}

// String is "file.go:12 sync".
func (s Site) String() string { return fmt.Sprintf("%s:%d %s", s.File, s.Line, s.Op) }

// maxDepth is how deep a call is looked for in the stack.
const maxDepth = 64

// CallSite is where in a package's code a call is made that [Op.Changes]. A
// [Plan] calls it, for the call that it is asked about. pkg is the end of the
// package's directory, such as "internal/inbox"; ok is false if the call is
// not made by it.
func CallSite(c Call, pkg string) (s Site, ok bool) {
	if !c.Op.Changes() {
		return Site{}, false
	}
	pcs := make([]uintptr, maxDepth)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		// By the file: a function that was inlined bears its caller's name.
		dir, name := path.Split(filepath.ToSlash(f.File))
		if strings.HasSuffix(dir, "/"+pkg+"/") && !strings.HasSuffix(name, "_test.go") {
			return Site{File: name, Line: f.Line, Op: c.Op}, true
		}
		if !more {
			return Site{}, false
		}
	}
}

// asking are the methods and functions of packages durable and frame that ask
// for a change.
var asking = []string{
	"OpenFile", "Mkdir", "Rename", "Link", "Remove", "SyncDir", "WriteAt", "WriteVecAt", "Allocate", "Truncate", "Sync",
	"WriteFile", "PublishFile", "MkdirAll", "InitDir", "RemoveAll", "ZeroFill", "Redo", "OpenRoot", "ClearPoison", "Install",
}

// A Span is the lines of a call that asks for a change, and the function that
// they are in.
type Span struct {
	File, Func string
	From, To   int
}

// Has reports whether a site is in the span.
func (s Span) Has(at Site) bool { return s.File == at.File && s.From <= at.Line && at.Line <= s.To }

// Written finds, by their names, the calls in the code of the package in a
// directory that ask for a change. Files that are opened to be read are left
// out.
func Written(dir string) ([]Span, error) {
	pkg, err := build.ImportDir(dir, 0)
	if err != nil {
		return nil, err
	}
	var all []Span
	set := token.NewFileSet()
	for _, name := range pkg.GoFiles {
		file, err := parser.ParseFile(set, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if c, ok := n.(*ast.CallExpr); ok && asks(c) {
					all = append(all, Span{name, f.Name.Name, set.Position(c.Pos()).Line, set.Position(c.End()).Line})
				}
				return true
			})
		}
	}
	return all, nil
}

func asks(c *ast.CallExpr) bool {
	s, ok := c.Fun.(*ast.SelectorExpr)
	if !ok || !slices.Contains(asking, s.Sel.Name) {
		return false
	}
	if x, ok := s.X.(*ast.Ident); ok && x.Name == "heap" {
		return false // heap.Remove
	}
	if s.Sel.Name != "OpenFile" || len(c.Args) != 3 {
		return true
	}
	flag, ok := c.Args[1].(*ast.SelectorExpr)
	return !ok || flag.Sel.Name != "O_RDONLY" && flag.Sel.Name != "O_RDWR"
}

// A NamedFault is a fault and what it is.
type NamedFault struct {
	Name  string
	Fault Fault
}

// Faults are the ways in which a call of this kind is known to fail.
func (o Op) Faults() []NamedFault {
	full := &durable.NoSpaceError{Op: string(o)}
	switch o {
	case OpWrite:
		return []NamedFault{
			{"EIO", Fault{Err: syscall.EIO}}, {"ENOSPC", Fault{Err: full}},
			{"short write", Fault{Err: full, Keep: 300}}, {"EIO, but done", Fault{Err: syscall.EIO, Done: true}},
		}
	case OpSync, OpSyncDir, OpSyncTree:
		return []NamedFault{{"failed sync", Fault{Err: syscall.EIO}}, {"ENOSPC at a sync", Fault{Err: full}}}
	}
	return []NamedFault{{"EIO", Fault{Err: syscall.EIO}}, {"ENOSPC", Fault{Err: full}}, {"EIO, but done", Fault{Err: syscall.EIO, Done: true}}}
}

// A Reach is which call of a workload was the first at each site.
type Reach map[Site]int

// Record is a plan that lets all succeed and remembers where a package asks.
// Calls up to after are not looked at.
func (r Reach) Record(pkg string, after int) Plan {
	return func(c Call) Fault {
		if s, ok := CallSite(c, pkg); ok && c.N > after {
			if _, known := r[s]; !known {
				r[s] = c.N
			}
		}
		return Fault{}
	}
}

// Unreached are the spans that none of the sites is in, by their functions.
func (r Reach) Unreached(written []Span) map[string]Span {
	missing := map[string]Span{}
	for _, span := range written {
		reached := false
		for s := range r {
			reached = reached || span.Has(s)
		}
		if !reached {
			missing[span.File+" "+span.Func] = span
		}
	}
	return missing
}

// Sites are in the order of file, line and kind.
func (r Reach) Sites() []Site {
	return slices.SortedFunc(maps.Keys(r), func(a, b Site) int {
		if c := strings.Compare(a.File, b.File); c != 0 {
			return c
		}
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return strings.Compare(string(a.Op), string(b.Op))
	})
}
