package config

import (
	"io/fs"
	"net/url"
	"time"

	"github.com/fencepost/fencepost"
)

// The providers besides [GitHub].
const (
	Gitea   ProviderKind = "gitea"
	Forgejo ProviderKind = "forgejo"
)

// A Source is one source's policy: the revisioned value of DESIGN §9.
type Source struct {
	// Route is the source's key, and the last part of its webhook URL. No
	// gate has the same.
	Route fencepost.RouteName
	// ID names the source for ever, whatever its key becomes.
	ID fencepost.SourceID
	// Provider is never empty.
	Provider ProviderKind
	// API and Git are base URLs without a trailing slash. The caller must not
	// change them.
	API, Git *url.URL
	// Hosts are further origins, without a path, that the Git server may
	// redirect to, in order. The caller must not change them.
	Hosts []*url.URL
	// Trust names one of the configuration's trust sets.
	Trust fencepost.TrustSetName
	// Repository is the one that the content comes from.
	Repository Repository
	// Visibility is what the repository must be.
	Visibility Visibility
	// ObjectFormat is "sha1".
	ObjectFormat string
	// Ref is a full branch ref.
	Ref string
	// Senders are the accounts whose pushes are taken, in the order of their
	// ids; empty if and only if AnyWriter.
	Senders   []Sender
	AnyWriter bool
	// AcceptUnannounced lets a head be applied that no accepted delivery
	// named.
	AcceptUnannounced bool
	// AcceptForced lets a head be applied that doesn't contain the last one.
	AcceptForced bool
	// Credential is what the repository is read with, by Git and by the API.
	Credential SourceCredential
	// AllowHTTP lets the source's URLs be plain http.
	AllowHTTP bool
	// AllowPrivate lets host names lead to private addresses.
	AllowPrivate bool
	// Content says what a tree may hold.
	Content Content
	// Fetch holds the budgets of one acquisition: the source's own, and the
	// configuration's for the rest.
	Fetch Fetch
	// Timings keep the freshness target by at least one of their two sums.
	Timings fencepost.Timings
	// Alerts says which alerts are raised that may be left out.
	Alerts AlertPolicy
	// Sink is where the content goes.
	Sink Sink
	// Enabled says whether runs may begin.
	Enabled bool
	// Contracts is the digest of the rules that pushes, fetches and the sink
	// are held to. Domain "fencepost.source-contracts/v1".
	Contracts [32]byte
	// Digest is the digest of the policy: of everything above, and of no
	// secret. Domain "fencepost.source-policy/v1".
	Digest fencepost.SourceRevision
}

// Visibility is the closed list of what a repository must be.
type Visibility string

// The visibilities. What a provider calls internal is private.
const (
	AnyVisibility Visibility = "any"
	Public        Visibility = "public"
	Private       Visibility = "private"
)

// A Sender is an account of the provider.
type Sender struct {
	ID    int64
	Login string
}

// A SourceCredential is what a source is read with: an App's installation, a
// token, or spelt out that there is none. Exactly one of the three is set.
type SourceCredential struct {
	// App is an installation; nil for none.
	App *App
	// Basic is a user name and a token; zero for none.
	Basic Credential
	// Anonymous: requests carry no credential.
	Anonymous bool
}

// An AlertPolicy says which alerts of a source are raised. All others always
// are.
type AlertPolicy struct {
	// RunFailed and RunPartial let a run that ends so raise an alert.
	RunFailed, RunPartial bool
}

// A SinkKind is the closed list of sinks.
type SinkKind string

// The sinks.
const (
	SinkDirectory SinkKind = "directory"
	SinkRows      SinkKind = "rows"
	SinkProgram   SinkKind = "program"
)

// A Sink says where content goes, and which. Exactly one of Directory, Rows
// and Program is not nil: that of Kind.
type Sink struct {
	Kind SinkKind
	// Mount is the clean path of the directory of the repository whose content
	// is served, as if it were the top; empty for all, and for a program.
	Mount string
	// Include, Exclude and Require are patterns of package glob, of paths from
	// the top of the repository. Content is what Include names, all if it is
	// empty, less what Exclude names. A run whose content has no path for one
	// of Require, or no path at all, fails.
	Include, Exclude, Require []string

	Directory *DirectorySink
	Rows      *RowsSink
	Program   *Plan
}

// A DirectorySink is a tree that is switched in one step.
type DirectorySink struct {
	// Path is the absolute path of the symbolic link that is switched. No
	// other sink has it, one above it or one below it.
	Path string
	// Keep is how many trees stay, the one that is served included.
	Keep int
	// Grace is how long a tree stays at least after another took its place.
	Grace time.Duration
	// Most is how many trees there may be at all; more than Keep.
	Most int
	// Reserve is what must be free before a checkout is made.
	Reserve ByteSize
	// Mode is that of the directories of a tree: 0755, 0750 or 0700.
	Mode fs.FileMode
}

// A RowsSink is a table of a database.
type RowsSink struct {
	// Database is never zero. No other source has the same with the same Table.
	Database Database
	// Table is an identifier of a-z, 0-9 and _.
	Table string
	// MaxRow is the largest file that becomes a row; larger ones are refused,
	// and the run ends partial.
	MaxRow ByteSize
	// Text refuses files that are not UTF-8 text.
	Text bool
}
