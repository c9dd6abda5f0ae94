package crashfs

import (
	"errors"
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

// A span is the lines of a call that asks for a change, and the function that
// they are in.
type span struct {
	file, function string
	from, to       int
}

func (s span) has(at Site) bool { return s.file == at.File && s.from <= at.Line && at.Line <= s.to }

// written finds, by their names, the calls in the code of the package in a
// directory that ask for a change. Files that are opened to be read are left
// out.
func written(dir string) ([]span, error) {
	pkg, err := build.ImportDir(dir, 0)
	if err != nil {
		return nil, err
	}
	var all []span
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
					all = append(all, span{name, f.Name.Name, set.Position(c.Pos()).Line, set.Position(c.End()).Line})
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

// A First is the first call at a site. Its number would not do to name it:
// calls of goroutines that run at once come in any order.
type First struct {
	Site Site
	// Package is the end of the directory of the site's package.
	Package string
	// Call is the zero one until it was made.
	Call Call
}

// Fail is a plan that gives the call a fault.
func (f *First) Fail(fault Fault) Plan {
	return func(c Call) Fault {
		if f.Call.N != 0 {
			return Fault{}
		}
		if at, ok := CallSite(c, f.Package); !ok || at != f.Site {
			return Fault{}
		}
		f.Call = c
		return fault
	}
}

// A Reach is the sites that a workload reached.
type Reach map[Site]struct{}

// Record is a plan that lets all succeed and remembers where a package asks.
func (r Reach) Record(pkg string) Plan {
	return func(c Call) Fault {
		if s, ok := CallSite(c, pkg); ok {
			r[s] = struct{}{}
		}
		return Fault{}
	}
}

// Check holds the sites against the code of the package in a directory.
// elsewhere are functions, as "file.go function", whose calls something else is
// known to reach. The error names each other function with a call that none of
// the sites is in, and each of elsewhere that has none. calls is how many calls
// there are in all.
func (r Reach) Check(dir string, elsewhere map[string]string) (calls int, err error) {
	all, err := written(dir)
	if err != nil {
		return 0, err
	}
	missing := r.unreached(all)
	var errs []error
	for in, s := range missing {
		if elsewhere[in] == "" {
			errs = append(errs, fmt.Errorf("line %d of %s asks the disk for a change, and no workload gets there", s.from, in))
		}
	}
	for in := range elsewhere {
		if _, is := missing[in]; !is {
			errs = append(errs, fmt.Errorf("%s is reached now, or is no more", in))
		}
	}
	return len(all), errors.Join(errs...)
}

// unreached are the spans that none of the sites is in, by their functions.
func (r Reach) unreached(all []span) map[string]span {
	missing := map[string]span{}
	for _, one := range all {
		reached := false
		for s := range r {
			reached = reached || one.has(s)
		}
		if !reached {
			missing[one.file+" "+one.function] = one
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
