package githubspec

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// An operation is one method on one path of the description.
type operation struct {
	method, path string
	segments     []string
	wide         []bool // this segment may hold slashes
	query        map[string]parameter
	parameters   map[string]parameter // of the path
	body         bool                 // takes one
	needsBody    bool
	answers      map[int]string // status → pointer of the JSON schema; "" without a body
}

// A parameter is one of a path or a query.
type parameter struct {
	required bool
	pointer  string // of its schema
	kind     string // the schema's type
}

// readOperations reads all of them out of the description.
func readOperations(api map[string]any) ([]operation, error) {
	paths, err := member(api, "paths")
	if err != nil {
		return nil, err
	}
	var all []operation
	for path, methods := range paths {
		for method, described := range methods.(map[string]any) {
			o, ok := described.(map[string]any)
			if !ok || !slices.Contains([]string{"get", "put", "post", "patch", "delete"}, method) {
				continue
			}
			op, err := readOperation(api, path, method, o)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", method, path, err)
			}
			all = append(all, op)
		}
	}
	return all, nil
}

func readOperation(api map[string]any, path, method string, o map[string]any) (operation, error) {
	op := operation{
		method: strings.ToUpper(method), path: path, segments: strings.Split(path, "/"),
		query: map[string]parameter{}, parameters: map[string]parameter{}, answers: map[int]string{},
	}
	op.wide = make([]bool, len(op.segments))
	parameters, _ := o["parameters"].([]any)
	for i, p := range parameters {
		at := pointer("paths", path, method, "parameters", strconv.Itoa(i))
		if err := op.addParameter(api, p, at); err != nil {
			return op, err
		}
	}
	if body, ok := o["requestBody"].(map[string]any); ok {
		op.body = true
		op.needsBody = body["required"] == true
	}
	answers, err := member(o, "responses")
	if err != nil {
		return op, err
	}
	for status, answer := range answers {
		code, err := strconv.Atoi(status)
		if err != nil {
			return op, err
		}
		op.answers[code] = answerPointer(api, answer, pointer("paths", path, method, "responses", status))
	}
	return op, nil
}

// addParameter follows references, which shared parameters are.
func (op *operation) addParameter(api map[string]any, described any, at string) error {
	p := described.(map[string]any)
	if ref, ok := p["$ref"].(string); ok {
		at = strings.TrimPrefix(ref, "#")
		p = resolve(api, ref)
	}
	schema, err := member(p, "schema")
	if err != nil {
		return err
	}
	name := p["name"].(string)
	kind, _ := schema["type"].(string)
	known := parameter{required: p["required"] == true, pointer: at + "/schema", kind: kind}
	switch p["in"] {
	case "query":
		op.query[name] = known
	case "path":
		op.parameters[name] = known
		if i := slices.Index(op.segments, "{"+name+"}"); i >= 0 && p["x-multi-segment"] == true {
			op.wide[i] = true
		}
	}
	return nil
}

func resolve(api map[string]any, ref string) map[string]any {
	v, _ := (&schemas{document: api}).at(strings.TrimPrefix(ref, "#")).(map[string]any)
	return v
}

// answerPointer finds the JSON schema of an answer; "" where it has no body.
func answerPointer(api map[string]any, described any, at string) string {
	answer, _ := described.(map[string]any)
	if ref, ok := answer["$ref"].(string); ok {
		at = strings.TrimPrefix(ref, "#")
		answer = resolve(api, ref)
	}
	if _, err := member(answer, "content", "application/json", "schema"); err != nil {
		return ""
	}
	return at + pointer("content", "application/json", "schema")
}

// ErrUnknownOperation: the description has no such method and path.
var ErrUnknownOperation = errors.New("operation is not in the description")

// find matches a request to its operation: of several the one that spells most
// of the path out.
func (d *Description) find(method, escaped string) (operation, map[string]string, error) {
	// Redirects of renamed repositories lead to paths by id, which the
	// description leaves out.
	if rest, ok := strings.CutPrefix(escaped, "/repositories/"); ok {
		_, tail, _ := strings.Cut(rest+"/", "/")
		escaped = strings.TrimSuffix("/repos/owner/name/"+tail, "/")
	}
	var best operation
	var values map[string]string
	for _, op := range d.operations {
		if op.method != method || values != nil && op.literal() <= best.literal() {
			continue
		}
		if v, ok := op.match(strings.Split(escaped, "/")); ok {
			best, values = op, v
		}
	}
	if values == nil {
		return best, nil, fmt.Errorf("%s %s: %w", method, escaped, ErrUnknownOperation)
	}
	return best, values, nil
}

// literal counts the segments that are no parameters.
func (op operation) literal() int { return len(op.segments) - strings.Count(op.path, "{") }

// match assigns the path's segments to the parameters.
func (op operation) match(segments []string) (map[string]string, bool) {
	extra := len(segments) - len(op.segments)
	if extra < 0 || extra > 0 && !slices.Contains(op.wide, true) {
		return nil, false
	}
	values := map[string]string{}
	for i, want := range op.segments {
		take := 1
		if op.wide[i] {
			take += extra
		}
		if take > len(segments) {
			return nil, false
		}
		got := strings.Join(segments[:take], "/")
		segments = segments[take:]
		if name, ok := strings.CutPrefix(want, "{"); ok {
			text, err := url.PathUnescape(got)
			if err != nil || text == "" {
				return nil, false
			}
			values[strings.TrimSuffix(name, "}")] = text
		} else if got != want {
			return nil, false
		}
	}
	return values, len(segments) == 0
}

// usual are the statuses that any operation may answer, described or not; their
// bodies are the description's "basic-error".
func usual(status int) bool {
	return slices.Contains([]int{
		http.StatusMovedPermanently, http.StatusFound, http.StatusTemporaryRedirect, http.StatusBadRequest,
		http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict,
		http.StatusUnsupportedMediaType, http.StatusUnprocessableEntity, http.StatusTooManyRequests,
		http.StatusInternalServerError, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout,
	}, status)
}
