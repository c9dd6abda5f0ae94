package githubspec

import "slices"

// convert makes JSON Schema 2020-12 of OpenAPI 3.0's dialect in place:
// "nullable" becomes a type or an alternative. It returns its argument.
func convert(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, inner := range v {
			// What examples hold is no schema.
			if key != "example" && key != "examples" && key != "default" {
				v[key] = convert(inner)
			}
		}
		if v["nullable"] == true {
			nullable(v)
		}
	case []any:
		for i := range v {
			v[i] = convert(v[i])
		}
	}
	return v
}

// nullable lets a schema accept null.
func nullable(schema map[string]any) {
	delete(schema, "nullable")
	if kind, ok := schema["type"].(string); ok {
		schema["type"] = []any{kind, "null"}
	}
	if values, ok := schema["enum"].([]any); ok && !slices.Contains(values, nil) {
		schema["enum"] = append(values, nil)
	}
	null := map[string]any{"type": "null"}
	for _, key := range []string{"anyOf", "oneOf"} {
		if choices, ok := schema[key].([]any); ok {
			// A choice may accept null by itself, so exactly one can't be asked.
			delete(schema, key)
			schema["anyOf"] = append(slices.Clone(choices), null)
		}
	}
	if all, ok := schema["allOf"]; ok {
		delete(schema, "allOf")
		schema["anyOf"] = []any{map[string]any{"allOf": all}, null}
	}
}

// amend corrects the description where it contradicts itself or is known to
// differ from what GitHub answers.
func amend(api map[string]any) error {
	for _, name := range []string{"pull-request", "pull-request-simple"} {
		head, err := member(api, "components", "schemas", name, "properties", "head", "properties")
		if err != nil {
			return err
		}
		// The repository of a fork that was deleted is null.
		head["repo"] = map[string]any{"anyOf": []any{head["repo"], map[string]any{"type": "null"}}}
	}
	// In this list alone an account has to be a user and an enterprise at once.
	list, err := member(api, "paths", "/app/installations", "get", "responses", "200", "content", "application/json", "schema")
	if err != nil {
		return err
	}
	list["items"] = map[string]any{"$ref": "#/components/schemas/installation"}
	return nil
}

// removed2026 are the fields that version 2026-03-10 of the API removed, of
// those that are required in the version described.
func removed2026() []string {
	return []string{"merge_commit_sha", "assignee", "has_downloads", "rate"}
}

// without copies a document whose schemas do not require some fields.
func without(v any, fields []string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, inner := range v {
			if names, ok := inner.([]any); ok && key == "required" {
				inner = slices.DeleteFunc(slices.Clone(names), func(name any) bool {
					text, ok := name.(string)
					return ok && slices.Contains(fields, text)
				})
				out[key] = inner
				continue
			}
			out[key] = without(inner, fields)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = without(v[i], fields)
		}
		return out
	}
	return v
}
