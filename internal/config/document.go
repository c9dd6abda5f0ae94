package config

import "time"

// document is the file as it is written. Its comments become the manual and
// the descriptions in the JSON Schema; field says what the tags mean.
type document struct {
	// Version is the version of this format.
	Version int `yaml:"version" need:"required" example:"1" min:"1" max:"1"`
	// DataDir holds ledger, inbox, artifacts and alerts. `serve` makes it,
	// with mode 0700, if it is missing or empty, and refuses one that is not
	// its own.
	DataDir filePath `yaml:"data_dir" need:"required" example:"./data"`
	// Database is the PostgreSQL database that several machines share: its URL,
	// or better a reference to it, since it may hold a password. Empty, one
	// machine keeps everything in data_dir.
	Database postgresText `yaml:"database" default:""`
	// Listen is the public address: webhooks come in here, and nothing else
	// is served. TLS is ended by a proxy before it.
	Listen address `yaml:"listen" default:"127.0.0.1:8080"`
	// OpsListen is the operations address: health, metrics, the operations
	// page and artifacts, without authentication. Keep it on loopback or on a
	// network of operators.
	OpsListen address `yaml:"ops_listen" default:"127.0.0.1:8081"`
	// Replay holds the two ceilings that end a bounded replay lifetime. They
	// are fixed when the ledger is made.
	Replay Replay `yaml:"replay"`
	// Ledger is the record of who may run, stage and publish. Its values are
	// fixed when the ledger is made.
	Ledger Ledger `yaml:"ledger"`
	// Trust names the sets of keys that authenticate deliveries. A set has 1
	// to 8 anchors; to rotate a key, add the new one before the sender uses
	// it, and take the old one out when it doesn't any more.
	Trust map[name][]anchorSection `yaml:"trust" least:"1" most:"8"`
	// Gates holds the gates by route name: each answers pull requests of one
	// repository against one branch with one check. Its webhook URL is
	// /hooks/ and the name.
	Gates map[name]gateSection `yaml:"gates" most:"1000"`
	// Sources holds the sources by route name: each keeps one branch's content
	// in place. Its webhook URL is /hooks/ and the name, which no gate has.
	Sources map[name]sourceSection `yaml:"sources" most:"20000"`
	// Ingress bounds what the public listener takes.
	Ingress Ingress `yaml:"ingress"`
	// Inbox bounds the recorded deliveries that are not done yet.
	Inbox Inbox `yaml:"inbox"`
	// Work says how recorded deliveries of gates are worked off.
	Work Work `yaml:"work"`
	// SourceWork says how many sources are worked on, and looked at, at once.
	SourceWork SourceWork `yaml:"source_work"`
	// Provider bounds the calls to a provider's API.
	Provider Provider `yaml:"provider"`
	// Fetch holds the budgets of one acquisition: of the candidate or of the
	// action, each by itself.
	Fetch Fetch `yaml:"fetch"`
	// Runner says how programs are confined.
	Runner Runner `yaml:"runner"`
	// Artifacts bounds the evidence store.
	Artifacts Artifacts `yaml:"artifacts"`
	// Results bounds what jobs of gates at GitLab fetch.
	Results Results `yaml:"results"`
	// Receipts bounds the journal that tells what happened to each delivery.
	Receipts Receipts `yaml:"receipts"`
	// Healing is the slow loop that finds what the provider delivered, or
	// has open, and this side doesn't know.
	Healing Healing `yaml:"healing"`
	// Alerts says where alerts go besides the log, the metrics and the
	// operations page.
	Alerts alertsSection `yaml:"alerts"`
}

// anchorSection is one key of a trust set.
type anchorSection struct {
	// ID names the key in logs and receipts; unique in its set.
	ID anchorID `yaml:"id" need:"required" example:"2026-q4"`
	// Secret refers to the HMAC secret that the sender of webhooks was given:
	// 16 bytes or more, in no other anchor of the set. An anchor has exactly
	// one of secret, jwk and thumbprint, and a set is all secrets or none.
	Secret SecretRef `yaml:"secret" example:"file:secrets/acme"`
	// JWK refers to a public RSA key of a GitLab instance, with which it signs
	// the tokens of jobs: a JSON Web Key, as the instance publishes it under
	// /oauth/discovery/keys. It is no secret: others may read the file, but not
	// write it.
	JWK SecretRef `yaml:"jwk" example:"file:keys/gitlab-2026.json"`
	// Thumbprint names such a key by its RFC 7638 thumbprint, in base64url: it
	// is fetched from the gate's issuer in the background, and used if it has
	// this thumbprint. Until it was found, nothing is accepted that it signed.
	Thumbprint keyThumbprint `yaml:"thumbprint" example:"NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"`
	// From is the first moment at which a delivery signed by this key may be
	// received (inclusive). Without it there is no earliest one.
	From time.Time `yaml:"from" example:"2026-10-01T00:00:00Z"`
	// Until is the first moment at which it may not any more (exclusive).
	// Without it the key is good until it is taken out.
	Until time.Time `yaml:"until" example:"2027-02-01T00:00:00Z"`
}

// gateSection is one gate.
type gateSection struct {
	// Provider is what runs the repository.
	Provider string `yaml:"provider" need:"required" example:"github" oneof:"github gitlab gitea forgejo"`
	// API is the base URL of the provider's REST interface. Of github it may
	// be left out together with git, and is https://api.github.com then; of
	// gitea and forgejo it ends in /api/v1, of gitlab in /api/v4.
	API location `yaml:"api" example:"https://git.example.org/api/v1"`
	// Git is the base URL of its smart-HTTP repositories. Of github it may be
	// left out together with api, and is https://github.com then.
	Git location `yaml:"git" example:"https://git.example.org"`
	// Trust is the name of the trust set that authenticates deliveries.
	Trust name `yaml:"trust" need:"required" example:"acme"`
	// App is the GitHub App whose check the branch rule requires. Required for
	// github, and of no other provider.
	App *appSection `yaml:"app" example:"{id: 1, installation: 2, key: file:secrets/app.pem}"`
	// Reviewer is the dedicated account whose approval the branch rule
	// requires. Required for gitea and forgejo, and of no other provider.
	Reviewer *reviewerSection `yaml:"reviewer" example:"{id: 7, login: gatekeeper, token: file:secrets/reviewer-token}"`
	// RuleToken refers to the access token of an administrator of the
	// repository, with read:repository alone: nobody else may read the branch
	// rule. Required beside reviewer.
	RuleToken SecretRef `yaml:"rule_token" example:"file:secrets/rule-token"`
	// Issuer is the instance's own URL, which its jobs' tokens name as their
	// issuer, and the addresses of its pages begin with. Of gitlab alone;
	// without it, it is git.
	Issuer location `yaml:"issuer" example:"https://gitlab.example.org"`
	// Audience is what jobs ask their tokens for: the controller's own URL, and
	// of nobody else's. Required for gitlab, and of no other provider.
	Audience audience `yaml:"audience" example:"https://fencepost.example.org"`
	// Token refers to an access token with read_api and read_repository, of a
	// maintainer of the project: others are not shown its settings. Required
	// for gitlab, and of no other provider.
	Token SecretRef `yaml:"token" example:"file:secrets/gitlab-token"`
	// Policy is the pipeline execution policy whose job is believed. Required
	// for gitlab, and of no other provider.
	Policy *policySection `yaml:"policy" example:"{project: 31, path: acme/policies, commits: [<40 hex>], job: fencepost}"`
	// Repository is the one whose requests are gated.
	Repository *repositorySection `yaml:"repository" need:"required" example:"{id: 1296269, owner_id: 1, name: acme/docs}"`
	// Base is the branch that requests must be against.
	Base branchRef `yaml:"base" need:"required" example:"refs/heads/main"`
	// Check is the name of the check run that is published, or with gitea and
	// forgejo the context of the commit status; the branch rule requires it.
	// With gitlab it is only shown. Unique among the gates of one repository.
	Check checkName `yaml:"check" need:"required" example:"fencepost/docs"`
	// Plan is what runs.
	Plan *planSection `yaml:"plan" need:"required" example:"{action: {url: https://github.com/acme/checks.git, commit: <40 hex>}, program: bin/check, sha256: <64 hex>}"`
	// AllowHTTP lets the API, Git and action URLs of this gate be plain http.
	// It is meant for loopback.
	AllowHTTP bool `yaml:"allow_http" default:"false"`
	// AllowPrivate lets the names of the Git and action hosts lead to private
	// and loopback addresses, as on a network of your own.
	AllowPrivate bool `yaml:"allow_private" default:"false"`
	// MaxSignedAge shortens replay.max_signed_age for this route. It belongs
	// to providers that sign a time: gitlab alone does.
	MaxSignedAge time.Duration `yaml:"max_signed_age" min:"1s" max:"1h" example:"1m"`
	// Content says which things a tree may hold.
	Content Content `yaml:"content"`
}

// appSection is a GitHub App's installation.
type appSection struct {
	// ID is the App's id.
	ID int64 `yaml:"id" need:"required" example:"1" min:"1" max:"9223372036854775807"`
	// Installation is the id of the App's installation on the repository's
	// owner.
	Installation int64 `yaml:"installation" need:"required" example:"2" min:"1" max:"9223372036854775807"`
	// Key refers to the App's private key: RSA, 2048 bits or more, PKCS#1 or
	// PKCS#8, in PEM.
	Key SecretRef `yaml:"key" need:"required" example:"file:secrets/app.pem"`
}

// reviewerSection is the account that reviews at Gitea and Forgejo.
type reviewerSection struct {
	// ID is the account's id, which survives renames.
	ID int64 `yaml:"id" need:"required" example:"7" min:"1" max:"9223372036854775807"`
	// Login is its name: the one on the rule's list of approvers.
	Login accountName `yaml:"login" need:"required" example:"gatekeeper"`
	// Token refers to its access token, with write:repository.
	Token SecretRef `yaml:"token" need:"required" example:"file:secrets/reviewer-token"`
}

// policySection says whose job a gate at GitLab believes.
type policySection struct {
	// Project is the id of the security policy project.
	Project int64 `yaml:"project" need:"required" example:"31" min:"1" max:"9223372036854775807"`
	// Path is its path with its groups.
	Path projectPath `yaml:"path" need:"required" example:"acme/policies"`
	// Commits are the commits of the policy project whose policies are allowed.
	// To change the policy, add the new commit before it is merged there, and
	// take the old one out when no train is under way with it.
	Commits []commitID `yaml:"commits" need:"required" least:"1" most:"16" example:"[<40 hex>]"`
	// Job is the name of the policy's job.
	Job jobName `yaml:"job" need:"required" example:"fencepost"`
}

// repositorySection names a repository by what doesn't change, and by what it
// must still be called.
type repositorySection struct {
	// ID is the repository's id, which survives renames.
	ID int64 `yaml:"id" need:"required" example:"1296269" min:"1" max:"9223372036854775807"`
	// OwnerID is the id of the user or organization that owns it, at gitlab
	// that of its namespace.
	OwnerID int64 `yaml:"owner_id" need:"required" example:"1" min:"1" max:"9223372036854775807"`
	// Name is owner/name, at gitlab the path with all groups.
	Name projectPath `yaml:"name" need:"required" example:"acme/docs"`
}

// planSection pins what a gate runs.
type planSection struct {
	// Action is where the program comes from.
	Action *actionSection `yaml:"action" need:"required" example:"{url: https://github.com/acme/checks.git, commit: <40 hex>}"`
	// Program is the path of the program in the action's tree.
	Program programPath `yaml:"program" need:"required" example:"bin/check"`
	// SHA256 is the digest of the program's bytes; any other program is not
	// run.
	SHA256 programDigest `yaml:"sha256" need:"required" example:"<64 hex>"`
	// ExternalVerification adds to the evidence an assessment of each fact
	// that the provider had to prove: what was expected, what was observed,
	// and the verdict.
	ExternalVerification bool `yaml:"external_verification" default:"false"`
	// PlanLimits bound one run.
	PlanLimits
}

// actionSection is the repository that holds the program.
type actionSection struct {
	// URL is the repository's.
	URL location `yaml:"url" need:"required" example:"https://github.com/acme/checks.git"`
	// Commit is the exact commit; no ref is ever followed.
	Commit commitID `yaml:"commit" need:"required" example:"<40 hex>"`
	// Credential is what it is read with. Without it, it is read anonymously.
	Credential *credentialSection `yaml:"credential" example:"{token: file:secrets/checks-token}"`
}

// credentialSection is a read credential for Git over HTTP.
type credentialSection struct {
	// Username is what goes with the token.
	Username string `yaml:"username" default:"x-access-token"`
	// Token refers to the password or access token.
	Token SecretRef `yaml:"token" need:"required" example:"file:secrets/checks-token"`
}

// alertsSection says where alerts go.
type alertsSection struct {
	// Alertmanager is the base URL of a Prometheus Alertmanager; alerts are
	// posted to its /api/v2/alerts. Without it none is told.
	Alertmanager location `yaml:"alertmanager" example:"https://alertmanager.example.org"`
	// AllowHTTP lets that URL be plain http.
	AllowHTTP bool `yaml:"allow_http" default:"false"`
	// AlertLimits bound the store and the attempts.
	AlertLimits
}
