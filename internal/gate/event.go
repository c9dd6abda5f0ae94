package gate

import (
	"time"

	"github.com/fencepost/fencepost"
)

// A Kind says what an [Event] tells of.
type Kind string

// The kinds of events, in the order of a delivery's life.
const (
	// KindRefused: recorded, but it never becomes work.
	KindRefused Kind = "refused"
	// KindClaimed: a lease was granted.
	KindClaimed Kind = "claimed"
	// KindRefreshed: the gate was read at the provider.
	KindRefreshed Kind = "refreshed"
	// KindFetched: a commit's files were fetched and verified.
	KindFetched Kind = "fetched"
	// KindRan: the program ended.
	KindRan Kind = "ran"
	// KindStaged: the publication is frozen.
	KindStaged Kind = "staged"
	// KindPublished: an attempt to publish, and what came of it.
	KindPublished Kind = "published"
	// KindRetrying: an attempt failed and another follows.
	KindRetrying Kind = "retrying"
	// KindEnded: done, and why.
	KindEnded Kind = "ended"
)

// An Event is one thing that happened to one delivery. It holds no secret,
// body, header, path of the host or anything personal.
type Event struct {
	At       time.Time
	Kind     Kind
	Delivery fencepost.DeliveryID
	Route    fencepost.RouteName
	Anchor   fencepost.AnchorID
	Gate     Name
	// Evaluation and Fence are empty before a claim.
	Evaluation string
	Fence      uint64
	// Attempt counts from 1.
	Attempt int
	Reason  fencepost.Reason
	Took    time.Duration
	Details []Detail
}

// A Detail is one named fact of an [Event].
type Detail struct{ Name, Value string }

// An AlertCode names a kind of alert. The list is closed. DESIGN §10
type AlertCode string

// The alerts that gates raise.
const (
	AlertInboxExpired     AlertCode = "inbox_expired"
	AlertMissedDelivery   AlertCode = "missed_delivery"
	AlertLedgerCapacity   AlertCode = "ledger_capacity"
	AlertLedgerCorrupt    AlertCode = "ledger_corrupt"
	AlertPublishConflict  AlertCode = "publish_conflict"
	AlertRetriesExhausted AlertCode = "retries_exhausted"
	AlertCredential       AlertCode = "credential"
	AlertProvider         AlertCode = "provider"
	AlertCleanupFailed    AlertCode = "cleanup_failed"
)

// An Alert is something that a person should look at. DESIGN §10
type Alert struct {
	Code AlertCode
	// Subject is opaque: a gate's or a delivery's name.
	Subject string
	Reason  fencepost.Reason
	// Count and Age are zero where they say nothing.
	Count int
	Age   time.Duration
}
