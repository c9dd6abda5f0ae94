package githubspec

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// schemas are the JSON schemas of one document. They are compiled when they
// are first asked for.
type schemas struct {
	url      string
	document map[string]any

	mu sync.Mutex
	// Guarded by mu:
	compiler *jsonschema.Compiler
	compiled map[string]*jsonschema.Schema
}

func newSchemas(url string, document any) (*schemas, error) {
	root, ok := document.(map[string]any)
	if !ok {
		return nil, errors.New("description is not an object")
	}
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft2020)
	compiler.AssertFormat()
	compiler.RegisterFormat(&jsonschema.Format{Name: "uri-template", Validate: uriTemplate})
	if err := compiler.AddResource(url, document); err != nil {
		return nil, fmt.Errorf("description: %w", err)
	}
	return &schemas{url: url, document: root, compiler: compiler, compiled: map[string]*jsonschema.Schema{}}, nil
}

// uriTemplate knows the operators of RFC 6570, which the library's own check
// takes for faults.
func uriTemplate(v any) error {
	text, ok := v.(string)
	if !ok {
		return nil
	}
	plain := expression.ReplaceAllString(text, "x")
	if strings.ContainsAny(plain, "{}") {
		return errors.New("braces that are no expression")
	}
	if u, err := url.Parse(plain); err != nil || !u.IsAbs() {
		return errors.New("no absolute URI")
	}
	return nil
}

// expression is one of RFC 6570 §2.2.
var expression = regexp.MustCompile(`\{[+#./;?&]?[A-Za-z0-9_]+(,[A-Za-z0-9_]+)*\}`)

// check validates a value by the schema at a JSON pointer, and finds members
// that the schema does not have.
func (s *schemas) check(pointer string, value any) error {
	schema, err := s.compile(pointer)
	if err != nil {
		return err
	}
	if err := schema.Validate(value); err != nil {
		return err
	}
	return s.undescribed(s.at(pointer), value, "")
}

func (s *schemas) compile(pointer string) (*jsonschema.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if schema := s.compiled[pointer]; schema != nil {
		return schema, nil
	}
	schema, err := s.compiler.Compile(s.url + "#" + pointer)
	if err != nil {
		return nil, fmt.Errorf("description at %s: %w", pointer, err)
	}
	s.compiled[pointer] = schema
	return schema, nil
}

// pointer joins the members of a path to a JSON pointer.
func pointer(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(name))
	}
	return b.String()
}

// at finds the schema at a JSON pointer; nil where there is none.
func (s *schemas) at(pointer string) any {
	var v any = s.document
	unescape := strings.NewReplacer("~1", "/", "~0", "~", "%7B", "{", "%7D", "}")
	for name := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		o, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = o[unescape.Replace(name)]
	}
	return v
}

// undescribed reports members of value that no alternative of schema has, at
// any depth.
func (s *schemas) undescribed(schema, value any, path string) error {
	switch value := value.(type) {
	case map[string]any:
		return s.undescribedMembers(s.alternatives(schema), value, path)
	case []any:
		var faults []error
		for _, alternative := range s.alternatives(schema) {
			if items, ok := alternative["items"]; ok {
				faults = nil
				for i, item := range value {
					faults = append(faults, s.undescribed(items, item, fmt.Sprintf("%s/%d", path, i)))
				}
				if errors.Join(faults...) == nil {
					return nil
				}
			}
		}
		return errors.Join(faults...)
	}
	return nil
}

func (s *schemas) undescribedMembers(alternatives []map[string]any, value map[string]any, path string) error {
	var faults []error
	for name, member := range value {
		here := path + "/" + name
		var candidates []any
		open := true
		for _, a := range alternatives {
			properties, closed := a["properties"].(map[string]any)
			if sub, ok := properties[name]; ok {
				candidates = append(candidates, sub)
			}
			extra, hasExtra := a["additionalProperties"]
			if hasExtra && extra != false {
				candidates = append(candidates, extra)
			}
			open = open && !closed && !hasExtra
		}
		switch {
		case len(candidates) > 0:
			faults = append(faults, s.undescribed(map[string]any{"anyOf": candidates}, member, here))
		case !open:
			faults = append(faults, fmt.Errorf("%s is not in the description", here))
		}
	}
	return errors.Join(faults...)
}

// alternatives flattens references and combinations to the schemas that may
// describe a value.
func (s *schemas) alternatives(schema any) []map[string]any {
	o, ok := schema.(map[string]any)
	if !ok {
		return nil
	}
	if ref, ok := o["$ref"].(string); ok {
		return s.alternatives(s.at(strings.TrimPrefix(ref, "#")))
	}
	found := []map[string]any{}
	combined := false
	for _, key := range []string{"allOf", "anyOf", "oneOf"} {
		choices, ok := o[key].([]any)
		combined = combined || ok
		for _, choice := range choices {
			found = append(found, s.alternatives(choice)...)
		}
	}
	if _, ok := o["properties"]; ok || !combined {
		found = append(found, o)
	}
	return found
}
