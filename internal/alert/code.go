package alert

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/fencepost/fencepost"
)

// A Code says what an alert is about. The list is closed (DESIGN §10);
// docs/alerts.md has a line for each.
type Code string

// The codes.
const (
	// Freshness: a source has gone too long without complete evidence.
	Freshness Code = "freshness"
	// LockStale: a source lock outlived its holder.
	LockStale Code = "lock_stale"
	// RunFailed: a source run ended without its content.
	RunFailed Code = "run_failed"
	// RunPartial: a source run applied a part of its content.
	RunPartial Code = "run_partial"
	// RetriesExhausted: the bounded number of attempts was used up.
	RetriesExhausted Code = "retries_exhausted"
	// Credential: a provider refuses our credential, or it can't be read.
	Credential Code = "credential"
	// Provider: a provider fails, or is not what the configuration says.
	Provider Code = "provider"
	// FollowUpStuck: a follow-up was promised and hasn't begun.
	FollowUpStuck Code = "follow_up_stuck"
	// HeadContradiction: what was announced and what is there don't agree.
	HeadContradiction Code = "head_contradiction"
	// CleanupFailed: something temporary could not be removed.
	CleanupFailed Code = "cleanup_failed"
	// InboxExpired: a recorded delivery got too old to become work.
	InboxExpired Code = "inbox_expired"
	// MissedDelivery: the provider has something that never came here.
	MissedDelivery Code = "missed_delivery"
	// LedgerCapacity: the ledger, or the inbox, is full or nearly so.
	LedgerCapacity Code = "ledger_capacity"
	// LedgerCorrupt: stored bytes don't verify, or a sync failed.
	LedgerCorrupt Code = "ledger_corrupt"
	// PublishConflict: what the provider shows under our key is not what was
	// staged.
	PublishConflict Code = "publish_conflict"
)

// Codes lists all codes in a fixed order.
func Codes() []Code {
	return []Code{
		Freshness, LockStale, RunFailed, RunPartial, RetriesExhausted, Credential, Provider, FollowUpStuck,
		HeadContradiction, CleanupFailed, InboxExpired, MissedDelivery, LedgerCapacity, LedgerCorrupt, PublishConflict,
	}
}

// Meaning is the code's meaning in a few words, for people.
func (c Code) Meaning() string {
	switch c {
	case Freshness:
		return "a source has gone too long without complete evidence"
	case LockStale:
		return "a source lock outlived its holder"
	case RunFailed:
		return "a source run failed"
	case RunPartial:
		return "a source run applied only a part"
	case RetriesExhausted:
		return "every attempt was used up"
	case Credential:
		return "a credential is refused or can't be read"
	case Provider:
		return "a provider fails or is not what the configuration says"
	case FollowUpStuck:
		return "a follow-up run has not begun"
	case HeadContradiction:
		return "announced and observed head disagree"
	case CleanupFailed:
		return "something temporary could not be removed"
	case InboxExpired:
		return "a recorded delivery got too old to become work"
	case MissedDelivery:
		return "the provider has what never came here"
	case LedgerCapacity:
		return "the ledger or the inbox is full, or nearly so"
	case LedgerCorrupt:
		return "stored bytes don't verify, or a sync failed"
	case PublishConflict:
		return "the provider shows something else under our key"
	}
	return "unknown"
}

// Valid reports whether c is one of [Codes].
func (c Code) Valid() bool { return slices.Contains(Codes(), c) }

// A Subject is the opaque name of what an alert is about, such as a delivery
// id or "gate:docs". It holds no repository, commit, path or person.
type Subject string

// overflow is the subject that stands for all subjects there was no room for.
const overflow Subject = "overflow"

var subjectForm = regexp.MustCompile(`^[a-z0-9][a-z0-9_.:-]{0,79}$`)

// ParseSubject checks the form: 1 to 80 characters a-z, 0-9, and _ . : - not
// at the start. Its error matches [fencepost.ErrMalformed].
func ParseSubject(s string) (Subject, error) {
	if !subjectForm.MatchString(s) {
		return "", fmt.Errorf("alert subject: want 1 to 80 characters of a-z, 0-9, _ . : and -: %w", fencepost.ErrMalformed)
	}
	return Subject(s), nil
}

// GateSubject is the subject of alerts about a whole gate or its route.
func GateSubject(r fencepost.RouteName) Subject { return Subject("gate:" + string(r)) }

// SourceSubject is the subject of alerts about a source.
func SourceSubject(r fencepost.RouteName) Subject { return Subject(sourcePrefix + string(r)) }

const sourcePrefix = "source:"

// SourceOf is the source that a subject of [SourceSubject] names.
func SourceOf(s Subject) (r fencepost.RouteName, ok bool) {
	name, ok := strings.CutPrefix(string(s), sourcePrefix)
	return fencepost.RouteName(name), ok
}

// DeliverySubject is the subject of alerts about one delivery.
func DeliverySubject(d fencepost.DeliveryID) Subject { return Subject(d) }
