package gitea_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
)

// kindOf is the type of a JSON value as the contract names it.
func kindOf(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case bool:
		return "bool"
	case float64:
		if v == float64(int64(v)) {
			return "int"
		}
		return "number"
	case string:
		return "string"
	case []any:
		return "array"
	}
	return "object"
}

// hold holds a value against fields: path → type, "[]" for each element.
func hold(t *testing.T, what string, value any, fields map[string]string) {
	t.Helper()
	for path, want := range fields {
		at := []any{value}
		for part := range strings.SplitSeq(path, ".") {
			var next []any
			for _, v := range at {
				name, each := strings.CutSuffix(part, "[]")
				o, ok := v.(map[string]any)
				member, there := o[name]
				if !ok || !there {
					t.Errorf("%s has no %s", what, path)
					continue
				}
				if each {
					list, _ := member.([]any)
					next = append(next, list...)
					continue
				}
				next = append(next, member)
			}
			at = next
		}
		for _, v := range at {
			if got := kindOf(v); !slices.Contains(strings.Split(want, "|"), got) {
				t.Errorf("%s: %s is %s, want %s", what, path, got, want)
			}
		}
	}
}

// Fields of contracts/gitea.md §3 and §4.
var (
	repositoryFields = map[string]string{
		"id": "int", "owner.id": "int", "owner.login": "string", "owner.username": "string", "name": "string", "full_name": "string",
		"private": "bool", "clone_url": "string", "default_branch": "string", "archived": "bool", "empty": "bool",
		"object_format_name": "string", "updated_at": "string",
		"permissions.admin": "bool", "permissions.push": "bool", "permissions.pull": "bool",
	}
	commitFields = map[string]string{
		"id": "string", "message": "string", "url": "string", "author.name": "string", "author.email": "string", "author.username": "string",
		"committer.name": "string", "verification": "null|object", "timestamp": "string", "added": "array", "removed": "array", "modified": "array",
	}
	pushFields = map[string]string{
		"ref": "string", "before": "string", "after": "string", "compare_url": "string", "commits": "array", "total_commits": "int",
		"head_commit": "object", "repository": "object",
		"pusher.id": "int", "pusher.login": "string", "pusher.username": "string", "pusher.email": "string",
		"sender.id": "int", "sender.login": "string", "sender.username": "string", "sender.email": "string",
	}
	// What GitHub's pushes have and these have not.
	absentFields = []string{"created", "deleted", "forced", "base_ref", "compare", "installation"}
)

func parse(t *testing.T, body []byte) map[string]any {
	t.Helper()
	var o map[string]any
	must(t, json.Unmarshal(body, &o))
	return o
}

func holdPush(t *testing.T, body []byte) map[string]any {
	t.Helper()
	o := parse(t, body)
	hold(t, "push", o, pushFields)
	hold(t, "push's repository", o["repository"], repositoryFields)
	hold(t, "head_commit", o["head_commit"], commitFields)
	for _, c := range o["commits"].([]any) {
		hold(t, "commit", c, commitFields)
	}
	for _, name := range absentFields {
		if _, there := o[name]; there {
			t.Errorf("push has %s", name)
		}
	}
	if !strings.HasPrefix(string(body), "{\n  \"") || strings.HasSuffix(string(body), "\n") {
		t.Errorf("the body %.20q… is not indented by two blanks, or ends in a line end", body)
	}
	return o
}
