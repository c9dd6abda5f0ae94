package gitfetch

import (
	"errors"
	"fmt"
	"time"

	"github.com/fencepost/fencepost/gitfetch/internal/pack"
)

// A Budget names one bound of a fetch, as a [BudgetError] carries it.
type Budget string

// The budgets. DESIGN §6.
const (
	BudgetConnect       Budget = "connect"
	BudgetIdle          Budget = "idle"
	BudgetTotal         Budget = "total"
	BudgetRedirects     Budget = "redirects"
	BudgetWire          Budget = "wire_bytes"
	BudgetMetadata      Budget = "metadata_bytes"
	BudgetMetadataLines Budget = "metadata_lines"
	BudgetInflated      Budget = pack.LimitInflated
	BudgetObjects       Budget = pack.LimitObjects
	BudgetDeltaDepth    Budget = pack.LimitDeltaDepth
	BudgetCommit        Budget = pack.LimitCommit
	BudgetTree          Budget = pack.LimitTree
	BudgetFile          Budget = pack.LimitBlob
	BudgetPaths         Budget = "paths"
	BudgetRepeats       Budget = "repeated_paths"
	BudgetDepth         Budget = "path_depth"
	BudgetComponent     Budget = "component_bytes"
	BudgetPath          Budget = "path_bytes"
	BudgetLinks         Budget = "links"
	BudgetLinkBytes     Budget = "link_bytes"
	BudgetOutput        Budget = "output_bytes"
)

// Budgets bound what a server may make this machine do. A zero field means
// the default of its comment; the defaults hold a large repository and fit
// into DESIGN §9's time for a checkout. Fields are independent: the first one
// passed ends the fetch with a [BudgetError] that names it.
type Budgets struct {
	// Connect is the longest that name look-up, TCP and TLS take together,
	// for each connection. Default 10 s.
	Connect time.Duration
	// Idle is the longest wait without progress: until an answer begins, and
	// then between one piece of the pack and the next. What a server sends
	// only to keep the connection alive is no progress. Default 30 s.
	Idle time.Duration
	// Total is the longest that the whole fetch takes, writing included.
	// Default 60 s.
	Total time.Duration

	// Redirects is how many redirects of the first request are followed, each
	// to the same origin or one of [Request.RedirectOrigins]. Default 0.
	Redirects int

	// WireBytes is the most that all answers' bodies come to, those of errors
	// and redirects included. Default 256 MiB.
	WireBytes int64
	// MetadataBytes and MetadataLines bound everything in the answers but the
	// pack: capabilities, refs, section lines, progress texts. Default 1 MiB
	// and 20,000.
	MetadataBytes, MetadataLines int64

	// InflatedBytes is the most that all objects and delta texts come to when
	// they are unpacked. Default 1 GiB.
	InflatedBytes int64
	// Objects is the most objects in the pack. Default 200,000.
	Objects int64
	// DeltaDepth is the longest chain of deltas. Default 256; Git packs 50.
	DeltaDepth int64
	// CommitBytes is the largest commit. Default 1 MiB.
	CommitBytes int64
	// TreeBytes is the largest single directory's object. Default 16 MiB.
	TreeBytes int64
	// FileBytes is the largest file. Default 100 MiB.
	FileBytes int64

	// Paths is the most files and directories, each counted as often as it
	// stands in the tree: ten objects can spell a thousand million paths.
	// Default 200,000.
	Paths int64
	// Repeats is the most of those paths that stand in a directory of which
	// the tree has another with the same content: what a server sends once and
	// this machine has to make over and over. Default 50,000.
	Repeats int64
	// PathDepth is the most components of a path. Default 64.
	PathDepth int
	// ComponentBytes is the longest component. Default 255.
	ComponentBytes int
	// PathBytes is the longest path, slashes included. Default 4096.
	PathBytes int
	// Links is the most symbolic links. Default 10,000.
	Links int64
	// LinkBytes is the most that the texts of all symbolic links come to, which
	// are in memory together while they are judged. Default 4 MiB.
	LinkBytes int64
	// OutputBytes is the most that all written files come to; one object may
	// be many files. Default 1 GiB.
	OutputBytes int64
}

// DefaultBudgets returns the budgets that zero fields stand for.
func DefaultBudgets() Budgets {
	return Budgets{
		Connect:        10 * time.Second,
		Idle:           30 * time.Second,
		Total:          60 * time.Second,
		WireBytes:      256 << 20,
		MetadataBytes:  1 << 20,
		MetadataLines:  20_000,
		InflatedBytes:  1 << 30,
		Objects:        200_000,
		DeltaDepth:     256,
		CommitBytes:    1 << 20,
		TreeBytes:      16 << 20,
		FileBytes:      100 << 20,
		Paths:          200_000,
		Repeats:        50_000,
		PathDepth:      64,
		ComponentBytes: 255,
		PathBytes:      4096,
		Links:          10_000,
		LinkBytes:      4 << 20,
		OutputBytes:    1 << 30,
	}
}

// Validate returns an error that matches [ErrRequest] for each field below
// zero, or above what the code can carry.
func (b Budgets) Validate() error {
	_, err := b.orDefaults()
	return err
}

// orDefaults returns b with its zero fields filled.
func (b Budgets) orDefaults() (Budgets, error) {
	d := DefaultBudgets()
	err := errors.Join(
		fill(&b.Connect, d.Connect, BudgetConnect),
		fill(&b.Idle, d.Idle, BudgetIdle),
		fill(&b.Total, d.Total, BudgetTotal),
		fill(&b.Redirects, d.Redirects, BudgetRedirects),
		fill(&b.WireBytes, d.WireBytes, BudgetWire),
		fill(&b.MetadataBytes, d.MetadataBytes, BudgetMetadata),
		fill(&b.MetadataLines, d.MetadataLines, BudgetMetadataLines),
		fill(&b.InflatedBytes, d.InflatedBytes, BudgetInflated),
		fill(&b.Objects, d.Objects, BudgetObjects),
		fill(&b.DeltaDepth, d.DeltaDepth, BudgetDeltaDepth),
		fill(&b.CommitBytes, d.CommitBytes, BudgetCommit),
		fill(&b.TreeBytes, d.TreeBytes, BudgetTree),
		fill(&b.FileBytes, d.FileBytes, BudgetFile),
		fill(&b.Paths, d.Paths, BudgetPaths),
		fill(&b.Repeats, d.Repeats, BudgetRepeats),
		fill(&b.PathDepth, d.PathDepth, BudgetDepth),
		fill(&b.ComponentBytes, d.ComponentBytes, BudgetComponent),
		fill(&b.PathBytes, d.PathBytes, BudgetPath),
		fill(&b.Links, d.Links, BudgetLinks),
		fill(&b.LinkBytes, d.LinkBytes, BudgetLinkBytes),
		fill(&b.OutputBytes, d.OutputBytes, BudgetOutput),
	)
	// Indexes of objects and paths are 32 bits wide, and directories are
	// open all the way down while their files are written.
	if b.Objects > maxCount || b.Paths > maxCount {
		err = errors.Join(err, fmt.Errorf("%w: budgets: objects and paths must be at most %d", ErrRequest, maxCount))
	}
	if b.PathDepth > maxDepth {
		err = errors.Join(err, fmt.Errorf("%w: budgets: path_depth must be at most %d", ErrRequest, maxDepth))
	}
	return b, err
}

const (
	maxCount = 1 << 30
	maxDepth = 512
)

func fill[T ~int | ~int64](field *T, fallback T, name Budget) error {
	if *field < 0 {
		return fmt.Errorf("%w: budgets: %s is below zero", ErrRequest, name)
	}
	if *field == 0 {
		*field = fallback
	}
	return nil
}

// A BudgetError says which budget a fetch would have passed.
type BudgetError struct {
	Budget Budget
	// Limit is the budget's value: nanoseconds, bytes or a count.
	Limit int64
	// Path is the path in the tree at which it was passed, where there is
	// one. It is the repository's text: quote it.
	Path string
}

// Error names the budget, its value, and the path.
func (e *BudgetError) Error() string {
	limit := fmt.Sprint(e.Limit)
	switch e.Budget {
	case BudgetConnect, BudgetIdle, BudgetTotal:
		limit = time.Duration(e.Limit).String()
	}
	s := fmt.Sprintf("over the %s budget of %s", e.Budget, limit)
	if e.Path != "" {
		s += fmt.Sprintf(" at %q", e.Path)
	}
	return s
}
