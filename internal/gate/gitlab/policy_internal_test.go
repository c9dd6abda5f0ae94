package gitlab

import (
	"strings"
	"testing"

	"github.com/fencepost/fencepost/internal/gate"
)

// policyText is a policy as it must be.
const (
	policyText = `pipeline_execution_policy:
- name: gate
  enabled: true
  pipeline_config_strategy: inject_policy
  content:
    include:
    - {project: acme/policies, file: job.yml, ref: ` + pinned + `}
- name: another
  enabled: false
  pipeline_config_strategy: override_project_ci
  content: {include: [{local: any.yml}]}
`
	pinned = "0123456789abcdef0123456789abcdef01234567"
)

// TestPolicies holds policies against what a gate needs, one thing off at a
// time.
func TestPolicies(t *testing.T) {
	t.Parallel()
	const include = "- {project: acme/policies, file: job.yml, ref: " + pinned + "}"
	for _, c := range []struct{ name, old, new, unmet string }{
		{"as it must be", "name: gate", "name: gates", ""},
		{"a suffix", "enabled: true", "enabled: true\n  suffix: never", ""},
		{"no skipping", "enabled: true", "enabled: true\n  skip_ci: {allowed: false}", ""},
		{"no variables", "enabled: true", "enabled: true\n  variables_override: {allowed: false}", ""},
		{"override", "inject_policy", "override_project_ci", "policy.pipeline_config_strategy"},
		{"the old strategy", "inject_policy", "inject_ci", "policy.pipeline_config_strategy"},
		{"no strategy", "  pipeline_config_strategy: inject_policy\n", "", "policy.pipeline_config_strategy"},
		{"a second one that overrides", "enabled: false", "enabled: true", "policy.pipeline_config_strategy policy.include"},
		{"a floating include", ", ref: " + pinned, "", "policy.include"},
		{"an include of a branch", pinned, "main", "policy.include"},
		{"an include of a short id", pinned, pinned[:12], "policy.include"},
		{"a local include", include, "- {local: job.yml}", "policy.include"},
		{"a remote include", include, "- remote: https://example.org/job.yml", "policy.include"},
		{"a second, floating include", include, include + "\n    - {project: a/b, file: c.yml}", "policy.include"},
		{"an include with inputs", "file: job.yml", "file: job.yml, inputs: {a: b}", "policy.include"},
		{"no include", "    include:\n    " + include + "\n", "    {}\n", "policy.include"},
		{"none that is on", "enabled: true", "enabled: false", "policy.enabled"},
		{"one that does not say", "enabled: true", "enabled: perhaps", "policy.enabled"},
		{"another suffix", "enabled: true", "enabled: true\n  suffix: always", "policy.suffix"},
		{"skipping", "enabled: true", "enabled: true\n  skip_ci: {allowed: true}", "policy.skip_ci"},
		{"skipping for some", "enabled: true", "enabled: true\n  skip_ci: {allowed: false, allowlist: {users: [{id: 1}]}}", "policy.skip_ci"},
		{"variables", "enabled: true", "enabled: true\n  variables_override: {allowed: true}", "policy.variables_override"},
		{"some variables", "enabled: true", "enabled: true\n  variables_override: {allowed: false, exceptions: [PATH]}", "policy.variables_override"},
		{"a name twice", "enabled: true", "enabled: true\n  enabled: true", "policy.file"},
		{"an alias", "name: gate", "name: &n gate\n  description: *n", "policy.file"},
		{"no YAML", "pipeline_execution_policy:", "{", "policy.file"},
		{"too deep", "name: gate", "name: " + strings.Repeat("[", 40) + strings.Repeat("]", 40), "policy.file"},
		{"two documents", "pipeline_execution_policy:", "a: b\n---\npipeline_execution_policy:", "policy.file"},
		{"no list", "pipeline_execution_policy:", "scan_execution_policy:", "policy.enabled"},
		{"too large", "name: gate", "name: " + strings.Repeat("x", 300<<10), "policy.file"},
	} {
		if !strings.Contains(policyText, c.old) {
			t.Fatalf("%s: %q is not in the policy", c.name, c.old)
		}
		var unmet []string
		for _, s := range ofPolicy([]byte(strings.Replace(policyText, c.old, c.new, 1))) {
			if !s.met() {
				unmet = append(unmet, s.name)
			}
		}
		if names := strings.Join(unmet, " "); names != c.unmet {
			t.Errorf("%s: unmet %q, want %q", c.name, names, c.unmet)
		}
	}
}

// FuzzPolicy: whatever stands in a file, reading it ends, and what is not known
// to be good is not.
func FuzzPolicy(f *testing.F) {
	f.Add([]byte(policyText))
	f.Add([]byte("- - - -\n? ? ?\n"))
	f.Add([]byte("pipeline_execution_policy: [{enabled: true, content: {include: {project: a, file: b, ref: " + pinned + "}}}]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		settings := ofPolicy(data)
		if allMet(settings) && !strings.Contains(string(data), "inject_policy") {
			t.Errorf("%q is taken for a good policy", data)
		}
	})
}

// TestCovers: a star of a protected branch's name stands for any characters.
func TestCovers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, branch string
		want         bool
	}{
		{"main", "main", true}, {"main", "mains", false}, {"*", "main", true}, {"ma*", "main", true}, {"*in", "main", true},
		{"m*n", "main", true}, {"m*a*n", "main", true}, {"m*n*n", "main", false}, {"release/*", "release/1/2", true}, {"release/*", "main", false},
		{"a*b*c", "abc", true}, {"a*bc", "ab", false}, {"ab*ba", "aba", false},
	} {
		if got := covers(c.name, c.branch); got != c.want {
			t.Errorf("%q covers %q: %v, want %v", c.name, c.branch, got, c.want)
		}
	}
}

// TestEverySettingHasAMend: an operator is never told of a fault alone.
func TestEverySettingHasAMend(t *testing.T) {
	t.Parallel()
	for _, s := range everySetting() {
		if mends[s.name] == "" {
			t.Errorf("%s has no mend", s.name)
		}
	}
	if len(mends) != len(everySetting()) {
		t.Errorf("%d mends for %d settings", len(mends), len(everySetting()))
	}
}

// everySetting are all that there can be.
func everySetting() []setting {
	l := &Lane{}
	all := append(ofProject(projectAnswer{}), ofBranch(nil)...)
	all = append(all, l.ofToken(subjectOfTest.Job)...)
	all = append(all, ofPolicy([]byte(policyText))...)
	all = append(all, l.ofJob(subjectOfTest, jobOfTest)...)
	all = append(all, l.ofRequest(requestAnswer{})...)
	all = append(all, ofCar(subjectOfTest, carOfTest)...)
	return append(all, setting{name: "request"})
}

var (
	subjectOfTest = gate.Subject{Number: 1, Job: gate.Job{ID: 302, Pipeline: 574}}
	jobOfTest     = jobAnswer{Pipeline: &pipelineAnswer{}}
	carOfTest     = carAnswer{Pipeline: &pipelineAnswer{}}
)
