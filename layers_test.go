package fencepost_test

import (
	"bufio"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the import path of the root package.
const module = "github.com/fencepost/fencepost"

// A sourceFile is one Go file of the tree, whatever system it is built for.
type sourceFile struct {
	// name is the path below the root, with slashes; dir its directory,
	// "." for the root package.
	name, dir string
	test      bool
	syntax    *ast.File
	fset      *token.FileSet
}

// sources parses every Go file of the module but those of nested modules and
// of testdata.
func sources(t *testing.T) []sourceFile {
	t.Helper()
	var files []sourceFile
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			base := d.Name()
			_, nested := os.Stat(filepath.Join(name, "go.mod"))
			if name != "." && (nested == nil || base == "testdata" || strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		syntax, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		slashed := filepath.ToSlash(name)
		files = append(files, sourceFile{
			name: slashed, dir: path.Dir(slashed), test: strings.HasSuffix(name, "_test.go"), syntax: syntax, fset: fset,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("found %d Go files; is this the root of the module?", len(files))
	}
	return files
}

// imports lists what a file imports, those of the module by their directory.
func (f sourceFile) imports(t *testing.T) (ours, others []string) {
	t.Helper()
	for _, spec := range f.syntax.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			t.Fatal(err)
		}
		switch {
		case p == module:
			ours = append(ours, ".")
		case strings.HasPrefix(p, module+"/"):
			ours = append(ours, strings.TrimPrefix(p, module+"/"))
		default:
			others = append(others, p)
		}
	}
	return ours, others
}

// A layer is one level of DESIGN §3, from the inside outwards.
type layer int

const (
	rootLayer     layer = iota + 1 // the words
	leafLayer                      // durable, clock, strictjson, glob, store, forge
	publicLayer                    // webhook, ledger, gitfetch, runner
	internalLayer                  // adapters
	wiringLayer                    // what puts adapters together for cmd
	commandLayer                   // cmd, examples
)

// unitOf says which layer a directory is of, and of which unit of siblings:
// directories of one unit may import each other.
func unitOf(dir string) (layer, string) {
	parts := strings.Split(dir, "/")
	switch {
	case dir == ".":
		return rootLayer, "."
	case parts[0] == "cmd" || parts[0] == "examples":
		return commandLayer, strings.Join(parts[:min(2, len(parts))], "/")
	case parts[0] == "internal" && len(parts) > 1 && slices.Contains([]string{"durable", "clock", "strictjson", "glob", "store", "forge"}, parts[1]):
		return leafLayer, "internal/" + parts[1]
	case parts[0] == "internal" && len(parts) > 1 && slices.Contains([]string{"app", "trial", "e2e", "simulation"}, parts[1]):
		return wiringLayer, "internal/" + parts[1]
	case parts[0] == "internal" && len(parts) > 1:
		return internalLayer, "internal/" + parts[1]
	case slices.Contains([]string{"webhook", "ledger", "gitfetch", "runner"}, parts[0]):
		return publicLayer, parts[0]
	}
	return 0, ""
}

// ruleBroken says which rule forbids that a file of one directory imports
// another directory; empty for none.
func ruleBroken(from, to string) string {
	fromLayer, fromUnit := unitOf(from)
	toLayer, toUnit := unitOf(to)
	switch {
	case fromLayer == 0 || toLayer == 0:
		return "every directory has its place in DESIGN §3; give this one its own in unitOf"
	case fromUnit == toUnit:
		return ""
	case toLayer > fromLayer:
		return "imports point inwards: cmd, wiring, internal, public, leaves, root"
	case toLayer == fromLayer:
		return "siblings never import each other: the consumer declares an interface, cmd wires it"
	case strings.HasPrefix(from, "examples/") && toLayer != publicLayer && toLayer != rootLayer:
		return "an example imports what users can import"
	}
	return ""
}

// TestLayers holds the arrows of DESIGN §3.
func TestLayers(t *testing.T) {
	t.Parallel()
	seen := 0
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		ours, _ := f.imports(t)
		for _, to := range ours {
			seen++
			if rule := ruleBroken(f.dir, to); rule != "" {
				t.Errorf("%s imports %s: %s", f.name, to, rule)
			}
		}
	}
	if seen == 0 {
		t.Error("no import of ours was seen at all")
	}
}

func TestLayersRefusesWrongArrows(t *testing.T) {
	t.Parallel()
	for _, arrow := range [][2]string{
		{".", "internal/clock"}, {".", "webhook"}, {"internal/durable", "webhook"}, {"internal/durable", "internal/clock"},
		{"webhook", "ledger"}, {"gitfetch", "internal/config"}, {"ledger/fileledger", "gitfetch"}, {"internal/gate", "internal/inbox"},
		{"internal/ops", "internal/alert"}, {"internal/ops", "cmd/fencepost"}, {"examples/checks/doclinks", "internal/durable"},
		{"webhook", "somewhere/else"}, {"internal/gate/github", "internal/forgesim"}, {"internal/ops", "internal/app"}, {"internal/trial", "internal/app"},
	} {
		if ruleBroken(arrow[0], arrow[1]) == "" {
			t.Errorf("%s may import %s", arrow[0], arrow[1])
		}
	}
	for _, arrow := range [][2]string{
		{"webhook", "."}, {"gitfetch", "internal/durable"}, {"gitfetch", "gitfetch/internal/pack"}, {"ledger/fileledger", "ledger"},
		{"internal/gate/github", "internal/gate"}, {"internal/gate", "runner"}, {"cmd/fencepost", "internal/ops"},
		{"examples/checks/doclinks", "runner/check"}, {"internal/trial", "internal/forgesim"}, {"internal/app", "internal/inbox"}, {"cmd/fencepost", "internal/app"},
	} {
		if rule := ruleBroken(arrow[0], arrow[1]); rule != "" {
			t.Errorf("%s may not import %s: %s", arrow[0], arrow[1], rule)
		}
	}
}

// TestPackageDocs holds that each package says its purpose exactly once, in
// a sentence that starts as godoc wants it.
func TestPackageDocs(t *testing.T) {
	t.Parallel()
	docs := map[string][]string{}
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		if docs[f.dir] == nil {
			docs[f.dir] = []string{}
		}
		if f.syntax.Doc == nil {
			continue
		}
		docs[f.dir] = append(docs[f.dir], f.name)
		want := "Package " + f.syntax.Name.Name + " "
		if f.syntax.Name.Name == "main" {
			want = "Command " + path.Base(f.dir) + " "
		}
		if first := f.syntax.Doc.Text(); !strings.HasPrefix(first, want) {
			t.Errorf("%s: the package comment must start with %q", f.name, want)
		}
	}
	for dir, names := range docs {
		if len(names) != 1 {
			t.Errorf("%s: %d package comments %v, want exactly one", dir, len(names), names)
		}
	}
}

// A callRule says where a function of a package may be named. Tests may name
// all of them.
type callRule struct {
	pkg   string
	names []string
	// in are directories, with all below them, or single files.
	in  []string
	why string
}

// callRules are what the type system can't say.
var callRules = []callRule{
	{module, []string{"GrantLease", "RestoreStaged"}, []string{"ledger"}, "only ledgers grant leases and restore what is staged"},
	{"time", []string{"Now", "Since", "Until"}, []string{"internal/clock"}, "take a clock"},
	{"context", []string{"Background", "TODO"}, []string{"cmd", "examples"}, "pass the caller's context"},
	{"os", []string{"Exit"}, []string{
		"cmd/fencepost/main.go", "examples",
		// What the runner starts is a process of its own, which ends here.
		"runner/entry_linux.go", "runner/early", "runner/internal/stage",
	}, "only main exits"},
	{"log", []string{"Fatal", "Fatalf", "Fatalln", "Panic", "Panicf", "Panicln"}, nil, "only main exits"},
	{"io", []string{"ReadAll"}, nil, "foreign bytes are read within a budget"},
	{"net/http", []string{"Get", "Post", "PostForm", "Head", "DefaultClient", "DefaultTransport", "ListenAndServe", "DefaultServeMux", "HandleFunc", "Handle"}, nil,
		"a client or server without its own bounds waits for ever"},
}

func (r callRule) allows(file string) bool {
	return slices.ContainsFunc(r.in, func(place string) bool {
		return file == place || strings.HasPrefix(file, place+"/")
	})
}

// TestCallsStandWhereTheyMay holds [callRules] against every file that is no
// test. It goes by the syntax, so that files for other systems count too.
func TestCallsStandWhereTheyMay(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		if f.test {
			continue
		}
		for _, r := range callRules {
			if r.allows(f.name) {
				continue
			}
			for _, at := range uses(f, r.pkg, r.names) {
				t.Errorf("%s: %s", at, r.why)
			}
		}
	}
}

// uses lists where a file names one of a package's identifiers.
func uses(f sourceFile, pkg string, names []string) (at []string) {
	local := ""
	for _, spec := range f.syntax.Imports {
		if spec.Path.Value != strconv.Quote(pkg) {
			continue
		}
		local = path.Base(pkg)
		if spec.Name != nil {
			local = spec.Name.Name
		}
	}
	if local == "" {
		return nil
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && slices.Contains(names, sel.Sel.Name) {
			at = append(at, f.fset.Position(sel.Pos()).String()+": "+local+"."+sel.Sel.Name)
		}
		return true
	})
	return at
}

func TestUsesSeesThroughNames(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	syntax, err := parser.ParseFile(fset, "x.go", `package x
import clk "time"
import fence "github.com/fencepost/fencepost"
var a, b = clk.Now, fence.GrantLease
var c = clk.Hour`, 0)
	if err != nil {
		t.Fatal(err)
	}
	f := sourceFile{name: "x.go", syntax: syntax, fset: fset}
	if got := uses(f, "time", []string{"Now"}); !slices.Equal(got, []string{"x.go:4:12: clk.Now"}) {
		t.Errorf("uses = %v", got)
	}
	if got := uses(f, module, []string{"GrantLease"}); len(got) != 1 {
		t.Errorf("uses = %v, want one", got)
	}
}

// TestImportingDoesNothing holds that packages do nothing at import, and
// that dot imports don't hide names from the other tests here. The exception
// is the package whose import is a request for just that.
func TestImportingDoesNothing(t *testing.T) {
	t.Parallel()
	for _, f := range sources(t) {
		for _, spec := range f.syntax.Imports {
			if spec.Name != nil && spec.Name.Name == "." {
				t.Errorf("%s: dot import of %s", f.name, spec.Path.Value)
			}
		}
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" && !f.test && f.dir != "runner/early" {
				t.Errorf("%s: init", f.fset.Position(fn.Pos()))
			}
		}
	}
}

// TestEveryDependencyIsAccountedFor holds that each module that our code
// imports has a line in docs/dependencies.md, that the line is in the right
// table, and that there are no others.
func TestEveryDependencyIsAccountedFor(t *testing.T) {
	t.Parallel()
	mods := required(t)
	files := sources(t)
	shipped := reachable(t, files)
	used := map[string]bool{} // module → shipped, not only in tests
	for _, f := range files {
		_, others := f.imports(t)
		for _, p := range others {
			if m := moduleOf(mods, p); m != "" {
				used[m] = used[m] || !f.test && shipped[f.dir]
			} else if strings.Contains(strings.Split(p, "/")[0], ".") {
				t.Errorf("%s imports %s, which no line of go.mod provides", f.name, p)
			}
		}
	}
	product, tests := documented(t)
	for m, inProduct := range used {
		if inProduct && !slices.Contains(product, m) {
			t.Errorf("docs/dependencies.md has no line for %s among those of the product", m)
		}
		if !inProduct && !slices.Contains(tests, m) {
			t.Errorf("docs/dependencies.md has no line for %s among those of the tests", m)
		}
	}
	for _, m := range append(product, tests...) {
		if _, ok := used[m]; !ok {
			t.Errorf("docs/dependencies.md has a line for %s, which nothing imports", m)
		}
	}
}

// testTools are public or below the public packages, and for tests alone.
var testTools = []string{"ledger/ledgertest", "ledger/internal/contest"}

// reachable is the set of directories that users get: commands, examples, the
// library, and what these import. The rest are doubles for tests.
func reachable(t *testing.T, files []sourceFile) map[string]bool {
	t.Helper()
	imports := map[string][]string{}
	for _, f := range files {
		if !f.test {
			ours, _ := f.imports(t)
			imports[f.dir] = append(imports[f.dir], ours...)
		}
	}
	seen := map[string]bool{}
	var visit func(dir string)
	visit = func(dir string) {
		if seen[dir] {
			return
		}
		seen[dir] = true
		for _, to := range imports[dir] {
			visit(to)
		}
	}
	for dir := range imports {
		level, _ := unitOf(dir)
		if (level == rootLayer || level == publicLayer || level == commandLayer) && !slices.Contains(testTools, dir) {
			visit(dir)
		}
	}
	return seen
}

// required lists the modules of go.mod, the longest path first.
func required(t *testing.T) (mods []string) {
	t.Helper()
	text, err := os.ReadFile("go.mod")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) >= 2 && strings.Contains(fields[0], ".") && strings.HasPrefix(fields[1], "v") {
			mods = append(mods, fields[0])
		}
	}
	if len(mods) == 0 {
		t.Fatal("go.mod requires nothing")
	}
	slices.SortFunc(mods, func(a, b string) int { return len(b) - len(a) })
	return mods
}

func moduleOf(mods []string, pkg string) string {
	for _, m := range mods {
		if pkg == m || strings.HasPrefix(pkg, m+"/") {
			return m
		}
	}
	return ""
}

// documented reads the modules of the two tables of docs/dependencies.md.
func documented(t *testing.T) (product, tests []string) {
	t.Helper()
	f, err := os.Open("docs/dependencies.md")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	section := &product
	for scan := bufio.NewScanner(f); scan.Scan(); {
		line := scan.Text()
		if strings.HasPrefix(line, "## ") && strings.Contains(line, "tests") {
			section = &tests
		}
		if rest, ok := strings.CutPrefix(line, "| `"); ok {
			name, _, _ := strings.Cut(rest, "`")
			*section = append(*section, name)
		}
	}
	if len(product) == 0 || len(tests) == 0 {
		t.Fatal("docs/dependencies.md has no tables")
	}
	return product, tests
}
