package gitlab

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/url"
	"strings"
	"sync"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/forge"
	"github.com/fencepost/fencepost/internal/gate"
)

// policyPath is where a security policy project has its policies.
const policyPath = ".gitlab/security-policies/policy.yml"

// policyURL is what tokens of jobs name as the policy of a commit.
func (l *Lane) policyURL(commit fencepost.CommitID) string {
	return strings.TrimSuffix(l.config.Instance.String(), "/") + "/" + l.config.Policy.Path + "/-/blob/" + commit.String() + "/" + policyPath
}

// policies remembers what the policies of commits say, which can't change. There
// are at most [MaxCommits].
//
// The zero value remembers nothing yet.
type policies struct {
	mu sync.Mutex
	// Guarded by mu:
	known map[fencepost.CommitID][]setting
}

func (p *policies) get(id fencepost.CommitID) ([]setting, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	found, ok := p.known[id]
	return found, ok
}

func (p *policies) add(id fencepost.CommitID, found []setting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known == nil {
		p.known = map[fencepost.CommitID][]setting{}
	}
	p.known[id] = found
}

// policyOf says what the policy of a job's token is, which is read once for each
// allowed commit. Of no other commit anything is asked.
func (l *Lane) policyOf(ctx context.Context, j gate.Job) ([]setting, error) {
	commit, ok := l.allowed(j)
	if !ok {
		return []setting{{"policy.file", "present", "not read: of no allowed commit"}}, nil
	}
	return l.policyAt(ctx, commit)
}

func (l *Lane) policyAt(ctx context.Context, commit fencepost.CommitID) ([]setting, error) {
	if found, ok := l.policies.get(commit); ok {
		return found, nil
	}
	text, found, err := l.policyFile(ctx, commit)
	if err != nil {
		return nil, err
	}
	if !found {
		// It may be shown some day.
		return []setting{{"policy.file", "present", absent}}, nil
	}
	settings := ofPolicy(text)
	l.policies.add(commit, settings)
	return settings, nil
}

// policyFile reads the file at a commit.
func (l *Lane) policyFile(ctx context.Context, commit fencepost.CommitID) (text []byte, found bool, err error) {
	const op = "get policy file"
	a, err := l.config.Client.Get(ctx, op, "/projects/"+decimal(l.config.Policy.Project)+
		"/repository/files/"+url.PathEscape(policyPath)+"?ref="+commit.String(), "")
	if err != nil || !a.Found() {
		return nil, false, err
	}
	var got struct {
		Path     string `json:"file_path"`
		Encoding string `json:"encoding"`
		Content  string `json:"content"`
		SHA256   string `json:"content_sha256"`
		CommitID string `json:"commit_id"`
	}
	if err := forge.Decode(op, a.Body, &got); err != nil {
		return nil, false, err
	}
	if got.Path != policyPath || got.CommitID != commit.String() || got.Encoding != "base64" {
		return nil, false, forge.Fail(op, fencepost.ReasonProvider, errOther)
	}
	text, err = base64.StdEncoding.DecodeString(got.Content)
	if sum := sha256.Sum256(text); err != nil || hex.EncodeToString(sum[:]) != got.SHA256 {
		return nil, false, forge.Fail(op, fencepost.ReasonProvider, errors.New("the content is not what its digest says"))
	}
	return text, true, nil
}

// ofPolicy holds a policy file against what a gate needs. A token does not say
// which of the file's policies its job comes from, and names of jobs can be
// taken by others: so each that is on has to be one whose jobs are its own.
// contracts/gitlab.md §6, traps 6 and 7
func ofPolicy(text []byte) []setting {
	root, err := readYAML(text)
	if err != nil {
		return []setting{{"policy.file", "present", "not one plain YAML document"}}
	}
	file, _ := root.(map[string]any)
	list, _ := file["pipeline_execution_policy"].([]any)
	var on []map[string]any
	broken := false
	for _, item := range list {
		p, isMap := item.(map[string]any)
		enabled, told := truth(p["enabled"])
		switch {
		case !isMap || !told:
			broken = true
		case enabled:
			on = append(on, p)
		}
	}
	enabled := "1 or more"
	if broken {
		enabled = "not told of each"
	} else if len(on) == 0 {
		enabled = "none"
	}
	return []setting{
		{"policy.file", "present", "present"},
		{"policy.enabled", "1 or more", enabled},
		{"policy.pipeline_config_strategy", "inject_policy", each(on, "inject_policy", strategy)},
		{"policy.include", "pinned to a commit", each(on, "pinned to a commit", includes)},
		{"policy.suffix", "on_conflict or never", each(on, "on_conflict or never", suffix)},
		{"policy.skip_ci", "not allowed", each(on, "not allowed", skipCI)},
		{"policy.variables_override", "not allowed", each(on, "not allowed", variables)},
	}
}

// each is what is seen in the first policy that is not as it must be.
func each(on []map[string]any, want string, see func(map[string]any) string) string {
	for _, p := range on {
		if seen := see(p); seen != want {
			return seen
		}
	}
	return want
}

// strategy: others than inject_policy let the project's own jobs be, or take the
// place of, those of the policy.
func strategy(p map[string]any) string {
	s, ok := p["pipeline_config_strategy"].(scalar)
	if !ok {
		return absentOrOther(p["pipeline_config_strategy"])
	}
	text := string(s)
	return word(&text, "inject_policy", "inject_ci", "override_project_ci")
}

// includes must name files of projects at commits; of anything else, the content
// can be another tomorrow.
func includes(p map[string]any) string {
	content, _ := p["content"].(map[string]any)
	var list []any
	switch v := content["include"].(type) {
	case []any:
		list = v
	case map[string]any:
		list = []any{v}
	}
	if len(list) == 0 || len(content) != 1 {
		return "none, or more than includes"
	}
	for _, item := range list {
		m, _ := item.(map[string]any)
		project, _ := m["project"].(scalar)
		file, _ := m["file"].(scalar)
		ref, hasRef := m["ref"].(scalar)
		if project == "" || file == "" {
			return "not a project's file"
		}
		if _, err := fencepost.ParseCommitID(string(ref)); !hasRef || err != nil {
			return "floating: without ref, or with one that is no commit"
		}
		if len(m) != 3 {
			return "with more than project, file and ref"
		}
	}
	return "pinned to a commit"
}

// suffix: both known ones end in a name that is not the gate's, or in no
// pipeline, where a job of the project has the policy's name.
func suffix(p map[string]any) string {
	switch v, given := p["suffix"]; {
	case !given, v == scalar("on_conflict"), v == scalar("never"):
		return "on_conflict or never"
	}
	return other
}

// skipCI: by default a commit's message can't keep the policy from running.
func skipCI(p map[string]any) string {
	v, given := p["skip_ci"]
	if !given {
		return "not allowed"
	}
	m, _ := v.(map[string]any)
	if allowed, told := truth(m["allowed"]); told && !allowed && len(m) == 1 {
		return "not allowed"
	}
	return "allowed"
}

// variables: a project's variables must not change what the policy's say.
func variables(p map[string]any) string {
	v, given := p["variables_override"]
	if !given {
		return "not allowed"
	}
	m, _ := v.(map[string]any)
	exceptions, _ := m["exceptions"].([]any)
	if allowed, told := truth(m["allowed"]); told && !allowed && len(exceptions) == 0 {
		return "not allowed"
	}
	return "allowed"
}

func absentOrOther(v any) string {
	if v == nil {
		return absent
	}
	return other
}
