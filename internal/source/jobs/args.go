package jobs

import (
	"fmt"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/source"
)

// River's names of ours. Rows of older versions have them too.
const (
	jobQueue  = "fencepost_job"
	tickQueue = "fencepost_tick"
	jobKind   = "fencepost_job"
	tickKind  = "fencepost_tick"
)

// jobArgs is a job's row in River: scalars alone.
type jobArgs struct {
	Handler string `json:"handler" river:"unique"`
	Key     string `json:"key"     river:"unique"`
	// Turn tells apart what is unfinished of one job; see the package's doc.
	Turn     int    `json:"turn"    river:"unique"`
	Source   string `json:"source"`
	Run      string `json:"run"`
	Revision string `json:"revision"`
}

// Kind implements [river.JobArgs].
func (jobArgs) Kind() string { return jobKind }

func argsOf(j source.JobRow) (jobArgs, error) {
	p := j.Payload
	if j.Handler == "" || len(j.Handler) > 64 || j.Key == "" || len(j.Key) > 128 {
		return jobArgs{}, fmt.Errorf("job of handler %q: handler or key: %w", j.Handler, fencepost.ErrMalformed)
	}
	if p.Source.IsZero() || p.Run.IsZero() || p.Revision.IsZero() {
		return jobArgs{}, fmt.Errorf("job of handler %q: payload: %w", j.Handler, fencepost.ErrZeroValue)
	}
	return jobArgs{
		Handler: j.Handler, Key: j.Key,
		Source: p.Source.String(), Run: p.Run.String(), Revision: p.Revision.String(),
	}, nil
}

// payload parses what a row says. Its error matches [fencepost.ErrMalformed].
func (a jobArgs) payload() (p source.JobPayload, err error) {
	if p.Source, err = fencepost.ParseSourceID(a.Source); err != nil {
		return source.JobPayload{}, err
	}
	if p.Run, err = fencepost.ParseRunID(a.Run); err != nil {
		return source.JobPayload{}, err
	}
	if p.Revision, err = fencepost.ParseSourceRevision(a.Revision); err != nil {
		return source.JobPayload{}, err
	}
	return p, nil
}

// tickArgs is one window of a periodic task.
type tickArgs struct {
	Task   string `json:"task"   river:"unique"`
	Window int64  `json:"window" river:"unique"`
}

// Kind implements [river.JobArgs].
func (tickArgs) Kind() string { return tickKind }
