package sink

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/gitfetch"
	"github.com/fencepost/fencepost/internal/store"
)

func TestRowsProbe(t *testing.T) {
	t.Parallel()
	exec := func(statements ...string) func(b *rowsBench) {
		return func(b *rowsBench) {
			for _, s := range statements {
				must(b, b.db.Write(b.Context(), "prepare", func(ctx context.Context, tx *store.Tx) error {
					_, err := tx.Exec(ctx, s)
					return err
				}))
			}
		}
	}
	definition := func(extra string) string {
		return "create table handbook (path text not null primary key, mode text not null, digest text not null, bytes bigint not null, content %s, commit_id text not null, deleted_at bigint" + extra + ")"
	}
	for name, c := range map[string]struct {
		prepare func(b *rowsBench)
		what    string
	}{
		"nothing there":                 {func(*rowsBench) {}, ""},
		"the tables":                    {func(b *rowsBench) { must(b, b.another().Probe(b.Context())) }, ""},
		"a further column":              {func(b *rowsBench) { exec(fmt.Sprintf(definition(", note text"), blobOf(b)))(b) }, ""},
		"a further column that must be": {func(b *rowsBench) { exec(fmt.Sprintf(definition(", note text not null"), blobOf(b)))(b) }, "can't be used"},
		"another type":                  {func(b *rowsBench) { exec(fmt.Sprintf(definition(""), "text"))(b) }, "can't be used"},
		"no key": {func(b *rowsBench) {
			exec(strings.Replace(fmt.Sprintf(definition(""), blobOf(b)), "primary key", "", 1))(b)
		}, "can't be used"},
		"another table of that name":  {exec("create table handbook (id bigint)"), "can't be used"},
		"a view of that name":         {exec("create view handbook as select 1 as path"), "can't be used"},
		"another table for the state": {exec("create table handbook_fence (fence bigint)"), "can't be used"},
		"another source's": {func(b *rowsBench) {
			o := b.opts
			o.Source = fencepost.SourceID{9}
			r, err := NewRows(o)
			must(b, err)
			must(b, r.Probe(b.Context()))
			must(b, r.Close())
		}, "belongs to another source"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onEach(t, nil, func(b *rowsBench) {
				c.prepare(b)
				err := b.sink.Probe(b.Context())
				if c.what == "" {
					must(b, err)
					if len(b.rows()) != 0 {
						b.Errorf("a probe left rows: %v", b.rows())
					}
					return
				}
				place, ok := errors.AsType[*PlaceError](err)
				if !ok || !strings.Contains(place.What, c.what) || place.Mend == "" {
					b.Errorf("Probe = %v, want one that says %q", err, c.what)
				}
			})
		})
	}
}

func blobOf(b *rowsBench) string {
	if b.db.Kind() == store.Postgres {
		return "bytea"
	}
	return "blob"
}

func TestRowsProbeLooksAtTheFile(t *testing.T) {
	t.Parallel()
	work, err := gitfetch.OpenWorkspace(t.TempDir())
	must(t, err)
	t.Cleanup(func() { must(t, work.Close()) })
	for name, c := range map[string]struct {
		prepare func(dir string, o *RowsOptions)
		what    string
	}{
		"no parent":        {func(dir string, o *RowsOptions) { o.Path = filepath.Join(dir, "no/x.db") }, "can't be used"},
		"parent is a file": {func(dir string, o *RowsOptions) { write(t, dir+"/f", ""); o.Path = dir + "/f/x.db" }, "directory"},
		"a directory":      {func(dir string, o *RowsOptions) { must(t, os.Mkdir(dir+"/x.db", 0o755)) }, "no file"},
		"in data_dir":      {func(dir string, o *RowsOptions) { o.DataDir = dir }, "is in data_dir"},
	} {
		dir := t.TempDir()
		o := RowsOptions{Source: testSource(), Path: filepath.Join(dir, "x.db"), Table: "t", Workspace: work, Now: time.Now}
		c.prepare(dir, &o)
		r, err := NewRows(o)
		must(t, err)
		err = r.Probe(t.Context())
		if place, ok := errors.AsType[*PlaceError](err); !ok || !strings.Contains(place.What, c.what) {
			t.Errorf("%s: Probe = %v, want one that says %q", name, err, c.what)
		}
		must(t, r.Close())
	}
}
