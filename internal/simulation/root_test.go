package simulation

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/fencepost/fencepost/internal/artifact"
	"github.com/fencepost/fencepost/internal/durable"
	"github.com/fencepost/fencepost/internal/gate/notebook"
	"github.com/fencepost/fencepost/internal/inbox"
	"github.com/fencepost/fencepost/ledger/fileledger"
)

// firstSegment is the size of the ledger's first segment, in bytes.
const firstSegment = 24 << 10

// makeParts opens each part once, which makes its files.
func makeParts(ctx context.Context, fsys durable.FS, cfg fileledger.Config, now func() time.Time) error {
	root, err := durable.OpenRoot(fsys)
	if err != nil {
		return err
	}
	open := closers{root.Close}
	err = func() error {
		l, err := fileledger.OpenOn(ctx, fsys, cfg)
		if err != nil {
			return err
		}
		open = append(open, l.Close)
		// The segment that is made ahead of need, so that not every run makes
		// it anew; what crashed runs lose of it they do.
		spare, err := fsys.OpenFile(ledgerDir+"/shard-00/next.tmp", os.O_RDWR|os.O_CREATE, durable.FilePerm)
		if err != nil {
			return err
		}
		if err := errors.Join(durable.ZeroFill(spare, cfg.SegmentBytes), spare.Close()); err != nil {
			return err
		}
		// The first segment is cut short: there is less to read at each start,
		// and the log goes on in the next segment in mid-run.
		first, err := fsys.OpenFile(ledgerDir+"/shard-00/000000000001.seg", os.O_RDWR, 0)
		if err != nil {
			return err
		}
		if err := errors.Join(first.Truncate(firstSegment), first.Sync(), first.Close()); err != nil {
			return err
		}
		b, err := inbox.Open(ctx, durable.Sub(fsys, inboxDir), inboxConfig())
		if err != nil {
			return err
		}
		open = append(open, b.Close)
		n, err := notebook.Open(durable.Sub(root, "notebook"), notebook.Limits{}, now)
		if err != nil {
			return err
		}
		open = append(open, n.Close)
		a, err := artifact.Open(ctx, durable.Sub(root, "artifacts"), artifact.Limits{}, now)
		if err != nil {
			return err
		}
		open = append(open, a.Close)
		return nil
	}()
	return errors.Join(err, open.close())
}
