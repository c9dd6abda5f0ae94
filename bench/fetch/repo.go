package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// A shape is the size of a repository that is made from nothing but numbers:
// the same one each time, with files, directories and likenesses between files
// as real projects have them.
type shape struct {
	name    string
	files   int
	changed int // by the second commit
}

func shapes() []shape {
	return []shape{
		{"small", 1_700, 50},
		{"large", 29_000, 50},
	}
}

// generator changes whenever the same shape would come out otherwise.
const generator = 1

// A repo is a bare repository with two commits, the second one on the first.
type repo struct {
	dir           string
	first, second string
}

// makeRepo makes the repository of a shape below dir, unless it is there.
func makeRepo(dir string, s shape) (repo, error) {
	r := repo{dir: filepath.Join(dir, fmt.Sprintf("%s-%d.git", s.name, generator))}
	if _, err := os.Stat(r.dir); errors.Is(err, fs.ErrNotExist) {
		if err := r.generate(s); err != nil {
			return r, errors.Join(err, os.RemoveAll(r.dir))
		}
	} else if err != nil {
		return r, err
	}
	var err error
	if r.second, err = r.git("rev-parse", "main"); err != nil {
		return r, err
	}
	r.first, err = r.git("rev-parse", "main~1")
	return r, err
}

func (r repo) git(args ...string) (string, error) {
	cmd := exec.Command("git", args...)
	cmd.Dir, cmd.Env = r.dir, gitEnv()
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	return strings.TrimSpace(string(out)), err
}

// gitEnv keeps the machine's own configuration out.
func gitEnv() []string {
	return append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL="+os.DevNull, "LC_ALL=C")
}

func (r repo) generate(s shape) error {
	if err := os.MkdirAll(r.dir, 0o755); err != nil {
		return err
	}
	if _, err := r.git("init", "-q", "--bare", "-b", "main"); err != nil {
		return err
	}
	cmd := exec.Command("git", "fast-import", "--quiet", "--done")
	cmd.Dir, cmd.Env, cmd.Stderr = r.dir, gitEnv(), os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	w := bufio.NewWriterSize(in, 1<<20)
	newWorld(s).write(w)
	if err := errors.Join(w.Flush(), in.Close(), cmd.Wait()); err != nil {
		return fmt.Errorf("fast-import: %w", err)
	}
	for _, args := range [][]string{
		// As a server keeps it: or else it looks for deltas at each fetch.
		{"repack", "-adqf", "--depth=50", "--window=10"},
		{"config", "uploadpack.allowFilter", "true"},
	} {
		if _, err := r.git(args...); err != nil {
			return fmt.Errorf("git %s: %w", args[0], err)
		}
	}
	return nil
}

// A world is what names and lines are made of.
type world struct {
	shape
	rnd   *rand.Rand
	words []string
	lines []string // that many files have, such as licences
}

func newWorld(s shape) *world {
	w := &world{shape: s, rnd: rand.New(rand.NewPCG(uint64(s.files), 7))}
	syllables := []string{"ra", "to", "mi", "ken", "lo", "pre", "sta", "con", "ver", "fil", "ed", "is", "un", "qua", "ther", "ob", "ject", "set", "ti", "on", "er", "ma", "po", "li"}
	for range 6000 {
		var b strings.Builder
		for range 1 + w.rnd.IntN(4) {
			b.WriteString(syllables[w.rnd.IntN(len(syllables))])
		}
		w.words = append(w.words, b.String())
	}
	for range 300 {
		w.lines = append(w.lines, w.line())
	}
	return w
}

// word returns one of few words often and one of many seldom.
func (w *world) word() string {
	return w.words[int(float64(len(w.words))*math.Pow(w.rnd.Float64(), 3))]
}

func (w *world) name() string {
	a, b := w.word(), w.word()
	return a + strings.ToUpper(b[:1]) + b[1:]
}

func (w *world) line() string {
	switch w.rnd.IntN(12) {
	case 0:
		return "\tif err := " + w.word() + "." + w.name() + "(ctx, " + w.word() + "); err != nil {\n\t\treturn err\n\t}\n"
	case 1:
		return "\n// " + w.name() + " " + w.word() + " " + w.word() + " the " + w.word() + " of " + w.word() + ".\n"
	case 2:
		return "func (" + w.word()[:1] + " *" + w.name() + ") " + w.name() + "(" + w.word() + " " + w.word() + ") error {\n"
	case 3:
		return fmt.Sprintf("\t%s = %d\n", w.name(), w.rnd.IntN(100_000))
	case 4, 5:
		return "\t\t" + w.word() + ": \"" + w.word() + "/" + w.word() + "\",\n"
	case 6:
		return "\treturn " + w.word() + "." + w.name() + ", nil\n}\n"
	case 7:
		return fmt.Sprintf("\t\t{%q, 0x%x, %v},\n", w.word(), w.rnd.Uint32(), w.rnd.IntN(2) == 0)
	case 8:
		return "\t// " + w.word() + " " + w.word() + " " + w.word() + " " + w.word() + " " + w.word() + " " + w.word() + "\n"
	}
	return "\t" + w.word() + " := " + w.word() + "." + w.name() + "(" + w.word() + ")\n"
}

// text returns lines of about that many bytes.
func (w *world) text(size int) []byte {
	var b bytes.Buffer
	for b.Len() < size {
		if w.rnd.IntN(6) == 0 {
			b.WriteString(w.lines[w.rnd.IntN(len(w.lines))])
		} else {
			b.WriteString(w.line())
		}
	}
	return b.Bytes()
}

// variant returns a text with some of its lines changed, as between two
// drivers of one kind, or two copies of a vendored file.
func (w *world) variant(of []byte) []byte {
	var b bytes.Buffer
	for line := range bytes.Lines(of) {
		switch w.rnd.IntN(25) {
		case 0:
			b.WriteString(w.line())
		case 1:
		default:
			b.Write(line)
		}
	}
	return b.Bytes()
}

// content returns that of one file: text, like an earlier one in a fifth of
// all, and in a fiftieth bytes without any order.
func (w *world) content(earlier [][]byte) []byte {
	const median, sigma, most = 5200, 1.25, 1 << 20
	size := min(int(median*math.Exp(sigma*w.rnd.NormFloat64())), most)
	switch n := w.rnd.IntN(50); {
	case n == 0:
		b := make([]byte, size)
		for i := range b {
			b[i] = byte(w.rnd.Uint32())
		}
		return b
	case n <= 11 && len(earlier) > 0:
		return w.variant(earlier[w.rnd.IntN(len(earlier))])
	}
	return w.text(size)
}

// write writes both commits as a stream for git fast-import.
func (w *world) write(out *bufio.Writer) {
	commit := func(mark int, from string) {
		fmt.Fprintf(out, "commit refs/heads/main\nmark :%d\ncommitter A <a@example.org> %d +0000\ndata 2\nx\n%s", mark, 1_700_000_000+mark, from)
	}
	put := func(mode, path string, content []byte) {
		fmt.Fprintf(out, "M %s inline %s\ndata %d\n", mode, path, len(content))
		out.Write(content)
		out.WriteByte('\n')
	}
	commit(1, "")
	dirs := []string{""}
	var paths []string
	var recent [][]byte
	for i := range w.files {
		if i%9 == 0 {
			// Most new directories are near the last ones.
			at := dirs[len(dirs)-1-int(float64(len(dirs))*math.Pow(w.rnd.Float64(), 2)*0.999)]
			if strings.Count(at, "/") < 7 {
				dirs = append(dirs, fmt.Sprintf("%s%s%d/", at, w.word(), i%97))
			}
		}
		dir := dirs[len(dirs)-1-int(float64(len(dirs))*math.Pow(w.rnd.Float64(), 6)*0.999)]
		path := fmt.Sprintf("%s%s_%d.%s", dir, w.word(), i, []string{"go", "go", "go", "md", "yaml", "json", "c", "h"}[w.rnd.IntN(8)])
		content := w.content(recent)
		if len(recent) < 200 {
			recent = append(recent, content)
		} else {
			recent[w.rnd.IntN(len(recent))] = content
		}
		mode := "100644"
		if w.rnd.IntN(40) == 0 {
			mode = "100755"
		}
		put(mode, path, content)
		paths = append(paths, path)
	}
	commit(2, "from :1\n")
	for i := range w.changed {
		put("100644", paths[i*(len(paths)/w.changed)], w.text(8000))
	}
	out.WriteString("done\n")
}
