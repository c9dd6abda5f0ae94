package gitlab

import "strings"

// maxPath bounds the path of a project with those of its groups, in bytes.
const maxPath = 1024

// ValidPath reports whether s can be a project's path with its namespace:
// group/project, or group/subgroup/project, …
func ValidPath(s string) bool {
	parts := 0
	for part := range strings.SplitSeq(s, "/") {
		if !validSegment(part) {
			return false
		}
		parts++
	}
	return parts >= 2 && len(s) <= maxPath
}

func validSegment(s string) bool {
	return s != "" && s != "." && s != ".." && len(s) <= 255 && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-_.", r)
	})
}
