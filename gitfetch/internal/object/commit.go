package object

import (
	"bytes"
	"fmt"

	"github.com/fencepost/fencepost"
)

// CommitFacts are what the project needs to know of a commit.
type CommitFacts struct {
	Tree    fencepost.TreeID
	Parents []fencepost.CommitID
}

// ParseCommit reads the tree and the parents of a commit. These two must
// have their exact form, and the whole header must be lines without NUL;
// identities, dates and further headers may be odd, as history is full of
// such. Its error matches [ErrMalformed].
func ParseCommit(content []byte) (CommitFacts, error) {
	header := content
	if end := bytes.Index(content, []byte("\n\n")); end >= 0 {
		header = content[:end+1]
	}
	if len(header) == 0 || header[len(header)-1] != '\n' {
		return CommitFacts{}, malformed("commit header does not end in a line feed")
	}
	if bytes.IndexByte(header, 0) >= 0 {
		return CommitFacts{}, malformed("commit header holds a NUL")
	}
	hex, rest, ok := cutLine(header, "tree ")
	if !ok {
		return CommitFacts{}, malformed("commit does not begin with its tree")
	}
	tree, err := fencepost.ParseTreeID(hex)
	if err != nil {
		return CommitFacts{}, malformed(err.Error())
	}
	facts := CommitFacts{Tree: tree}
	for {
		hex, after, ok := cutLine(rest, "parent ")
		if !ok {
			break
		}
		parent, err := fencepost.ParseCommitID(hex)
		if err != nil {
			return CommitFacts{}, malformed("parent: " + err.Error())
		}
		facts.Parents = append(facts.Parents, parent)
		rest = after
	}
	// A second tree or a parent further down is read by no Git, but would be
	// by a careless tool: two readers must not see two commits.
	for len(rest) > 0 {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		if bytes.HasPrefix(line, []byte("parent ")) || bytes.HasPrefix(line, []byte("tree ")) {
			return CommitFacts{}, malformed("commit has a tree or parent line out of place")
		}
		rest = after
	}
	return facts, nil
}

// cutLine returns the rest of the first line of b after prefix.
func cutLine(b []byte, prefix string) (value string, rest []byte, ok bool) {
	if !bytes.HasPrefix(b, []byte(prefix)) {
		return "", b, false
	}
	line, rest, ok := bytes.Cut(b[len(prefix):], []byte("\n"))
	if !ok {
		return "", b, false
	}
	return string(line), rest, true
}

func malformed(what string) error { return fmt.Errorf("%w: %s", ErrMalformed, what) }
