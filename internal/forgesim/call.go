package forgesim

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Versions of the API.
const (
	version2022 = "2022-11-28" // the default
	version2026 = "2026-03-10" // without merge_commit_sha
)

// An object is a JSON object of an answer or a payload.
type object = map[string]any

// An answer is a whole answer to a REST call.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// A call is one REST call under way.
type call struct {
	ctx     context.Context
	request *http.Request
	route   *route
	who     identity
	version string
	body    []byte
	query   url.Values
	repo    *Repository
	effects []Effect
}

func (c *call) path(name string) string { return c.request.PathValue(name) }

// number reads a path parameter that is a number; a text that is none finds
// nothing.
func (c *call) number(name string) int64 {
	n, err := strconv.ParseInt(c.path(name), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// found answers 200 with a JSON value.
func found(value any) answer { return reply(http.StatusOK, value) }

// reply answers with a JSON value.
func reply(status int, value any) answer {
	return answer{status: status, header: http.Header{"Content-Type": {"application/json; charset=utf-8"}}, body: encode(value)}
}

// encode writes JSON as GitHub does: without escapes for HTML. The values are
// the forge's own, so a value that has no JSON is a bug.
func encode(value any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(value); err != nil {
		panic("forgesim: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

const docsURL = "https://docs.github.com/rest"

// failure answers with the form of GitHub's errors, which names the status
// "code" in 503 alone.
func failure(status int, message string) answer {
	name := "status"
	if status == http.StatusServiceUnavailable {
		name = "code"
	}
	return reply(status, object{"message": message, "documentation_url": docsURL, name: strconv.Itoa(status)})
}

func notFound() answer { return failure(http.StatusNotFound, "Not Found") }

// invalid answers 422 and names what was wrong with which field.
func invalid(message string, faults ...object) answer {
	body := object{"message": message, "documentation_url": docsURL}
	if len(faults) > 0 {
		body["errors"] = faults
	}
	return reply(http.StatusUnprocessableEntity, body)
}

// wrong is one entry of a 422's errors.
func wrong(resource, field, code, message string) object {
	return object{"resource": resource, "field": field, "code": code, "message": message}
}

// etag names the body, and the identity's view of it.
func (a answer) etag() string {
	sum := sha256.Sum256(a.body)
	return `W/"` + hex.EncodeToString(sum[:]) + `"`
}

// matches reports whether an If-None-Match header names the tag.
func matches(header, tag string) bool {
	for candidate := range strings.SplitSeq(header, ",") {
		candidate = strings.TrimSpace(candidate)
		if candidate == "*" || strings.TrimPrefix(candidate, "W/") == strings.TrimPrefix(tag, "W/") {
			return true
		}
	}
	return false
}
