// Command crosscheck type-checks packages for other systems from their source.
// It finds what a build there would stop at, but for the linker, and takes a
// small part of its time: what comes from other modules is not compiled, and
// its functions' bodies are not read.
//
//	crosscheck DIR GOOS PATTERN...
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/packages"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: crosscheck DIR GOOS PATTERN...")
		os.Exit(2)
	}
	if err := check(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "crosscheck:", err)
		os.Exit(1)
	}
}

// check reports every error in the packages below dir that the patterns name,
// and in those of the same module that they import.
func check(dir, goos string, patterns []string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	found, err := packages.Load(&packages.Config{
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesInfo | packages.NeedTypesSizes | packages.NeedModule,
		Dir: dir,
		Env: append(os.Environ(), "GOOS="+goos, "CGO_ENABLED=0"),
		ParseFile: func(fset *token.FileSet, name string, src []byte) (*ast.File, error) {
			f, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
			if f != nil && !strings.HasPrefix(name, dir+string(filepath.Separator)) {
				for _, d := range f.Decls {
					if fn, ok := d.(*ast.FuncDecl); ok {
						fn.Body = nil
					}
				}
			}
			return f, err
		},
	}, patterns...)
	if err != nil {
		return err
	}
	var faults []error
	packages.Visit(found, nil, func(p *packages.Package) {
		if p.Module == nil || !p.Module.Main {
			return // its files are there in part only
		}
		for _, e := range p.Errors {
			faults = append(faults, fmt.Errorf("GOOS=%s: %w", goos, e))
		}
	})
	if len(found) == 0 {
		faults = append(faults, errors.New("no packages"))
	}
	return errors.Join(faults...)
}
