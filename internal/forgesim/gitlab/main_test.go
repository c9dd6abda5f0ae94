package gitlab_test

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fencepost/fencepost/internal/forgesim"
	"github.com/fencepost/fencepost/internal/forgesim/gitlab"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

const audience = "https://fencepost.example.com"

var errRed = errors.New("red")

// A bench is a forge with a project, whose trains have one job of a policy.
type bench struct {
	t        *testing.T
	forge    *gitlab.Forge
	docs     *gitlab.Project
	policies *gitlab.Project
	token    string
	now      atomic.Int64
}

// firstKey is shared, since making one takes longer than most tests.
var firstKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func newBench(t *testing.T, change ...func(*gitlab.Config)) *bench {
	t.Helper()
	b := &bench{t: t}
	b.now.Store(time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC).Unix())
	config := gitlab.Config{Key: firstKey(), Dir: filepath.Join(t.TempDir(), "forge"), Now: func() time.Time { return time.Unix(b.now.Load(), 0).UTC() }}
	for _, c := range change {
		c(&config)
	}
	forge, err := gitlab.New(t.Context(), config)
	must(t, err)
	t.Cleanup(func() { must(t, forge.Close()) })
	b.forge, b.token = forge, forge.NewToken("reader", gitlab.Maintainer, "read_api", "read_repository")
	b.docs, err = forge.CreateProject(t.Context(), gitlab.Create{Namespace: "acme/handbooks", Name: "docs", Files: map[string]string{"README.md": "# Docs\n"}})
	must(t, err)
	b.policies, err = forge.CreateProject(t.Context(), gitlab.Create{Namespace: "acme", Name: "policies", Files: map[string]string{
		gitlab.PolicyPath: "pipeline_execution_policy: []\n\n", "job.yml": "fencepost: {}\n",
	}})
	must(t, err)
	b.docs.SetJobs(gitlab.JobSpec{Name: "fencepost", Policy: &gitlab.Policy{Project: b.policies}, Audience: audience})
	return b
}

func (b *bench) pass(d time.Duration) { b.now.Add(int64(d / time.Second)) }

// do asks the API and returns status, headers and body.
func (b *bench) do(method, path, token string, body ...string) (int, http.Header, string) {
	b.t.Helper()
	request := httptest.NewRequest(method, "http://gitlab.invalid"+path, strings.NewReader(strings.Join(body, "")))
	if token != "" {
		request.Header.Set("PRIVATE-TOKEN", token)
	}
	w := httptest.NewRecorder()
	b.forge.ServeHTTP(w, request)
	return w.Code, w.Header(), w.Body.String()
}

// get asks about the project and wants an answer.
func (b *bench) get(path string) any {
	b.t.Helper()
	code, _, body := b.do("GET", fmt.Sprintf("/api/v4/projects/%d%s", b.docs.ID(), path), b.token)
	var v any
	if err := json.Unmarshal([]byte(body), &v); code != 200 || err != nil {
		b.t.Fatalf("%s: %d %s %v", path, code, body, err)
	}
	return v
}

func (b *bench) open(branch string, files ...string) *gitlab.MergeRequest {
	b.t.Helper()
	m, err := b.docs.OpenRequest(b.t.Context(), gitlab.Open{Source: branch, Change: texts(files...)})
	must(b.t, err)
	return m
}

func (b *bench) join(m *gitlab.MergeRequest) *gitlab.Car {
	b.t.Helper()
	c, err := m.JoinTrain(b.t.Context())
	must(b.t, err)
	return c
}

func (b *bench) finish(c *gitlab.Car, result error) {
	b.t.Helper()
	must(b.t, c.Pipeline().Job("fencepost").Finish(b.t.Context(), result))
}

func (b *bench) parents(commit string) []string {
	b.t.Helper()
	out, err := exec.CommandContext(b.t.Context(), "git", "--git-dir="+b.docs.GitDir(), "rev-list", "--parents", "-n1", commit).Output()
	must(b.t, err)
	return strings.Fields(string(out))[1:]
}

func (b *bench) main() string { return b.docs.Ref("refs/heads/main") }

func texts(names ...string) forgesim.Change {
	c := forgesim.Change{Files: map[string]string{}}
	for _, n := range names {
		c.Files[n] = n + "\n"
	}
	return c
}

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
					if len(list) == 0 {
						t.Errorf("%s: %s is empty, and shows nothing", what, name)
					}
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
