package cgroup

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/hostpath"
)

// Prefix begins the name of every group that this package makes.
const Prefix = "fencepost-"

// ErrUnavailable: the host does not let us make groups with these controllers.
var ErrUnavailable = errors.New("no control group with memory and pids controllers can be made")

// Names of the controllers.
const (
	memory = "memory"
	pids   = "pids"
)

// A Host is where groups can be made. It is immutable and safe for concurrent
// use.
type Host struct {
	// version is 1 or 2.
	version int
	// parents maps a controller to the directory that groups are made in; in
	// version 2 both are the same.
	parents map[string]string
}

// Version is that of the kernel's interface, 1 or 2.
func (h *Host) Version() int { return h.version }

// Has reports whether groups of h bound memory, and whether they bound the
// number of processes.
func (h *Host) Has() (mem, procs bool) {
	_, mem = h.parents[memory]
	_, procs = h.parents[pids]
	return mem, procs
}

// Find looks for a place to make groups in: parent where it is not empty (a
// version 2 directory), or else beneath the process's own groups. It tries the
// place by making a group and removing it. Its error matches [ErrUnavailable].
func Find(parent string) (*Host, error) {
	if parent != "" {
		return findUnified([]string{parent})
	}
	mounts, err := readMounts("/proc/self/mountinfo")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	own, err := readOwn("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if dir, ok := mounts.unified(own[""]); ok {
		if h, err := findUnified([]string{dir, filepath.Dir(dir)}); err == nil {
			return h, nil
		}
	}
	return findLegacy(mounts, own)
}

// findUnified takes the first directory that gives both controllers to its
// children.
func findUnified(dirs []string) (*Host, error) {
	err := ErrUnavailable
	for _, dir := range dirs {
		h := &Host{version: 2, parents: map[string]string{memory: dir, pids: dir}}
		if e := delegate(dir); e != nil {
			err = fmt.Errorf("%w: %w", ErrUnavailable, e)
			continue
		}
		if e := h.try(); e != nil {
			err = fmt.Errorf("%w: %w", ErrUnavailable, e)
			continue
		}
		return h, nil
	}
	return nil, err
}

// delegate makes sure that children of dir have both controllers. The write
// fails where dir holds processes, which is how the kernel wants it.
func delegate(dir string) error {
	control := filepath.Join(dir, "cgroup.subtree_control")
	have, err := readSmall(control)
	if err != nil {
		return err
	}
	var missing []string
	for _, c := range []string{memory, pids} {
		if !slices.Contains(strings.Fields(have), c) {
			missing = append(missing, "+"+c)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return writeValue(control, strings.Join(missing, " "))
}

func findLegacy(mounts mounts, own map[string]string) (*Host, error) {
	h := &Host{version: 1, parents: map[string]string{}}
	err := ErrUnavailable
	for _, c := range []string{memory, pids} {
		dir, ok := mounts.legacy(c, own[c])
		if !ok {
			continue
		}
		trial := &Host{version: 1, parents: map[string]string{c: dir}}
		if e := trial.try(); e != nil {
			err = fmt.Errorf("%w: %w", ErrUnavailable, e)
			continue
		}
		h.parents[c] = dir
	}
	if len(h.parents) == 0 {
		return nil, err
	}
	return h, nil
}

// tryPatience is how long a group that was only tried may take to go.
const tryPatience = 100 * time.Millisecond

func (h *Host) try() error {
	g, err := h.Create(fmt.Sprintf("try-%d", unix.Getpid()))
	if err != nil {
		return err
	}
	return errors.Join(g.Limit(Limits{Memory: 64 << 20, Processes: 64}), g.Remove(tryPatience))
}

// mounts are the cgroup file systems that the process can see.
type mounts []mount

type mount struct {
	// root is the directory of the tree that is mounted, point where.
	root, point string
	// controllers are those of a version 1 tree; nil means version 2.
	controllers []string
}

// unified is the directory of the version 2 group path.
func (m mounts) unified(path string) (string, bool) {
	for _, e := range m {
		if e.controllers == nil {
			return e.dir(path)
		}
	}
	return "", false
}

// legacy is the directory of the version 1 group path of one controller.
func (m mounts) legacy(controller, path string) (string, bool) {
	for _, e := range m {
		if slices.Contains(e.controllers, controller) {
			return e.dir(path)
		}
	}
	return "", false
}

// dir is where the group path can be seen through the mount.
func (e mount) dir(path string) (string, bool) {
	if path == "" {
		return "", false
	}
	rel, err := filepath.Rel(e.root, path)
	if err != nil || !filepath.IsLocal(rel) {
		return "", false
	}
	return filepath.Join(e.point, rel), true
}

func readMounts(path string) (mounts, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, hostpath.Strip(err)
	}
	defer f.Close()
	return parseMounts(f)
}

// parseMounts reads proc(5), /proc/pid/mountinfo: "36 35 98:0 /root /point
// opts - type source superopts", with optional fields before the dash.
func parseMounts(r io.Reader) (mounts, error) {
	var out mounts
	for line := range lines(r) {
		before, after, ok := strings.Cut(line, " - ")
		front, back := strings.Fields(before), strings.Fields(after)
		if !ok || len(front) < 5 || len(back) < 3 {
			continue
		}
		m := mount{root: front[3], point: front[4]}
		switch back[0] {
		case "cgroup2":
		case "cgroup":
			m.controllers = strings.Split(back[2], ",")
		default:
			continue
		}
		out = append(out, m)
	}
	return out, nil
}

func readOwn(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, hostpath.Strip(err)
	}
	defer f.Close()
	return parseOwn(f), nil
}

// parseOwn reads cgroups(7), /proc/pid/cgroup: "id:controllers:path". Version
// 2 has no controllers and stands under the empty name.
func parseOwn(r io.Reader) map[string]string {
	own := map[string]string{}
	for line := range lines(r) {
		fields := strings.SplitN(line, ":", 3)
		if len(fields) != 3 {
			continue
		}
		for c := range strings.SplitSeq(fields[1], ",") {
			own[c] = fields[2]
		}
	}
	return own
}

// lines yields at most maxLines lines of a file of the kernel.
func lines(r io.Reader) func(func(string) bool) {
	const maxLines = 4096
	return func(yield func(string) bool) {
		s := bufio.NewScanner(r)
		for n := 0; n < maxLines && s.Scan(); n++ {
			if !yield(s.Text()) {
				return
			}
		}
	}
}

func readSmall(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", hostpath.Strip(err)
	}
	defer f.Close()
	var b bytes.Buffer
	if _, err := b.ReadFrom(io.LimitReader(f, maxSmall)); err != nil {
		return "", hostpath.Strip(err)
	}
	return strings.TrimSpace(b.String()), nil
}

// maxSmall bounds what is read of a file of the kernel: 64 KiB are 8,000
// process ids.
const maxSmall = 64 << 10

func writeValue(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return hostpath.Strip(err)
	}
	_, err = f.WriteString(value)
	return errors.Join(hostpath.Strip(err), hostpath.Strip(f.Close()))
}
