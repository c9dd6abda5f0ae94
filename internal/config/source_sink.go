package config

import (
	"cmp"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
)

// sink takes what belongs to the sink's kind, and refuses the rest.
func (v *validator) sink(path string, section sinkSection, s Source) Sink {
	sink := Sink{
		Kind: SinkKind(section.Kind), Mount: string(section.Mount),
		Include: v.patterns(path+".include", section.Include),
		Exclude: v.patterns(path+".exclude", section.Exclude),
		Require: v.patterns(path+".require", section.Require),
	}
	for i, e := range sink.Exclude {
		if slices.Contains(sink.Include, e) || e == "**" {
			v.refuse(fmt.Sprintf("%s.exclude[%d]", path, i), "takes out all that include names; take one of the two out")
		}
	}
	v.kindFields(path, sink.Kind)
	switch sink.Kind {
	case SinkDirectory:
		sink.Directory = v.directory(path, section)
	case SinkRows:
		sink.Rows = v.rows(path, section)
	case SinkProgram:
		if section.Plan == nil && !v.faulty(path+".plan") {
			v.refuse(path+".plan", "missing: add the program, such as plan: {action: {url: https://github.com/acme/publish.git, commit: <40 hex>}, program: bin/publish, sha256: <64 hex>}")
		}
		if p := section.Plan; p != nil {
			unless := path[:len(path)-len("sink")] + "allow_http"
			plan := v.plan(path+".plan", planSection{Action: p.Action, Program: p.Program, SHA256: p.SHA256, PlanLimits: p.PlanLimits}, s.AllowHTTP, unless)
			sink.Program = &plan
			if at := path + ".plan.wall"; plan.Limits.Wall > s.Timings.Sink && !v.faulty(at) {
				v.refuse(at, "must be at most timings.sink (%s), is %s", s.Timings.Sink, plan.Limits.Wall)
			}
		}
	}
	return sink
}

// kindFields refuses the fields of other kinds: what has no effect is
// probably meant to have one.
func (v *validator) kindFields(path string, kind SinkKind) {
	of := map[SinkKind][]string{
		SinkDirectory: {"path", "keep", "grace", "most", "reserve", "readers"},
		SinkRows:      {"database", "table", "max_row", "text"},
		SinkProgram:   {"plan"},
	}
	if _, known := of[kind]; !known {
		return // reported already
	}
	for _, other := range []SinkKind{SinkDirectory, SinkRows, SinkProgram} {
		for _, field := range of[other] {
			if at := path + "." + field; other != kind && v.given(at) {
				v.refuse(at, "has no meaning for kind %s; take it out, or say kind: %s", kind, other)
			}
		}
	}
	if kind == SinkProgram && v.given(path+".mount") {
		v.refuse(path+".mount", "has no meaning for kind program, which gets the tree as it is; take it out")
	}
}

func (v *validator) patterns(path string, patterns []globText) []string {
	var texts []string
	for i, p := range patterns {
		if slices.Contains(texts, string(p)) && p != "" {
			v.refuse(fmt.Sprintf("%s[%d]", path, i), "is listed already; take it out")
		}
		texts = append(texts, string(p))
	}
	return texts
}

func (v *validator) directory(path string, section sinkSection) *DirectorySink {
	at := path + ".path"
	d := &DirectorySink{
		Path: v.absolute(section.Path), Keep: section.Keep, Grace: section.Grace, Most: section.Most, Reserve: section.Reserve,
		Mode: map[string]fs.FileMode{"all": 0o755, "group": 0o750, "owner": 0o700}[section.Readers],
	}
	if at := path + ".most"; d.Most <= d.Keep && !v.faulty(at) && !v.faulty(path+".keep") {
		v.refuse(at, "must be more than keep (%d), is %d", d.Keep, d.Most)
	}
	switch {
	case v.faulty(at):
	case section.Path == "":
		v.refuse(at, "missing: add where the content is to be, such as path: /srv/handbook")
	case filepath.Dir(d.Path) == d.Path:
		v.refuse(at, "must be below a directory, in which the trees are kept")
	case within(d.Path, v.dataDir):
		v.refuse(at, "lies inside data_dir, which is Fencepost's own; give it a place outside")
	case within(v.dataDir, d.Path):
		v.refuse(at, "would hold data_dir, and everything below it is replaced by the content; give it another place")
	}
	return d
}

func (v *validator) rows(path string, section sinkSection) *RowsSink {
	if !v.given(path + ".table") {
		v.refuse(path+".table", "missing: add the table, such as table: handbook")
	}
	r := &RowsSink{
		Database: v.store(path+".database", section.Database.Database, string(section.Table)),
		Table:    string(section.Table), MaxRow: section.MaxRow, Text: section.Text == "utf8",
	}
	switch at := path + ".database"; {
	case v.faulty(at):
	case r.Database.IsZero():
		v.refuse(at, "missing: add the rows' database, such as database: file:secrets/handbook-db")
	case r.Database.File() != "" && within(r.Database.File(), v.dataDir):
		v.refuse(at, "lies inside data_dir, which is Fencepost's own; give it a place outside")
	}
	return r
}

// absolute is a path of the file, made absolute.
func (v *validator) absolute(p filePath) string {
	if p == "" {
		return ""
	}
	return absoluteIn(v.abs, string(p))
}

func absoluteIn(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// within reports whether a path is another, or lies below it, by their texts.
func within(inner, outer string) bool {
	rel, err := filepath.Rel(outer, inner)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// sinks holds the sinks of all sources apart.
type sinks struct {
	v *validator
	// places are the paths of directories and of database files.
	places []sinkPlace
	// tables are the sections by database and table.
	tables map[string]string
}

type sinkPlace struct {
	// path is the file system's, with a separator at its end, that of a
	// directory's link or of the trees beside it; section the configuration's,
	// field what in it says so.
	path, section, field string
	directory            bool
}

func newSinks(v *validator) *sinks { return &sinks{v: v, tables: map[string]string{}} }

// add notes a sink; what is missing in it is reported already.
func (s *sinks) add(section string, sink Sink) {
	switch {
	case sink.Directory != nil && sink.Directory.Path != "":
		parent, name := filepath.Split(sink.Directory.Path)
		for _, place := range []string{sink.Directory.Path, filepath.Join(parent, "."+name+".fencepost")} {
			s.places = append(s.places, sinkPlace{place + string(filepath.Separator), section, ".path", true})
		}
	case sink.Rows != nil && !sink.Rows.Database.IsZero() && sink.Rows.Table != "":
		if file := sink.Rows.Database.File(); file != "" {
			s.places = append(s.places, sinkPlace{file + string(filepath.Separator), section, ".database", false})
		}
		key := sink.Rows.Database.identity() + "\x00" + sink.Rows.Table
		s.v.distinct(s.tables, section, ".table", key, section, "is the table of %s too, in the same database; give each source its own")
	}
}

// apart refuses a directory that is another, one below another, and a database
// file below one.
func (s *sinks) apart() {
	slices.SortStableFunc(s.places, func(a, b sinkPlace) int { return cmp.Compare(a.path, b.path) })
	var top sinkPlace
	for _, p := range s.places {
		switch inside := top.path != "" && strings.HasPrefix(p.path, top.path); {
		case !inside:
			top = p
		case p.section == top.section || s.v.faulty(p.section+p.field):
		case p.path == top.path && p.directory == top.directory && !p.directory:
			// One database may hold the tables of many.
		case p.path == top.path:
			s.v.refuse(p.section+p.field, "is the place of %s too; give each source its own", top.section)
		default:
			s.v.refuse(p.section+p.field, "lies inside that of %s, which is replaced as a whole; give it a place outside", top.section)
		}
	}
}
