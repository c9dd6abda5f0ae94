package gitlab

import (
	"errors"
	"strconv"
	"unicode/utf8"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

const (
	// maxPolicyBytes bounds a policy file; GitLab allows five policies in one.
	maxPolicyBytes = 256 << 10
	// maxPolicyDepth bounds how deep it nests.
	maxPolicyDepth = 32
)

var errPolicyForm = errors.New("the policy is not one plain YAML document, or too large")

// A scalar is a plain value of a policy, as it is written.
type scalar string

// readYAML reads one document of mappings, lists and plain values: as
// map[string]any, []any, scalar, and nil for nothing. What would leave open what
// it says is an error: a name that stands twice, anchors, aliases, merges and
// tags.
func readYAML(text []byte) (any, error) {
	if len(text) > maxPolicyBytes || !utf8.Valid(text) || nests(text) {
		return nil, errPolicyForm
	}
	file, err := parser.ParseBytes(text, 0, parser.AllowDuplicateMapKey())
	if err != nil || len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return nil, errPolicyForm
	}
	return plainValue(file.Docs[0].Body, maxPolicyDepth)
}

// nests reports whether the text may nest too deeply for the parser, which
// recurses: by brackets, or by dashes and question marks in one line. It knows
// no quotes, so that it can be simple.
func nests(text []byte) bool {
	depth, marks := 0, 0
	for i, c := range text {
		switch {
		case c == '[' || c == '{':
			depth++
		case c == ']' || c == '}':
			depth = max(0, depth-1)
		case c == '\n':
			marks = 0
		case (c == '-' || c == '?') && i+1 < len(text) && text[i+1] == ' ':
			marks++
		}
		if depth > maxPolicyDepth || marks > maxPolicyDepth {
			return true
		}
	}
	return false
}

func plainValue(n ast.Node, depth int) (any, error) {
	if depth == 0 {
		return nil, errPolicyForm
	}
	switch n := n.(type) {
	case nil, *ast.NullNode:
		return nil, nil
	case *ast.StringNode:
		return scalar(n.Value), nil
	case *ast.LiteralNode:
		return scalar(n.Value.Value), nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return scalar(n.GetToken().Value), nil
	case *ast.SequenceNode:
		list := make([]any, 0, len(n.Values))
		for _, item := range n.Values {
			v, err := plainValue(item, depth-1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case ast.MapNode:
		return plainMapping(n, depth)
	}
	return nil, errPolicyForm
}

func plainMapping(n ast.MapNode, depth int) (any, error) {
	m := map[string]any{}
	for entries := n.MapRange(); entries.Next(); {
		key := entries.Key()
		if _, ok := key.(ast.ScalarNode); !ok || key.Type() == ast.MergeKeyType || key.Type() == ast.NullType {
			return nil, errPolicyForm
		}
		name := key.GetToken().Value
		if _, twice := m[name]; twice {
			return nil, errPolicyForm
		}
		v, err := plainValue(entries.Value(), depth-1)
		if err != nil {
			return nil, err
		}
		m[name] = v
	}
	return m, nil
}

// truth reads a plain value as true or false; ok is false where it is neither.
func truth(v any) (is, ok bool) {
	s, ok := v.(scalar)
	if !ok {
		return false, false
	}
	is, err := strconv.ParseBool(string(s))
	return is, err == nil && (s == "true" || s == "false")
}
