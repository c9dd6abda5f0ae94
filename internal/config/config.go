package config

import (
	"net/url"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/webhook"
)

// A Config is a validated configuration: parsed values only. [Parse] makes
// it.
type Config struct {
	// File is the name it was read under.
	File string
	// DataDir is the data directory; relative ones are joined with the
	// file's directory.
	DataDir string
	// Listen and OpsListen are host:port.
	Listen, OpsListen string
	// Replay holds the two ceilings.
	Replay fencepost.ReplayWindow
	// Ledger fixes the ledger's parameters.
	Ledger Ledger
	// Trust holds the trust sets in the order of their names.
	Trust []TrustSet
	// Database is where the state of several machines is kept; zero for
	// DataDir alone.
	Database Database
	// Gates holds the gates in the order of their routes.
	Gates []Gate
	// Sources holds the sources in the order of their routes.
	Sources []Source
	// Ingress, Inbox, Work, Provider, Fetch, Runner, Artifacts, Results,
	// Receipts, Healing and SourceWork are bounds.
	Ingress   Ingress
	Inbox     Inbox
	Work      Work
	Provider  Provider
	Fetch     Fetch
	Runner    Runner
	Artifacts Artifacts
	Results   Results
	Receipts  Receipts
	Healing   Healing
	// SourceWork is about sources, as Work is about gates.
	SourceWork SourceWork
	// Alerts says where alerts go.
	Alerts Alerts
	// Warnings are things that are legal and probably not meant, each one
	// line with its place.
	Warnings []string
}

// A TrustSet is a named set of 1 to 8 anchors with distinct ids.
type TrustSet struct {
	Name    fencepost.TrustSetName
	Anchors []Anchor
	// Standard: its secrets are signing tokens of GitLab, by Standard Webhooks.
	Standard bool
}

// Public reports whether the set holds public keys, which verify the tokens of
// jobs, and not secrets, which verify webhooks.
func (t TrustSet) Public() bool { return len(t.Anchors) > 0 && t.Anchors[0].Secret.IsZero() }

// An Anchor is one key with its window: an HMAC secret, or a public RSA key
// that is here, or one that is known by its thumbprint alone.
type Anchor struct {
	ID fencepost.AnchorID
	// Secret is resolved at use; it has 16 bytes or more. Zero for a public
	// key.
	Secret SecretRef
	// JWK refers to a public key; see [webhook.ParseJWK].
	JWK SecretRef
	// Thumbprint is the key's where it has neither.
	Thumbprint webhook.Thumbprint
	// From is inclusive, Until exclusive; zero means no such end.
	From, Until time.Time
}

// A ProviderKind is the closed list of providers.
type ProviderKind string

// The providers of gates beside those of sources.
const (
	GitHub ProviderKind = "github"
	GitLab ProviderKind = "gitlab"
)

// A Gate is one gate's policy.
type Gate struct {
	// Route is the gate's name, and the last part of its webhook URL.
	Route fencepost.RouteName
	// Provider is never empty.
	Provider ProviderKind
	// API and Git are base URLs without a trailing slash. The caller must not
	// change them.
	API, Git *url.URL
	// Trust names one of the configuration's trust sets.
	Trust fencepost.TrustSetName
	// App is what we authenticate to GitHub as.
	App App
	// Reviewer is what we authenticate to Gitea and Forgejo as; RuleToken is an
	// administrator's, to read the branch rule with.
	Reviewer  Reviewer
	RuleToken SecretRef
	// GitLab is how a gate at GitLab knows its jobs, and what it reads with.
	GitLab GitLabGate
	// Repository is the gated one.
	Repository Repository
	// Base is a full branch ref.
	Base string
	// Check is the name of the check run, or the context of the status.
	Check string
	// Plan is what runs.
	Plan Plan
	// MaxSignedAge shortens the replay window's for this route; 0: it does not.
	MaxSignedAge time.Duration
	// AllowHTTP lets the gate's URLs be plain http.
	AllowHTTP bool
	// AllowPrivate lets host names lead to private addresses.
	AllowPrivate bool
	// Content says what a tree may hold.
	Content Content
	// Digest is the digest of the policy: of everything above, and of no
	// secret. Domain "fencepost.gate-policy/v1".
	Digest [32]byte
}

// A GitLabGate is what gates at GitLab have of their own.
type GitLabGate struct {
	// Issuer is the instance's own URL without a trailing slash. The caller
	// must not change it.
	Issuer *url.URL
	// Audience is whom jobs' tokens are made for.
	Audience string
	// Token refers to an access token with read_api and read_repository.
	Token SecretRef
	// Policy is whose job is believed.
	Policy Policy
}

// A Policy is a pipeline execution policy of GitLab.
type Policy struct {
	// Project is the security policy project's id, Path its path.
	Project int64
	Path    string
	// Commits of that project are allowed; 1 to 16, all different.
	Commits []fencepost.CommitID
	// Job is the name of the policy's job.
	Job string
}

// An App is a GitHub App's installation.
type App struct {
	ID, Installation int64
	// Key refers to a PEM private key.
	Key SecretRef
}

// A Reviewer is the dedicated account of a gate at Gitea or Forgejo.
type Reviewer struct {
	ID    int64
	Login string
	// Token refers to its access token.
	Token SecretRef
}

// A Repository is named by its immutable ids, and by what it must be called.
type Repository struct {
	ID, OwnerID int64
	Owner, Name string
}

// FullName is owner/name.
func (r Repository) FullName() string { return r.Owner + "/" + r.Name }

// A Plan pins what a gate runs.
type Plan struct {
	Action Action
	// Program is a clean slash-separated path inside the action's tree.
	Program string
	// SHA256 is the digest of the program's bytes.
	SHA256 [32]byte
	// ExternalVerification adds the assessment to the evidence.
	ExternalVerification bool
	// Limits of one run.
	Limits PlanLimits
}

// An Action is the repository that holds the program.
type Action struct {
	URL    *url.URL
	Commit fencepost.CommitID
	// Credential to read it with; zero for anonymous.
	Credential Credential
}

// A Credential is a user name and a token for Git over HTTP. The zero
// Credential is anonymous.
type Credential struct {
	Username string
	Token    SecretRef
}

// Alerts says where alerts go.
type Alerts struct {
	// Alertmanager is its base URL; nil for none.
	Alertmanager *url.URL
	AlertLimits
}

// TrustSet finds a trust set by its name. The set of a gate is always found.
func (c *Config) TrustSet(name fencepost.TrustSetName) (TrustSet, bool) {
	for _, t := range c.Trust {
		if t.Name == name {
			return t, true
		}
	}
	return TrustSet{}, false
}
