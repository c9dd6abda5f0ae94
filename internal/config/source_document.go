package config

import "time"

// sourceSection is one source.
type sourceSection struct {
	// ID names the source for ever: its state, its runs and its sink belong to
	// this UUID, whatever its key becomes. `uuidgen` makes one; write it in
	// lower case.
	ID sourceID `yaml:"id" need:"required" example:"5a0e3a4e-6b0c-4f0e-9d7b-0c1f5f1c9a11"`
	// Provider is what runs the repository.
	Provider string `yaml:"provider" need:"required" example:"github" oneof:"github gitlab gitea forgejo"`
	// API is the base URL of the provider's REST interface. Of github it may
	// be left out together with git, and is https://api.github.com then; of
	// gitea and forgejo it ends in /api/v1, of gitlab in /api/v4.
	API location `yaml:"api" example:"https://git.example.org/api/v1"`
	// Git is the base URL of its smart-HTTP repositories. Of github it may be
	// left out together with api, and is https://github.com then.
	Git location `yaml:"git" example:"https://git.example.org"`
	// Hosts are further origins, scheme and host alone, that the Git server
	// may redirect to; credentials don't follow. fetch.redirects bounds how
	// often.
	Hosts []location `yaml:"hosts" least:"0" most:"16" example:"[\"https://mirror.example.org\"]"`
	// Trust is the name of the trust set that authenticates deliveries. Of
	// gitlab its secrets are signing tokens (whsec_…), and it is the set of
	// sources at gitlab alone.
	Trust name `yaml:"trust" need:"required" example:"acme"`
	// Repository is the one that the content comes from.
	Repository *sourceRepositorySection `yaml:"repository" need:"required" example:"{id: 1296270, owner_id: 1, name: acme/handbook}"`
	// Ref is the branch whose head is kept in place.
	Ref branchRef `yaml:"ref" need:"required" example:"refs/heads/main"`
	// Senders are the accounts whose pushes are taken; those of others are
	// answered 403, or with gitlab 200 ignored. Either this or any_writer must
	// be there.
	Senders []senderSection `yaml:"senders" least:"1" most:"1000" example:"[{id: 583231, login: octocat}]"`
	// AnyWriter takes the pushes of everybody whom the provider lets push.
	AnyWriter bool `yaml:"any_writer" default:"false"`
	// UnannouncedHeads says whether a head that no accepted delivery named,
	// found by looking, may be applied: accept keeps the content fresh when a
	// webhook is lost, refuse raises an alert instead. Required beside
	// senders, whom a head says nothing of; beside any_writer it is accept
	// unless it is given.
	UnannouncedHeads string `yaml:"unannounced_heads" oneof:"accept refuse" example:"accept"`
	// ForcePush says whether a head that doesn't contain the last one may be
	// applied. With refuse it raises an alert, and the last content stays.
	ForcePush string `yaml:"force_push" default:"refuse" oneof:"refuse accept"`
	// Credential is what the repository is read with, by Git and by the API.
	// Nothing is ever read with another one, or with none.
	Credential *sourceCredentialSection `yaml:"credential" need:"required" example:"{token: file:secrets/read-token}"`
	// AllowHTTP lets the API, Git and action URLs of this source be plain
	// http. It is meant for loopback.
	AllowHTTP bool `yaml:"allow_http" default:"false"`
	// AllowPrivate lets the names of the Git and action hosts lead to private
	// and loopback addresses, as on a network of your own.
	AllowPrivate bool `yaml:"allow_private" default:"false"`
	// Content says which things a tree may hold.
	Content sourceContent `yaml:"content"`
	// Fetch holds budgets of this source's acquisitions. Those that are not
	// given here are as under fetch.
	Fetch *Fetch `yaml:"fetch" example:"{wire: 512MiB}"`
	// Timings bound how long everything may take. At least one of their two
	// sums must keep the freshness target; `fencepost check` shows both.
	Timings sourceTimings `yaml:"timings"`
	// Alerts says which alerts of this source are raised. Those that are not
	// listed here always are.
	Alerts sourceAlerts `yaml:"alerts"`
	// Sink is where the content goes.
	Sink *sinkSection `yaml:"sink" need:"required" example:"{kind: directory, path: /srv/handbook}"`
	// Enabled says whether runs may begin. A source that is not enabled
	// answers its webhook, and its content stays as it is.
	Enabled bool `yaml:"enabled" default:"true"`
}

// sourceRepositorySection names a repository as [repositorySection] does, and
// what it must be.
type sourceRepositorySection struct {
	// ID is the repository's id, which survives renames.
	ID int64 `yaml:"id" need:"required" example:"1296270" min:"1" max:"9223372036854775807"`
	// OwnerID is the id of the user or organization that owns it, at gitlab
	// that of its namespace.
	OwnerID int64 `yaml:"owner_id" need:"required" example:"1" min:"1" max:"9223372036854775807"`
	// Name is owner/name, at gitlab the path with all groups.
	Name projectPath `yaml:"name" need:"required" example:"acme/handbook"`
	// Visibility is what the repository must be; where it becomes another, no
	// run begins. What a provider calls internal is private.
	Visibility string `yaml:"visibility" default:"any" oneof:"any public private"`
	// ObjectFormat is the hash that names its objects. In this version: sha1.
	ObjectFormat string `yaml:"object_format" default:"sha1" oneof:"sha1 sha256"`
}

// senderSection is an account of the provider.
type senderSection struct {
	// ID is the account's id, which survives renames.
	ID int64 `yaml:"id" need:"required" example:"583231" min:"1" max:"9223372036854775807"`
	// Login is what it is called now; both must agree.
	Login accountName `yaml:"login" need:"required" example:"octocat"`
}

// sourceCredentialSection is exactly one of an App, a token, and none.
type sourceCredentialSection struct {
	// App is a GitHub App's installation that may read the repository's
	// contents.
	App *appSection `yaml:"app" example:"{id: 1, installation: 2, key: file:secrets/app.pem}"`
	// Username is what goes with the token in Git's requests.
	Username string `yaml:"username" default:"x-access-token"`
	// Token refers to an access token that may read the repository; of gitlab
	// with read_api and read_repository.
	Token SecretRef `yaml:"token" example:"file:secrets/read-token"`
	// Anonymous spells out that a public repository is read without a
	// credential.
	Anonymous bool `yaml:"anonymous" default:"false"`
}

// sourceContent is [Content] with the defaults of sources.
type sourceContent struct {
	// Symlinks: refuse them, write each as a file that holds its text, or
	// make those that provably stay inside the tree.
	Symlinks string `yaml:"symlinks" default:"refuse" oneof:"refuse as_data inside"`
	// Gitlinks: refuse them (they are submodules), or skip and name each.
	Gitlinks string `yaml:"gitlinks" default:"refuse" oneof:"refuse skip"`
	// Names: portable refuses what any common file system minds; posix
	// allows what only others than this one mind, such as names that differ
	// in case alone. No spelling of .git is ever allowed.
	Names string `yaml:"names" default:"portable" oneof:"portable posix"`
}

// sourceTimings is [fencepost.Timings] as it is written.
type sourceTimings struct {
	// Target is how long it may take from the first sign of a new head to
	// complete evidence or a raised alert.
	Target time.Duration `yaml:"target" default:"14m" min:"100ms" max:"14m"`
	// AlertAfter is the age of the earliest unmet sign, and of the last
	// successful observation, at which the freshness alert is raised; more
	// than reconcile and two times observe.
	AlertAfter time.Duration `yaml:"alert_after" default:"13m" min:"50ms" max:"14m"`
	// Reconcile is the longest pause between two observations; up to an eighth
	// less, by chance.
	Reconcile time.Duration `yaml:"reconcile" default:"2m" min:"10ms" max:"1h"`
	// Observe bounds one observation.
	Observe time.Duration `yaml:"observe" default:"10s" min:"10ms" max:"5m"`
	// QueueAge is how long a job may wait for a worker.
	QueueAge time.Duration `yaml:"queue_age" default:"30s" min:"10ms" max:"1h"`
	// Lease is how long a source's lock lives without being renewed.
	Lease time.Duration `yaml:"lease" default:"60s" min:"20ms" max:"1h"`
	// Renew is the pause between two renewals; at most half of lease.
	Renew time.Duration `yaml:"renew" default:"20s" min:"10ms" max:"30m"`
	// Checkout bounds fetch and verification of one attempt.
	Checkout time.Duration `yaml:"checkout" default:"60s" min:"10ms" max:"1h"`
	// Sink bounds what the sink does in one attempt.
	Sink time.Duration `yaml:"sink" default:"120s" min:"10ms" max:"1h"`
	// Attempts is how many attempts one run has.
	Attempts int `yaml:"attempts" default:"3" min:"1" max:"10"`
	// Backoff is the pause before the second attempt; it doubles before each
	// further one.
	Backoff time.Duration `yaml:"backoff" default:"10s" min:"1ms" max:"1h"`
	// Evaluate is the time from one round of watchdog and freshness to the
	// next.
	Evaluate time.Duration `yaml:"evaluate" default:"30s" min:"10ms" max:"10m"`
}

// sourceAlerts is [AlertPolicy] as it is written.
type sourceAlerts struct {
	// RunFailed says whether a run that ends failed raises an alert at once.
	// With ignore it is left to retries_exhausted, the cause's own alert and
	// freshness, whose path must keep the target then.
	RunFailed string `yaml:"run_failed" default:"raise" oneof:"raise ignore"`
	// RunPartial says whether a run that ends partial raises an alert.
	RunPartial string `yaml:"run_partial" default:"raise" oneof:"raise ignore"`
}

// sinkSection is where content goes. Which fields have a meaning depends on
// its kind; the others must be left out.
type sinkSection struct {
	// Kind is what the sink is. directory: a tree, replaced by one switch of a
	// symbolic link. rows: a table with a row for each file. program: a pinned
	// program that gets the checkout.
	Kind string `yaml:"kind" need:"required" example:"directory" oneof:"directory rows program"`
	// Mount is the directory of the repository whose content is served, as if
	// it were the top. Without it, that is the whole repository. Not of a
	// program, which gets the tree as it is.
	Mount mountPath `yaml:"mount" example:"site/public"`
	// Include names the content by patterns of paths from the top of the
	// repository. Without it, it is all of it.
	Include []globText `yaml:"include" least:"1" most:"64" example:"[\"docs/**\"]"`
	// Exclude takes paths out of it.
	Exclude []globText `yaml:"exclude" least:"1" most:"64" example:"[\"**/*.draft.md\"]"`
	// Require names what must be there: a run fails, and changes nothing, if
	// one of these patterns names no path of the content.
	Require []globText `yaml:"require" least:"1" most:"64" example:"[docs/index.md]"`
	// Path is that of the symbolic link, for a directory; the trees are kept
	// beside it. Nothing else may be there, and it is in no data directory and
	// no other sink.
	Path filePath `yaml:"path" example:"/srv/handbook"`
	// Keep is how many trees of a directory stay, the one that is served
	// included.
	Keep int `yaml:"keep" default:"3" min:"1" max:"1000"`
	// Grace is how long a tree stays at least after another took its place, so
	// that whoever reads in it can end.
	Grace time.Duration `yaml:"grace" default:"1m" min:"10ms" max:"24h"`
	// Most is how many trees there may be, more than keep: with so many too
	// young to go, no further one is taken.
	Most int `yaml:"most" default:"64" min:"2" max:"10000"`
	// Reserve is what must be free on the file system before a checkout is
	// made there.
	Reserve ByteSize `yaml:"reserve" default:"256MiB" min:"1B" max:"16TiB"`
	// Readers says who may read a directory: all users of the machine, those
	// of its group, or its owner alone.
	Readers string `yaml:"readers" default:"all" oneof:"all group owner"`
	// Database is that of the rows: the path of a SQLite file, a PostgreSQL
	// URL, or a reference to one. It is not the one that Fencepost keeps its
	// own state in.
	Database databaseText `yaml:"database" example:"file:secrets/handbook-db"`
	// Table is that of the rows. No other source writes it.
	Table tableName `yaml:"table" example:"handbook"`
	// MaxRow is the largest file that becomes a row. Larger ones are refused,
	// and the run ends partial.
	MaxRow ByteSize `yaml:"max_row" default:"1MiB" min:"1B" max:"64MiB"`
	// Text says which files become rows: any of them, or only those that are
	// UTF-8 text without a zero character; others are refused likewise.
	Text string `yaml:"text" default:"any" oneof:"any utf8"`
	// Plan is the program.
	Plan *sinkPlanSection `yaml:"plan" example:"{action: {url: https://github.com/acme/publish.git, commit: <40 hex>}, program: bin/publish, sha256: <64 hex>}"`
}

// sinkPlanSection pins the program of a sink. Its exit status decides.
type sinkPlanSection struct {
	// Action is where the program comes from.
	Action *actionSection `yaml:"action" need:"required" example:"{url: https://github.com/acme/publish.git, commit: <40 hex>}"`
	// Program is the path of the program in the action's tree.
	Program programPath `yaml:"program" need:"required" example:"bin/publish"`
	// SHA256 is the digest of the program's bytes; any other program is not
	// run.
	SHA256 programDigest `yaml:"sha256" need:"required" example:"<64 hex>"`
	// PlanLimits bound one run; wall is at most timings.sink.
	PlanLimits
}
