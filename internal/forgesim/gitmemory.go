package forgesim

import (
	"bytes"
	"crypto/sha256"
	"net/http"
	"strconv"
)

// maxGitMemory bounds the bytes that [Config.RememberGit] keeps.
const maxGitMemory = 64 << 20

// A gitMemory keeps what git answered. Guarded by Forge.mu.
type gitMemory struct {
	answers map[[sha256.Size]byte]answer
	bytes   int64
}

// gitQuestion names a request whose answer is the same each time: what version
// 2 of the protocol can do, and what it sends for commits that are named by
// their ids. It reports whether the request is one.
func gitQuestion(c *call, body []byte) (q [sha256.Size]byte, ok bool) {
	h := c.request.Header
	if h.Get("Git-Protocol") != "version=2" {
		return q, false
	}
	switch c.route.operation {
	case GitAdvertise:
	case GitFetch:
		if !bytes.Contains(body, []byte("command=fetch\n")) {
			return q, false
		}
	default:
		return q, false
	}
	sum := sha256.New()
	for _, part := range []string{
		c.route.operation, strconv.FormatInt(c.repo.id, 10), h.Get("Content-Encoding"), h.Get("Content-Type"),
	} {
		sum.Write([]byte(part + "\x00"))
	}
	sum.Write(body)
	return [sha256.Size]byte(sum.Sum(nil)), true
}

// recall returns what git answered before.
func (f *Forge) recall(q [sha256.Size]byte) (answer, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	a, ok := f.gitAnswers.answers[q]
	return a, ok
}

// memorize keeps a good answer, and forgets all others where there is no room.
func (f *Forge) memorize(q [sha256.Size]byte, status int, header http.Header, body []byte) {
	if status != http.StatusOK || int64(len(body)) > maxGitMemory {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	m := &f.gitAnswers
	if m.answers == nil || m.bytes+int64(len(body)) > maxGitMemory {
		m.answers, m.bytes = map[[sha256.Size]byte]answer{}, 0
	}
	m.answers[q] = answer{status: status, header: header.Clone(), body: body}
	m.bytes += int64(len(body))
}
