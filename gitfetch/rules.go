package gitfetch

import "github.com/fencepost/fencepost/gitfetch/internal/pathrule"

// A NameRule is one rule about names in a tree.
type NameRule struct {
	// Rule is the code that a [PathError] carries.
	Rule string
	// Always is false for the rules that [NamesPOSIX] lifts.
	Always bool
	// Kinds says what it applies to: "any", "links", "all but files".
	Kinds string
	// What is refused, and Why, in one clause each.
	What, Why string
	// Examples are names that this rule refuses.
	Examples []string
}

// NameRules returns the rules about single names, in the order in which they
// are asked. Beside them stand "duplicate" and, not under [NamesPOSIX],
// "collision", which compare the names of one directory.
//
// docs/fetch.md shows this table; a test keeps the two alike.
func NameRules() []NameRule {
	var rules []NameRule
	for _, r := range pathrule.Table() {
		rules = append(rules, NameRule{
			Rule: r.ID, Always: r.Scope == pathrule.Always, Kinds: r.Kinds,
			What: r.What, Why: r.Why, Examples: r.Examples,
		})
	}
	return rules
}
