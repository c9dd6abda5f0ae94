package github

import "github.com/go-json-experiment/json"

// decode reads one JSON value strictly: no duplicate names, valid UTF-8,
// names in their exact case, nothing after it. Unknown fields are allowed,
// since GitHub adds fields.
func decode(data []byte, into any) error { return json.Unmarshal(data, into) }
