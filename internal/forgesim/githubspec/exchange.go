package githubspec

import (
	"bytes"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// CheckRequest holds a request against its operation: method, path, query and
// body. The URL's path begins where the description's do, at "/app" or
// "/repos". Its errors say what differs.
func (d *Description) CheckRequest(r *http.Request, body []byte) error {
	op, values, err := d.find(r.Method, r.URL.EscapedPath())
	if err != nil {
		return err
	}
	var faults []error
	for name, text := range values {
		faults = append(faults, d.checkParameter(op.parameters[name], name, text))
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	faults = append(faults, err)
	for name, texts := range query {
		p, ok := op.query[name]
		if !ok || len(texts) != 1 {
			faults = append(faults, fmt.Errorf("query parameter %s is not in the description, or is repeated", name))
			continue
		}
		faults = append(faults, d.checkParameter(p, name, texts[0]))
	}
	for name, p := range op.query {
		if p.required && !query.Has(name) {
			faults = append(faults, fmt.Errorf("query parameter %s is required", name))
		}
	}
	faults = append(faults, d.checkRequestBody(op, r, body))
	return op.wrap("request", errors.Join(faults...))
}

func (op operation) wrap(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s of %s %s: %w", what, op.method, op.path, err)
}

// checkParameter reads a text as the parameter's type.
func (d *Description) checkParameter(p parameter, name, text string) error {
	var value any = text
	switch p.kind {
	case "integer":
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return fmt.Errorf("parameter %s is no integer", name)
		}
		value = n
	case "boolean":
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("parameter %s is no boolean", name)
		}
		value = b
	}
	if p.pointer == "" {
		return nil
	}
	schema, err := d.api.compile(p.pointer)
	if err != nil {
		return err
	}
	if err := schema.Validate(value); err != nil {
		return fmt.Errorf("parameter %s: %w", name, err)
	}
	return nil
}

func (d *Description) checkRequestBody(op operation, r *http.Request, body []byte) error {
	switch {
	case len(body) == 0 && op.needsBody:
		return errors.New("a body is required")
	case len(body) == 0:
		return nil
	case !op.body:
		return errors.New("the operation takes no body")
	}
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return errors.New("the body is not declared application/json")
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("body: %w", err)
	}
	method := map[string]string{"GET": "get", "PUT": "put", "POST": "post", "PATCH": "patch", "DELETE": "delete"}[op.method]
	at := pointer("paths", op.path, method, "requestBody", "content", "application/json", "schema")
	return d.api.check(at, value)
}

// CheckAnswer holds an answer to r against its operation: a status that the
// description has or that any operation may give, and the body of that status.
func (d *Description) CheckAnswer(r *http.Request, status int, header http.Header, body []byte) error {
	op, _, err := d.find(r.Method, r.URL.EscapedPath())
	if err != nil {
		if status == http.StatusNotFound {
			return nil
		}
		return err
	}
	at, described := op.answers[status]
	if !described {
		if !usual(status) {
			return op.wrap("answer", fmt.Errorf("status %d is not in the description", status))
		}
		switch status {
		case http.StatusUnprocessableEntity:
			at = pointer("components", "schemas", "validation-error")
		case http.StatusServiceUnavailable:
			at = pointer("components", "responses", "service_unavailable", "content", "application/json", "schema")
		default:
			at = pointer("components", "schemas", "basic-error")
		}
	}
	return op.wrap(fmt.Sprintf("answer %d", status), d.checkAnswerBody(at, header, body))
}

func (d *Description) checkAnswerBody(at string, header http.Header, body []byte) error {
	if at == "" {
		if len(body) != 0 {
			return errors.New("the answer has no body in the description")
		}
		return nil
	}
	if kind, _, err := mime.ParseMediaType(header.Get("Content-Type")); err != nil || kind != "application/json" {
		return errors.New("the body is not declared application/json")
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("body: %w", err)
	}
	if header.Get("X-GitHub-Api-Version-Selected") == "2026-03-10" {
		later, err := d.api2026()
		if err != nil {
			return err
		}
		return errors.Join(later.check(at, value), gone("", value))
	}
	return d.api.check(at, value)
}

// gone finds members that version 2026-03-10 no longer has.
func gone(path string, value any) error {
	var faults []error
	switch value := value.(type) {
	case map[string]any:
		for name, member := range value {
			if slices.Contains(removed2026(), name) {
				faults = append(faults, fmt.Errorf("%s/%s is removed in version 2026-03-10", path, name))
			}
			faults = append(faults, gone(path+"/"+name, member))
		}
	case []any:
		for _, item := range value {
			faults = append(faults, gone(path+"/-", item))
		}
	}
	return errors.Join(faults...)
}

// Observer returns a function that holds each exchange it is told against the
// description and reports what differs as an error of the test. An unknown path
// that was answered 404 is no difference.
func (d *Description) Observer(tb testing.TB) func(r *http.Request, requestBody []byte, status int, header http.Header, body []byte) {
	return func(r *http.Request, requestBody []byte, status int, header http.Header, body []byte) {
		// What the forge refused may break the description; what it took must not.
		if err := d.CheckRequest(r, requestBody); err != nil && status < http.StatusBadRequest {
			tb.Errorf("%v", err)
		}
		if err := d.CheckAnswer(r, status, header, body); err != nil {
			tb.Errorf("%v", err)
		}
	}
}

// Client is [Description.Observer] for a client whose every request must keep
// to the description, also one that is refused.
func (d *Description) Client(tb testing.TB) func(r *http.Request, requestBody []byte, status int, header http.Header, body []byte) {
	return func(r *http.Request, requestBody []byte, status int, header http.Header, body []byte) {
		if err := d.CheckRequest(r, requestBody); err != nil {
			tb.Errorf("%v", err)
		}
		if err := d.CheckAnswer(r, status, header, body); err != nil {
			tb.Errorf("%v", err)
		}
	}
}
