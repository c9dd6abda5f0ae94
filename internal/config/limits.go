package config

import "time"

// The sections of this file consist of parsed values only, so they are the
// same type in the file and in a [Config].

// Replay holds the two fixed ceilings of bounded replay lifetimes.
type Replay struct {
	// MaxSignedAge is how old a signed issue time may be at receipt, and how
	// far ahead. Beyond it a delivery is unauthenticated.
	MaxSignedAge time.Duration `yaml:"max_signed_age" default:"5m" min:"1s" max:"1h"`
	// MaxQueueAge is how long a recorded delivery may wait to become work.
	// Beyond it, it ends as expired, with an alert.
	MaxQueueAge time.Duration `yaml:"max_queue_age" default:"24h" min:"1m" max:"720h"`
}

// Ledger fixes the parameters of a ledger root.
type Ledger struct {
	// Lease is how long a worker may go without renewing before another may
	// take over.
	Lease time.Duration `yaml:"lease" default:"60s" min:"5s" max:"10m"`
	// Capacity is how many deliveries that are live, staged or permanent can
	// be recorded. At the limit new ones are answered 503 full; none is
	// forgotten to make room.
	Capacity int64 `yaml:"capacity" default:"1000000" min:"4" max:"10000000"`
}

// Ingress bounds the public listener.
type Ingress struct {
	// MaxBody is the largest body; a larger one is answered 413.
	MaxBody ByteSize `yaml:"max_body" default:"25MiB" min:"1KiB" max:"256MiB"`
	// MaxHeaders is the most header pairs; more are answered 431.
	MaxHeaders int `yaml:"max_headers" default:"128" min:"8" max:"10000"`
	// MaxHeaderBytes is the most bytes of headers; more are answered 431.
	MaxHeaderBytes ByteSize `yaml:"max_header_bytes" default:"64KiB" min:"1KiB" max:"1MiB"`
	// BodyMemory is the budget of all bodies in flight together. A request
	// that finds no room within body_wait is answered 503.
	BodyMemory ByteSize `yaml:"body_memory" default:"256MiB" min:"1MiB" max:"64GiB"`
	// BodyWait is how long a request waits for room in body_memory.
	BodyWait time.Duration `yaml:"body_wait" default:"5s" min:"0s" max:"1m"`
	// MaxConnections is the most connections at once; further ones wait to be
	// accepted.
	MaxConnections int `yaml:"max_connections" default:"1024" min:"1" max:"100000"`
	// HeaderTimeout is how long a client may take over the headers.
	HeaderTimeout time.Duration `yaml:"header_timeout" default:"10s" min:"100ms" max:"5m"`
	// BodyTimeout is how long it may take over the body, from when there is
	// room for it.
	BodyTimeout time.Duration `yaml:"body_timeout" default:"30s" min:"100ms" max:"10m"`
	// StallTimeout is how long each 256 KiB of the body may take.
	StallTimeout time.Duration `yaml:"stall_timeout" default:"10s" min:"100ms" max:"10m"`
	// RecordTimeout is how long recording may take before the answer is 503;
	// providers wait 5 to 10 s.
	RecordTimeout time.Duration `yaml:"record_timeout" default:"8s" min:"100ms" max:"5m"`
	// WriteTimeout is how long everything may take from the end of the
	// headers to the end of the answer.
	WriteTimeout time.Duration `yaml:"write_timeout" default:"60s" min:"100ms" max:"30m"`
	// IdleTimeout is how long a connection may idle between requests.
	IdleTimeout time.Duration `yaml:"idle_timeout" default:"60s" min:"1s" max:"10m"`
	// RetryAfter is what a 503 tells the sender to wait.
	RetryAfter time.Duration `yaml:"retry_after" default:"10s" min:"1s" max:"1h"`
	// Drain is how long requests in flight may finish after SIGTERM.
	Drain time.Duration `yaml:"drain" default:"15s" min:"0s" max:"5m"`
	// JSON bounds what an authenticated body may hold.
	JSON JSON `yaml:"json"`
}

// JSON bounds a body's one JSON object; beyond a bound it is malformed.
type JSON struct {
	// Depth is how deep arrays and objects may nest.
	Depth int `yaml:"depth" default:"64" min:"4" max:"1000"`
	// Values is the most values, names included.
	Values int `yaml:"values" default:"200000" min:"100" max:"10000000"`
	// String is the longest string.
	String ByteSize `yaml:"string" default:"1MiB" min:"1KiB" max:"64MiB"`
}

// Inbox bounds the durable raw inbox.
type Inbox struct {
	// MaxEntries is the most deliveries that are recorded and not done. At
	// the limit new ones are answered 503 full.
	MaxEntries int `yaml:"max_entries" default:"100000" min:"1" max:"10000000"`
	// MaxBytes is the most bytes of them on disk; likewise.
	MaxBytes ByteSize `yaml:"max_bytes" default:"4GiB" min:"1MiB" max:"16TiB"`
	// Segment is the size of the files it is kept in, which are allocated
	// ahead of use.
	Segment ByteSize `yaml:"segment" default:"64MiB" min:"1MiB" max:"1GiB"`
	// MinFree is what is left free on the file system for those who finish
	// the work. Below it new deliveries are answered 503 full.
	MinFree ByteSize `yaml:"min_free" default:"64MiB" min:"1MiB" max:"16TiB"`
}

// Work says how deliveries are worked off.
type Work struct {
	// Workers is how many evaluations run at once.
	Workers int `yaml:"workers" default:"4" min:"1" max:"256"`
	// Attempts is how often an evaluation that gave no conclusion is begun
	// anew, under new fences, before a failure is published.
	Attempts int `yaml:"attempts" default:"5" min:"1" max:"50"`
	// Starts is how often an evaluation is begun at all, those that a crash
	// cut off included.
	Starts int `yaml:"starts" default:"50" min:"1" max:"10000"`
	// MaxAge is how long after its receipt a delivery that has become work is
	// given up.
	MaxAge time.Duration `yaml:"max_age" default:"72h" min:"1m" max:"720h"`
	// Backoff is the pause after the first attempt; it doubles after each.
	Backoff time.Duration `yaml:"backoff" default:"10s" min:"10ms" max:"10m"`
	// MaxBackoff is where it stops doubling.
	MaxBackoff time.Duration `yaml:"max_backoff" default:"2m" min:"10ms" max:"1h"`
	// Drain is how long evaluations may finish after SIGTERM. What is not
	// done by then is taken up by the next start.
	Drain time.Duration `yaml:"drain" default:"30s" min:"0s" max:"10m"`
}

// SourceWork says how sources are worked on by one process.
type SourceWork struct {
	// Workers is how many runs are under way at once. Each may take as long as
	// its source's timings allow, and others wait meanwhile.
	Workers int `yaml:"workers" default:"8" min:"1" max:"1000"`
	// Observations is how many heads are looked at at once.
	Observations int `yaml:"observations" default:"16" min:"1" max:"1000"`
	// Batch is how many sources are claimed for that, and written down, at
	// once.
	Batch int `yaml:"batch" default:"64" min:"1" max:"10000"`
	// Drain is how long runs may go on after SIGTERM. One that is not done by
	// then is put back, and goes on after the next start; its attempt doesn't
	// count.
	Drain time.Duration `yaml:"drain" default:"20s" min:"10ms" max:"10m"`
}

// Provider bounds calls to a provider's API.
type Provider struct {
	// Timeout is that of one call; at most half of ledger.lease.
	Timeout time.Duration `yaml:"timeout" default:"10s" min:"100ms" max:"2m"`
	// MaxAnswer is the largest answer that is read.
	MaxAnswer ByteSize `yaml:"max_answer" default:"8MiB" min:"64KiB" max:"256MiB"`
	// Pages is the most pages of one list.
	Pages int `yaml:"pages" default:"20" min:"1" max:"1000"`
	// NotYetVisible is how long a commit or a test merge that the provider
	// doesn't show yet is waited for.
	NotYetVisible time.Duration `yaml:"not_yet_visible" default:"45s" min:"1s" max:"10m"`
	// MaxRateLimitWait is the longest wait for a rate limit that is honoured
	// inside an attempt; a longer one ends the attempt.
	MaxRateLimitWait time.Duration `yaml:"max_rate_limit_wait" default:"30s" min:"0s" max:"10m"`
	// WriteInterval is the least time between two writes of one installation.
	// GitHub asks for 1 s; shorter is for a server of your own without limits.
	WriteInterval time.Duration `yaml:"write_interval" default:"1s" min:"0s" max:"1m"`
	// PublishAttempts is how often a staged result is tried to be published
	// before an alert; it stays staged and is tried on.
	PublishAttempts int `yaml:"publish_attempts" default:"8" min:"1" max:"100"`
}

// Fetch holds the budgets of one acquisition. Going over one ends it with an
// error that names the budget.
type Fetch struct {
	// Connect is the time of name look-up, connection and TLS together.
	Connect time.Duration `yaml:"connect" default:"10s" min:"100ms" max:"2m"`
	// Idle is the longest time without content; keepalives don't count.
	Idle time.Duration `yaml:"idle" default:"30s" min:"100ms" max:"10m"`
	// Total is the time for everything, writing included.
	Total time.Duration `yaml:"total" default:"60s" min:"1s" max:"1h"`
	// Redirects is how many are followed, to the same origin alone.
	Redirects int `yaml:"redirects" default:"0" min:"0" max:"10"`
	// Wire is the most bytes received.
	Wire ByteSize `yaml:"wire" default:"256MiB" min:"64KiB" max:"64GiB"`
	// Metadata is the most bytes received of everything but the pack.
	Metadata ByteSize `yaml:"metadata" default:"1MiB" min:"4KiB" max:"64MiB"`
	// MetadataLines is the most lines of it.
	MetadataLines int `yaml:"metadata_lines" default:"20000" min:"100" max:"10000000"`
	// Inflated is the most bytes of all objects after inflation, results of
	// deltas included.
	Inflated ByteSize `yaml:"inflated" default:"1GiB" min:"64KiB" max:"256GiB"`
	// Objects is the most objects.
	Objects int64 `yaml:"objects" default:"200000" min:"3" max:"50000000"`
	// DeltaChain is the longest chain of deltas; Git packs 50.
	DeltaChain int64 `yaml:"delta_chain" default:"256" min:"1" max:"4095"`
	// Commit is the largest commit.
	Commit ByteSize `yaml:"commit" default:"1MiB" min:"1KiB" max:"16MiB"`
	// Tree is the largest object of one directory.
	Tree ByteSize `yaml:"tree" default:"16MiB" min:"1KiB" max:"256MiB"`
	// File is the largest file.
	File ByteSize `yaml:"file" default:"100MiB" min:"1KiB" max:"16GiB"`
	// Entries is the most paths of the tree, directories included, each
	// counted as often as it stands there.
	Entries int64 `yaml:"entries" default:"200000" min:"1" max:"50000000"`
	// Repeats is the most of those entries that stand in a directory of which
	// the tree has another with the same content.
	Repeats int64 `yaml:"repeats" default:"50000" min:"1" max:"50000000"`
	// Depth is the most parts of a path.
	Depth int `yaml:"depth" default:"64" min:"1" max:"512"`
	// Component is the longest part of a path.
	Component ByteSize `yaml:"component" default:"255B" min:"1B" max:"255B"`
	// Path is the longest path, slashes included.
	Path ByteSize `yaml:"path" default:"4096B" min:"1B" max:"4096B"`
	// Links is the most symbolic links.
	Links int64 `yaml:"links" default:"10000" min:"1" max:"10000000"`
	// Output is the most bytes written for the whole tree; one object may be
	// many files.
	Output ByteSize `yaml:"output" default:"1GiB" min:"1KiB" max:"256GiB"`
}

// Content holds the three policies of a tree.
type Content struct {
	// Symlinks: refuse them, write each as a file that holds its text, or
	// make those that provably stay inside the tree.
	Symlinks string `yaml:"symlinks" default:"as_data" oneof:"refuse as_data inside"`
	// Gitlinks: refuse them (they are submodules), or skip and name each.
	Gitlinks string `yaml:"gitlinks" default:"skip" oneof:"refuse skip"`
	// Names: portable refuses what any common file system minds; posix
	// allows what only others than this one mind, such as names that differ
	// in case alone. No spelling of .git is ever allowed.
	Names string `yaml:"names" default:"portable" oneof:"portable posix"`
}

// PlanLimits bound one run of a program.
type PlanLimits struct {
	// Wall is the time from its start to its end; then it is killed, and the
	// run ends as timeout.
	Wall time.Duration `yaml:"wall" default:"90s" min:"1s" max:"120s"`
	// CPU is the processor time of each of its processes, in whole seconds.
	CPU time.Duration `yaml:"cpu" default:"180s" min:"1s" max:"1h"`
	// Memory is for all its processes together where the host has cgroups,
	// its scratch directory included, and for each of them elsewhere.
	Memory ByteSize `yaml:"memory" default:"512MiB" min:"16MiB" max:"1TiB"`
	// Processes is the most processes and threads.
	Processes int `yaml:"processes" default:"64" min:"1" max:"4096"`
	// OpenFiles is the most open files of each process.
	OpenFiles int `yaml:"open_files" default:"256" min:"8" max:"65536"`
	// FileSize is the largest file it may write.
	FileSize ByteSize `yaml:"file_size" default:"64MiB" min:"2MiB" max:"64GiB"`
	// Scratch is the size of its scratch directory, which lives in memory.
	Scratch ByteSize `yaml:"scratch" default:"128MiB" min:"4MiB" max:"64GiB"`
	// ScratchFiles is the most files and directories in it.
	ScratchFiles int64 `yaml:"scratch_files" default:"8192" min:"16" max:"10000000"`
	// ProgramSize is the largest program.
	ProgramSize ByteSize `yaml:"program_size" default:"64MiB" min:"1B" max:"4GiB"`
}

// Runner says how programs are confined.
type Runner struct {
	// Sandbox is required, which refuses to run where the kernel lacks a
	// protection, or best_effort, which notes in the evidence what is
	// missing.
	Sandbox string `yaml:"sandbox" default:"required" oneof:"required best_effort"`
	// SystemDirs are what a program sees of this machine, read-only, so that
	// interpreters and shared libraries work. Those that don't exist are left
	// out.
	SystemDirs []systemDir `yaml:"system_dirs" default:"/usr /bin /sbin /lib /lib32 /lib64 /libx32 /etc/alternatives /etc/ld.so.cache /etc/ld.so.conf /etc/ld.so.conf.d /etc/ssl /nix/store /gnu/store" least:"0" most:"32"`
	// Concurrent is how many programs run at once.
	Concurrent int `yaml:"concurrent" default:"2" min:"1" max:"256"`
}

// Artifacts bounds the evidence store.
type Artifacts struct {
	// MaxSize is the largest artifact.
	MaxSize ByteSize `yaml:"max_size" default:"4MiB" min:"64KiB" max:"256MiB"`
	// MaxCount is the most artifacts. At a limit the oldest go first. Where
	// evidence can't be stored, no pass is staged.
	MaxCount int `yaml:"max_count" default:"100000" min:"10" max:"10000000"`
	// MaxTotal is the most bytes of all.
	MaxTotal ByteSize `yaml:"max_total" default:"4GiB" min:"1MiB" max:"16TiB"`
	// Keep is how long one is kept.
	Keep time.Duration `yaml:"keep" default:"720h" min:"1h" max:"87600h"`
}

// Results bounds what jobs of gates at GitLab fetch.
type Results struct {
	// MaxCount is the most results. At a limit the oldest go first, but never
	// those of this day and the one before: then further ones wait as full.
	MaxCount int `yaml:"max_count" default:"100000" min:"10" max:"10000000"`
	// MaxTotal is the most bytes of all.
	MaxTotal ByteSize `yaml:"max_total" default:"1GiB" min:"1MiB" max:"16TiB"`
	// Keep is how long one is kept; longer where replay and work.max_age let a
	// delivery take longer.
	Keep time.Duration `yaml:"keep" default:"168h" min:"24h" max:"8760h"`
}

// Receipts bounds the journal of what happened to each delivery, which
// `deliveries` shows. Nothing depends on it.
type Receipts struct {
	// MaxTotal is the most bytes of it; the oldest go first.
	MaxTotal ByteSize `yaml:"max_total" default:"256MiB" min:"1MiB" max:"1TiB"`
	// Keep is how long it reaches back.
	Keep time.Duration `yaml:"keep" default:"2160h" min:"1h" max:"87600h"`
}

// Healing bounds the loop that finds missed deliveries.
type Healing struct {
	// Interval is from one round to the next; up to a quarter less, by
	// chance.
	Interval time.Duration `yaml:"interval" default:"5m" min:"1s" max:"24h"`
	// Timeout is that of one round of one gate.
	Timeout time.Duration `yaml:"timeout" default:"2m" min:"1s" max:"1h"`
	// Grace is how old a change must be before its delivery counts as
	// missed.
	Grace time.Duration `yaml:"grace" default:"2m" min:"1s" max:"24h"`
	// Lookback is how far back the provider's delivery log is read.
	Lookback time.Duration `yaml:"lookback" default:"72h" min:"1m" max:"168h"`
	// Redeliveries is the most deliveries asked for anew in one round.
	Redeliveries int `yaml:"redeliveries" default:"20" min:"1" max:"1000"`
	// Inspected is the most logged deliveries that are opened to find them.
	Inspected int `yaml:"inspected" default:"100" min:"1" max:"10000"`
	// Patience is how long one that was asked for may take before it is asked
	// for again.
	Patience time.Duration `yaml:"patience" default:"10m" min:"1s" max:"24h"`
	// Asks is how often one is asked for.
	Asks int `yaml:"asks" default:"3" min:"1" max:"100"`
}

// AlertLimits bound alerts.
type AlertLimits struct {
	// Timeout is that of one post.
	Timeout time.Duration `yaml:"timeout" default:"10s" min:"100ms" max:"1m"`
	// Attempts is how often a change is posted before the next repeat.
	Attempts int `yaml:"attempts" default:"5" min:"1" max:"100"`
	// Repeat is how often open alerts are posted again, so that they don't
	// end by themselves there.
	Repeat time.Duration `yaml:"repeat" default:"1m" min:"1s" max:"1h"`
	// MaxOpen is the most alerts kept open; one alert about the overflow
	// stands for the rest.
	MaxOpen int `yaml:"max_open" default:"1000" min:"10" max:"100000"`
	// Keep is how long resolved ones are kept to be looked at.
	Keep time.Duration `yaml:"keep" default:"168h" min:"1h" max:"8760h"`
	// LedgerFullWithin is how long before the ledger would be full, at the
	// rate of the last week, ledger_capacity is raised; 0s waits until nine
	// tenths are used.
	LedgerFullWithin time.Duration `yaml:"ledger_full_within" default:"720h" min:"0s" max:"8760h"`
}
