package gitlab

import (
	"os"
	"strings"
	"testing"
)

// TestTheGuideNamesEverySetting: what a failure names can be looked up.
func TestTheGuideNamesEverySetting(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../../../docs/gates-gitlab.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range everySetting() {
		if !strings.Contains(string(guide), "`"+s.name+"`") {
			t.Errorf("docs/gates-gitlab.md does not name %s", s.name)
		}
	}
	// The example is a policy as it must be.
	_, example, found := strings.Cut(string(guide), "# .gitlab/security-policies/policy.yml\n")
	example, _, closed := strings.Cut(example, "```")
	if !found || !closed {
		t.Fatal("the guide has no example of a policy")
	}
	for _, s := range ofPolicy([]byte(example)) {
		if !s.met() {
			t.Errorf("the example's %s is %q, want %q", s.name, s.seen, s.want)
		}
	}
}
