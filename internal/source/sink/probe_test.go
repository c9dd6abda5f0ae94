package sink

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fencepost/fencepost"
	"github.com/fencepost/fencepost/internal/durable"
)

func TestProbeSaysTheMend(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string, o *DirectoryOptions)
		what    string
	}{
		"no parent":        {func(_ *testing.T, dir string, o *DirectoryOptions) { o.Path = filepath.Join(dir, "no", "x") }, "does not exist"},
		"parent is a file": {func(t *testing.T, dir string, o *DirectoryOptions) { write(t, dir+"/f", ""); o.Path = dir + "/f/x" }, "no directory"},
		"in data_dir":      {func(_ *testing.T, dir string, o *DirectoryOptions) { o.DataDir = dir }, "is in data_dir"},
		"deep in data_dir by another name": {func(t *testing.T, dir string, o *DirectoryOptions) {
			must(t, os.MkdirAll(dir+"/data/sub", 0o755))
			must(t, os.Symlink("data/sub", dir+"/by"))
			o.DataDir, o.Path = dir+"/data", dir+"/by/x"
		}, "is in data_dir"},
		"a directory at the path":    {func(t *testing.T, dir string, _ *DirectoryOptions) { must(t, os.Mkdir(dir+"/x", 0o755)) }, "did not make"},
		"a file at the path":         {func(t *testing.T, dir string, _ *DirectoryOptions) { write(t, dir+"/x", "") }, "did not make"},
		"another link at the path":   {func(t *testing.T, dir string, _ *DirectoryOptions) { must(t, os.Symlink("/", dir+"/x")) }, "did not make"},
		"a file for a holding place": {func(t *testing.T, dir string, _ *DirectoryOptions) { write(t, dir+"/.x.fencepost", "") }, "did not make"},
		"a link for a holding place": {func(t *testing.T, dir string, _ *DirectoryOptions) {
			must(t, os.Mkdir(dir+"/elsewhere", 0o755))
			must(t, os.Symlink("elsewhere", dir+"/.x.fencepost"))
		}, "did not make"},
		"another source's": {func(t *testing.T, dir string, _ *DirectoryOptions) {
			must(t, os.Mkdir(dir+"/.x.fencepost", 0o755))
			must(t, writeState(durable.OS(dir+"/.x.fencepost"), state{Schema: stateSchema, Source: fencepost.SourceID{9}.String(), Fence: 1}))
		}, "belongs to another source"},
		"a damaged state": {func(t *testing.T, dir string, _ *DirectoryOptions) {
			must(t, os.Mkdir(dir+"/.x.fencepost", 0o755))
			write(t, dir+"/.x.fencepost/state.json", `{"schema":"fencepost.sink-state/v2"}`)
		}, "is damaged"},
		"a failed sync": {func(t *testing.T, dir string, _ *DirectoryOptions) {
			must(t, os.Mkdir(dir+"/.x.fencepost", 0o755))
			write(t, dir+"/.x.fencepost/POISON", "sync link: input/output error")
		}, "a sync failed"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			o := options(filepath.Join(dir, "x"), newClock())
			c.prepare(t, dir, &o)
			d, err := NewDirectory(o)
			must(t, err)
			err = d.Probe(t.Context())
			place, ok := errors.AsType[*PlaceError](err)
			if !ok || !errors.Is(err, ErrPlace) || !strings.Contains(place.What, c.what) || place.Mend == "" {
				t.Errorf("Probe = %v, want one that says %q", err, c.what)
			}
			if err != nil && strings.Contains(err.Error(), dir) {
				t.Errorf("the error shows a path of the host: %v", err)
			}
			must(t, d.Close())
		})
	}
}

func write(t testing.TB, path, content string) {
	t.Helper()
	must(t, os.WriteFile(path, []byte(content), 0o644))
}
