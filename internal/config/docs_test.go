package config

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

var update = flag.Bool("update", false, "write the generated documents instead of comparing them")

const docsDir = "../../docs"

// TestGeneratedDocs holds the JSON Schema and the manual against the structs
// and comments that they are made of. With -update, which go generate gives,
// it writes them.
func TestGeneratedDocs(t *testing.T) {
	t.Parallel()
	g := generator{comments: readComments(t)}
	intro, err := os.ReadFile("testdata/manual.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]byte{
		"fencepost.schema.json": g.schema(t),
		"configuration.md":      bytes.Replace(intro, []byte("<!-- fields -->\n"), g.manual(), 1),
	} {
		path := filepath.Join(docsDir, name)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is not current; run go generate ./internal/config (-want +got):\n%s", name, diff)
		}
	}
}

// A generator walks the document's types.
type generator struct {
	// comments of fields by "type.Field".
	comments map[string]string
	out      bytes.Buffer
}

// readComments reads what the source says about each field.
func readComments(t *testing.T) map[string]string {
	t.Helper()
	comments := map[string]string{}
	for _, file := range []string{"document.go", "limits.go", "source_document.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			s, ok := spec.Type.(*ast.StructType)
			if !ok {
				return true
			}
			for _, field := range s.Fields.List {
				for _, name := range field.Names {
					text := strings.Join(strings.Fields(field.Doc.Text()), " ")
					if text == "" {
						t.Errorf("%s.%s has no comment", spec.Name, name)
					}
					comments[spec.Name.Name+"."+name.Name] = text
				}
			}
			return true
		})
	}
	return comments
}

// text is a field's comment as it reads beside the field's key, without the
// Go name that it starts with.
func (g *generator) text(t reflect.Type, f field) string {
	sf := t.FieldByIndex(f.index)
	owner := t
	if len(f.index) > 1 {
		owner = t.FieldByIndex(f.index[:len(f.index)-1]).Type
	}
	text := g.comments[owner.Name()+"."+sf.Name]
	rest, ok := strings.CutPrefix(text, sf.Name)
	if !ok || (rest[0] != ' ' && rest[0] != ':') {
		return text
	}
	rest = strings.TrimPrefix(strings.TrimPrefix(strings.TrimLeft(rest, " :"), "is "), "are ")
	return strings.ToUpper(rest[:1]) + rest[1:]
}

type pair struct {
	key   string
	value any
}

// An object is a JSON object whose keys keep their order.
type object []pair

func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, p := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "%q:", p.key)
		enc := json.NewEncoder(&b)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(p.value); err != nil {
			return nil, err
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

func (g *generator) schema(t *testing.T) []byte {
	t.Helper()
	root := object{
		{"$schema", "https://json-schema.org/draft/2020-12/schema"},
		{"title", "Fencepost configuration, version 1"},
	}
	root = append(root, g.structSchema(reflect.TypeFor[document]())...)
	var raw, b bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(root); err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&b, raw.Bytes(), "", "  "); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func (g *generator) structSchema(t reflect.Type) object {
	set := fieldsOf(t)
	properties, required := object{}, []string{}
	for _, name := range set.names {
		f := set.byName[name]
		if f.unsupported {
			continue
		}
		properties = append(properties, pair{name, append(object{{"description", g.text(t, f)}}, g.typeSchema(t.FieldByIndex(f.index).Type, f)...)})
		if f.required {
			required = append(required, name)
		}
	}
	o := object{{"type", "object"}, {"additionalProperties", false}, {"properties", properties}}
	if len(required) > 0 {
		o = append(o, pair{"required", required})
	}
	return o
}

func (g *generator) typeSchema(t reflect.Type, f field) object {
	switch {
	case isLeaf(t):
		return leafSchema(t, f)
	case t.Kind() == reflect.Pointer:
		return g.structSchema(t.Elem())
	case t.Kind() == reflect.Struct:
		return g.structSchema(t)
	case t.Kind() == reflect.Slice:
		return object{{"type", "array"}, {"minItems", f.least}, {"maxItems", f.most}, {"items", g.typeSchema(t.Elem(), field{})}}
	}
	return object{
		{"type", "object"},
		{"propertyNames", object{{"pattern", leafOf(t.Key()).pattern.String()}}},
		{"additionalProperties", g.typeSchema(t.Elem(), f)},
	}
}

func leafSchema(t reflect.Type, f field) object {
	var o object
	l := leafOf(t)
	switch {
	case t.Kind() == reflect.Bool:
		o = object{{"type", "boolean"}}
	case l.what == wholeNumber:
		o = object{{"type", "integer"}, {"minimum", json.Number(f.min)}, {"maximum", json.Number(f.max)}}
	case t == reflect.TypeFor[time.Time]():
		o = object{{"type", "string"}, {"format", "date-time"}}
	case len(f.oneOf) > 0:
		o = object{{"enum", f.oneOf}}
	case l.pattern != nil:
		o = object{{"type", "string"}, {"pattern", l.pattern.String()}}
	default:
		o = object{{"type", "string"}}
	}
	if !f.hasDefault {
		return o
	}
	var value any = f.def
	if l.what == wholeNumber {
		value = json.Number(f.def)
	} else if t.Kind() == reflect.Bool {
		value = f.def == "true"
	}
	return append(o, pair{"default", value})
}

func (g *generator) manual() []byte {
	g.out.Reset()
	g.table("", reflect.TypeFor[document]())
	return g.out.Bytes()
}

// table writes the fields of a section, and then the sections within it.
func (g *generator) table(path string, t reflect.Type) {
	title := "The file"
	if path != "" {
		title = "`" + path + "`"
	}
	fmt.Fprintf(&g.out, "### %s\n\n| field | meaning | default | must be |\n| --- | --- | --- | --- |\n", title)
	set := fieldsOf(t)
	type section struct {
		path string
		t    reflect.Type
	}
	var inner []section
	for _, name := range set.names {
		f := set.byName[name]
		ft := t.FieldByIndex(f.index).Type
		fmt.Fprintf(&g.out, "| `%s` | %s | %s | %s |\n", name, g.text(t, f), manualDefault(f), manualForm(ft, f))
		if f.unsupported {
			continue
		}
		at := strings.TrimPrefix(path+"."+name, ".")
		for ft.Kind() == reflect.Pointer || ft.Kind() == reflect.Map || ft.Kind() == reflect.Slice {
			switch ft.Kind() {
			case reflect.Map:
				at += ".NAME"
			case reflect.Slice:
				at += "[]"
			}
			ft = ft.Elem()
		}
		if ft.Kind() == reflect.Struct && !isLeaf(ft) {
			inner = append(inner, section{at, ft})
		}
	}
	g.out.WriteString("\n")
	for _, s := range inner {
		g.table(s.path, s.t)
	}
}

func manualDefault(f field) string {
	switch {
	case f.required:
		return "required"
	case f.hasDefault && f.def == "":
		return "empty"
	case f.hasDefault:
		return "`" + f.def + "`"
	}
	return ""
}

func manualForm(t reflect.Type, f field) string {
	var form string
	switch {
	case f.unsupported:
		return ""
	case len(f.oneOf) > 0:
		form = "one of `" + strings.Join(f.oneOf, "`, `") + "`"
	case f.min != "":
		form = f.span()
	case isLeaf(t):
		form = leafOf(t).what
	case t.Kind() == reflect.Slice && !isLeaf(t.Elem()):
		form = fmt.Sprintf("a list of %d to %d sections", f.least, f.most)
	case t.Kind() == reflect.Slice:
		form = fmt.Sprintf("a list of %d to %d, each %s", f.least, f.most, leafOf(t.Elem()).what)
	case t.Kind() == reflect.Map && t.Elem().Kind() == reflect.Slice:
		form = fmt.Sprintf("lists of %d to %d, each under %s", f.least, f.most, leafOf(t.Key()).what)
	case t.Kind() == reflect.Map:
		form = fmt.Sprintf("at most %d sections, each under %s", f.most, leafOf(t.Key()).what)
	default:
		form = "a section"
	}
	if f.example != "" && !f.hasDefault && !strings.Contains(form, "such as") {
		form += "; such as `" + strings.ReplaceAll(f.example, "|", `\|`) + "`"
	}
	return form
}

func TestSchemaAgreesWithTheParser(t *testing.T) {
	t.Parallel()
	g := generator{comments: readComments(t)}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(g.schema(t)))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("fencepost.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	schema, err := c.Compile("fencepost.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	text := whole + sourced[strings.Index(sourced, "sources:"):] + rowsSource + programSource
	tests := []struct {
		name, old, new string
		legal          bool
	}{
		{"database", "data_dir: ./data", "data_dir: ./data\ndatabase: postgres://h/d", true},
		{"empty database", "data_dir: ./data", "data_dir: ./data\ndatabase: \"\"", true},
		{"database that is a file", "data_dir: ./data", "data_dir: ./data\ndatabase: x.db", false},
		{"source id in capitals", "id: 5a0e3a4e", "id: 5A0E3A4E", false},
		{"source without a sink", "    sink: {kind: directory, path: /srv/handbook, include: [\"docs/**\"]}\n", "", false},
		{"sink of another kind", "kind: directory", "kind: bucket", false},
		{"pattern with brackets", "docs/**", "[d]ocs/**", false},
		{"no senders", "[{id: 583231, login: octocat}]", "[]", false},
		{"table with a capital", "table: courses", "table: Courses", false},
		{"whole", "version: 1", "version: 1", true},
		{"limits", "data_dir: ./data", "data_dir: ./data\nledger: {lease: 1m30s, capacity: 10}\ningress: {max_body: 1MiB}", true},
		{"unknown field", "data_dir: ./data", "data_dir: ./data\nlegder: {}", false},
		{"missing field", "version: 1\n", "", false},
		{"size without a unit", "data_dir: ./data", "data_dir: ./data\ningress: {max_body: 1000000}", false},
		{"size in a decimal unit", "data_dir: ./data", "data_dir: ./data\ningress: {max_body: 1MB}", false},
		{"duration without a unit", "wall: 75s", "wall: 75", false},
		{"number out of range", "data_dir: ./data", "data_dir: ./data\nledger: {capacity: 0}", false},
		{"name with a capital", "  docs:\n", "  Docs:\n", false},
		{"short commit", "commit: 1234567890123456789012345678901234567890", "commit: abc", false},
		{"secret in the place of its reference", "file:secrets/acme", "hunter2", false},
		{"empty trust set", "  acme:\n    - {id: 2026-q4, secret: file:secrets/acme, from: 2026-10-01T00:00:00Z, until: 2027-02-01T00:00:00Z}", "  acme: []", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			text := edit(t, text, tt.old, tt.new)
			// In the file a commit may be written without quotes also where
			// YAML takes it for a number; for the schema it is text.
			text = strings.ReplaceAll(text, "commit: 1234567890123456789012345678901234567890", `commit: "1234567890123456789012345678901234567890"`)
			for _, digest := range []string{"00000000000000000000000000000000000000000000000000000000000000ff", "00000000000000000000000000000000000000000000000000000000000000fe"} {
				text = strings.ReplaceAll(text, "sha256: "+digest, `sha256: "`+digest+`"`)
			}
			var value any
			if err := yaml.Unmarshal([]byte(text), &value); err != nil {
				t.Fatal(err)
			}
			asJSON, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
			if err != nil {
				t.Fatal(err)
			}
			_, parseErr := Parse("f.yaml", []byte(text))
			if schemaErr := schema.Validate(instance); (schemaErr == nil) != tt.legal || (parseErr == nil) != tt.legal {
				t.Errorf("legal = %v, but the schema says %v and the parser %v", tt.legal, schemaErr, parseErr)
			}
		})
	}
}

// TestTagsAreSound reads every tag once: a default that is no legal value, or
// a bound that is none, would otherwise panic on a user's machine.
func TestTagsAreSound(t *testing.T) {
	t.Parallel()
	var walk func(path string, rt reflect.Type)
	walk = func(path string, rt reflect.Type) {
		set := fieldsOf(rt)
		for _, name := range set.names {
			f := set.byName[name]
			at := path + "." + name
			ft := rt.FieldByIndex(f.index).Type
			if name == "" {
				t.Errorf("%s: a field of %s has no yaml tag", path, rt)
			}
			if f.required && f.hasDefault {
				t.Errorf("%s is required and has a default", at)
			}
			if (f.min == "") != (f.max == "") {
				t.Errorf("%s has one bound of two", at)
			}
			if isLeaf(ft) && f.min != "" {
				for _, text := range []string{f.min, f.max, f.def} {
					v := reflect.New(ft).Elem()
					if text == "" && !f.hasDefault {
						continue
					}
					if err := setLeaf(v, text); err != nil || outside(v, f.min, f.max) {
						t.Errorf("%s: %q is no legal value: %v", at, text, err)
					}
				}
			}
			if leafOf(ft).what == wholeNumber && f.min == "" || ft.Kind() == reflect.Slice && f.most == 0 {
				t.Errorf("%s has no bound", at)
			}
			for ft.Kind() == reflect.Pointer || ft.Kind() == reflect.Map || ft.Kind() == reflect.Slice {
				ft = ft.Elem()
			}
			if ft.Kind() == reflect.Struct && !isLeaf(ft) {
				walk(at, ft)
			}
		}
	}
	walk("", reflect.TypeFor[document]())
}
