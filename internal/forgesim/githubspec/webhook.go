package githubspec

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// CheckWebhook holds a webhook's headers and payload against the description of
// its event and action.
func (d *Description) CheckWebhook(header http.Header, body []byte) error {
	event := header.Get("X-GitHub-Event")
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("webhook %s: %w", event, err)
	}
	key := strings.ReplaceAll(event, "_", "-")
	if payload, ok := value.(map[string]any); ok {
		if action, ok := payload["action"].(string); ok {
			key += "-" + strings.ReplaceAll(action, "_", "-")
		}
	}
	described, err := member(d.events, key, "post")
	if err != nil {
		return fmt.Errorf("webhook %s is not in the description", key)
	}
	var faults []error
	parameters, _ := described["parameters"].([]any)
	for _, p := range parameters {
		p := p.(map[string]any)
		if name := p["name"].(string); p["in"] == "header" && p["required"] == true && len(header.Values(name)) != 1 {
			faults = append(faults, fmt.Errorf("header %s must be there once", name))
		}
	}
	at := pointer("webhooks", key, "post", "requestBody", "content", "application/json", "schema")
	faults = append(faults, d.webhooks.check(at, value))
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("webhook %s: %w", key, err)
	}
	return nil
}

// An example is one payload that GitHub published.
type example struct {
	event, action string
	payload       map[string]any
}

func readExamples(path string) ([]example, error) {
	v, err := readJSON(path)
	if err != nil {
		return nil, err
	}
	events, ok := v.([]any)
	if !ok {
		return nil, errors.New("webhook examples are not a list")
	}
	var all []example
	for _, event := range events {
		e := event.(map[string]any)
		for _, payload := range e["examples"].([]any) {
			p := payload.(map[string]any)
			action, _ := p["action"].(string)
			all = append(all, example{event: e["name"].(string), action: action, payload: p})
		}
	}
	return all, nil
}

// Examples returns the published payloads of an event, each as JSON text.
func (d *Description) Examples(event string) ([][]byte, error) {
	var all [][]byte
	for _, e := range d.examples {
		if e.event != event {
			continue
		}
		body, err := json.Marshal(e.payload)
		if err != nil {
			return nil, fmt.Errorf("example of webhook %s: %w", event, err)
		}
		all = append(all, body)
	}
	return all, nil
}

// Compare finds members that every published example of an event and action
// has and a payload lacks, and members whose JSON type differs from all of
// them. Null agrees with every type. Without an example its error says so.
func (d *Description) Compare(event, action string, body []byte) error {
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("webhook %s: %w", event, err)
	}
	var examples []any
	for _, e := range d.examples {
		if e.event == event && e.action == action {
			examples = append(examples, e.payload)
		}
	}
	if len(examples) == 0 {
		return fmt.Errorf("no example of %s %s is published", event, action)
	}
	return compare(examples, value, "")
}

func compare(examples []any, value any, path string) error {
	if differs(examples, value) {
		return fmt.Errorf("%s is %T, unlike every example", path, value)
	}
	object, ok := value.(map[string]any)
	if !ok {
		return nil
	}
	members := map[string][]any{}
	objects := 0
	for _, e := range examples {
		o, ok := e.(map[string]any)
		if !ok {
			continue
		}
		objects++
		for name, member := range o {
			members[name] = append(members[name], member)
		}
	}
	var faults []error
	for name, seen := range members {
		// Each App has permissions of its own; custom_properties stand in examples
		// of places where the description has none.
		if name == "permissions" || name == "custom_properties" {
			continue
		}
		member, ok := object[name]
		switch {
		case ok:
			faults = append(faults, compare(seen, member, path+"/"+name))
		case len(seen) == objects:
			faults = append(faults, fmt.Errorf("%s/%s is in every example", path, name))
		}
	}
	return errors.Join(faults...)
}

// differs reports whether a value's JSON type is none of the examples'.
func differs(examples []any, value any) bool {
	if value == nil {
		return false
	}
	for _, e := range examples {
		if e == nil || fmt.Sprintf("%T", e) == fmt.Sprintf("%T", value) {
			return false
		}
	}
	return len(examples) > 0
}
