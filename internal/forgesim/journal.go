package forgesim

import (
	"maps"
	"time"
)

// An Exchange is one request and what was answered to it. No credential is in
// it: By names who the credential belonged to.
type Exchange struct {
	// Seq counts from 1 in the order of arrival.
	Seq int
	// Operation is the route, as the API's description writes it, or
	// [GitAdvertise], [GitFetch] or "" for a path that is none.
	Operation string
	// Method and Path are the request's; Path has no query.
	Method, Path string
	// Query is the request's raw query.
	Query string
	// By is "app 12345", "installation 7", "anonymous" or "invalid".
	By string
	// Repository is the id of the repository asked for; zero where none was
	// found.
	Repository int64
	// Status is what was answered; zero when the connection was dropped
	// instead.
	Status int
	// Faults names the effects that met the request.
	Faults []string
	// Arrived and Answered are of the forge's clock.
	Arrived, Answered time.Time
	// RequestBytes and AnswerBytes are the sizes of the bodies.
	RequestBytes, AnswerBytes int64
}

// A journal is guarded by Forge.mu.
type journal struct {
	limit   int
	seq     int
	entries []Exchange
	counts  map[string]int
	bytes   int64
}

func newJournal(limit int) *journal {
	return &journal{limit: limit, counts: map[string]int{}}
}

func (j *journal) next() int {
	j.seq++
	return j.seq
}

func (j *journal) add(e Exchange) {
	if len(j.entries) >= j.limit {
		j.entries = append(j.entries[:0], j.entries[len(j.entries)-j.limit+1:]...)
	}
	j.entries = append(j.entries, e)
	j.counts[e.Operation]++
	if e.Operation == GitFetch || e.Operation == GitAdvertise {
		j.bytes += e.AnswerBytes
	}
}

// Journal returns the exchanges that ended, in the order of their ends: at
// most [Config.JournalLimit], the newest.
func (f *Forge) Journal() []Exchange {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Exchange(nil), f.journal.entries...)
}

// Count returns how many requests of one operation have ended since the forge
// was made, whatever was answered.
func (f *Forge) Count(operation string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.journal.counts[operation]
}

// Counts returns [Forge.Count] of every operation that was asked for.
func (f *Forge) Counts() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.journal.counts)
}

// GitBytes returns how many bytes of bodies the git server has sent.
func (f *Forge) GitBytes() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.journal.bytes
}
