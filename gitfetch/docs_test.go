package gitfetch_test

import (
	"flag"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost/gitfetch"
	"github.com/google/go-cmp/cmp"
)

const page = "../docs/fetch.md"

// TestTheManualShowsTheRules keeps the tables of docs/fetch.md alike with
// the code. With -update it writes them.
func TestTheManualShowsTheRules(t *testing.T) {
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	want := between(t, string(b), "<!-- names: kept by a test -->\n", namesTable())
	want = between(t, want, "<!-- budgets: kept by a test -->\n", budgetsTable(t))
	want = between(t, want, "<!-- corpus: kept by a test -->\n", corpusTable())
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(b)); diff != "" {
		t.Errorf("%s (-code +page); go test ./gitfetch -run Manual -update writes it:\n%s", page, diff)
	}
}

var update = flag.Bool("update", false, "write the tables of "+page)

func between(t *testing.T, text, start, table string) string {
	t.Helper()
	head, rest, ok := strings.Cut(text, start)
	_, tail, ended := strings.Cut(rest, "<!-- end -->")
	if !ok || !ended {
		t.Fatalf("%s has no %q", page, start)
	}
	return head + start + table + "<!-- end -->" + tail
}

func namesTable() string {
	var b strings.Builder
	b.WriteString("| rule | refused | of | because | `posix` too |\n| --- | --- | --- | --- | --- |\n")
	for _, r := range gitfetch.NameRules() {
		always := "no"
		if r.Always {
			always = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", r.Rule, strings.ReplaceAll(r.What, "`|`", "`\\|`"), r.Kinds, r.Why, always)
	}
	return b.String()
}

// budgetsTable pairs the names of budgets with the fields of the struct by
// asking which name each field's refusal has.
func budgetsTable(t *testing.T) string {
	t.Helper()
	var rows []string
	defaults := reflect.ValueOf(gitfetch.DefaultBudgets())
	for i := range defaults.NumField() {
		var bad gitfetch.Budgets
		reflect.ValueOf(&bad).Elem().Field(i).SetInt(-1)
		_, name, ok := strings.Cut(bad.Validate().Error(), "budgets: ")
		name, _, _ = strings.Cut(name, " ")
		if !ok {
			t.Fatalf("no name for %s", defaults.Type().Field(i).Name)
		}
		value := fmt.Sprint(defaults.Field(i).Interface())
		if _, isTime := defaults.Field(i).Interface().(time.Duration); !isTime && strings.HasSuffix(name, "_bytes") {
			value = bytesText(defaults.Field(i).Int())
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", name, value, budgetWords()[gitfetch.Budget(name)]))
		if budgetWords()[gitfetch.Budget(name)] == "" {
			t.Errorf("no words for %s", name)
		}
	}
	if len(rows) != len(budgetWords()) {
		t.Errorf("%d budgets, words for %d", len(rows), len(budgetWords()))
	}
	return "| budget | default | bounds |\n| --- | --- | --- |\n" + strings.Join(rows, "")
}

func bytesText(n int64) string {
	for _, unit := range []struct {
		shift int
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n >= 1<<unit.shift && n%(1<<unit.shift) == 0 {
			return fmt.Sprintf("%d %s", n>>unit.shift, unit.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}

func budgetWords() map[gitfetch.Budget]string {
	return map[gitfetch.Budget]string{
		gitfetch.BudgetConnect:       "name look-up, TCP and TLS of one connection",
		gitfetch.BudgetIdle:          "one wait without progress; what only keeps a connection alive is none",
		gitfetch.BudgetTotal:         "the whole fetch, writing included",
		gitfetch.BudgetRedirects:     "redirects of the first request",
		gitfetch.BudgetWire:          "bodies of all answers, as received",
		gitfetch.BudgetMetadata:      "everything in them outside the pack",
		gitfetch.BudgetMetadataLines: "packets of that",
		gitfetch.BudgetInflated:      "all objects and delta texts, unpacked",
		gitfetch.BudgetObjects:       "objects in the pack",
		gitfetch.BudgetDeltaDepth:    "deltas upon deltas; Git packs up to 50",
		gitfetch.BudgetCommit:        "the commit",
		gitfetch.BudgetTree:          "one directory's object",
		gitfetch.BudgetFile:          "one file",
		gitfetch.BudgetPaths:         "files and directories, each as often as it stands in the tree",
		gitfetch.BudgetRepeats:       "of those, what stands in a directory that the tree has more than once",
		gitfetch.BudgetDepth:         "components of a path",
		gitfetch.BudgetComponent:     "one component",
		gitfetch.BudgetPath:          "one path",
		gitfetch.BudgetLinks:         "symbolic links",
		gitfetch.BudgetLinkBytes:     "their texts together",
		gitfetch.BudgetOutput:        "all written files, each as often as it is written",
	}
}

func TestRuleCodesAreUnique(t *testing.T) {
	t.Parallel()
	var codes []string
	for _, r := range gitfetch.NameRules() {
		codes = append(codes, r.Rule)
	}
	codes = append(codes, "duplicate", "collision", "symlink", "gitlink", "link-target", "link-escape", "link-loop")
	slices.Sort(codes)
	if unique := slices.Compact(slices.Clone(codes)); len(unique) != len(codes) {
		t.Errorf("codes %q", codes)
	}
}
