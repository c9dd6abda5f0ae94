package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/check"
	"github.com/fencepost/fencepost/runner/internal/cgroup"
	"github.com/fencepost/fencepost/runner/internal/landlock"
	"github.com/fencepost/fencepost/runner/internal/procs"
	"github.com/fencepost/fencepost/runner/internal/stage"
)

// Paths in the private root.
const (
	sandboxCandidate = "/candidate"
	sandboxAction    = "/action"
	sandboxProgram   = "/program"
	sandboxWork      = "/work"
	sandboxTmp       = "/tmp"
)

// sandboxDevices are the devices that a program finds in /dev.
var sandboxDevices = [...]string{"null", "zero", "full", "random", "urandom"}

// A linuxBackend runs programs through a stage, in namespaces where they are
// to be had.
type linuxBackend struct {
	cfg       Config
	workspace *workspace
	stages    *stageList
	nursery   *nursery
	// boot is the id of this boot.
	boot string
	// namespaced is false where only a plain run is possible.
	namespaced bool
	// users is the user namespace for mounts of private files, nil unless the
	// process is the superuser and can lend them to another user.
	users *os.File
	// landlockABI is 0 where the kernel has none.
	landlockABI int
	// groups is nil where none can be made.
	groups *cgroup.Host
	// binds and links are the system directories of the private root.
	binds []stage.Bind
	links []stage.Link
}

// openBackend finds out by trying: a sandbox is built whole, without a
// program, and what it lacks is what runs will lack.
func openBackend(ctx context.Context, cfg Config, ws *workspace) (backend, error) {
	b := &linuxBackend{cfg: cfg, workspace: ws, namespaced: true}
	b.nursery = &nursery{backend: b, parent: newParent()}
	if err := b.look(); err != nil {
		return nil, errors.Join(err, b.close())
	}
	missing := b.trial(ctx)
	if err := ctx.Err(); err != nil {
		return nil, errors.Join(context.Cause(ctx), b.close())
	}
	if len(missing) > 0 && cfg.Sandbox == Required {
		return nil, errors.Join(&SandboxError{Missing: missing}, b.close())
	}
	b.namespaced = !needsPlain(missing)
	b.nursery.attr = plain
	if b.namespaced {
		b.nursery.early = b.users != nil
		b.nursery.attr = func() *syscall.SysProcAttr { return namespaces(b.users != nil) }
	}
	b.nursery.keepOne()
	return b, nil
}

// look finds out what does not need a stage.
func (b *linuxBackend) look() (err error) {
	if b.boot, err = procs.BootID(); err != nil {
		return err
	}
	if b.stages, err = b.workspace.openStages(); err != nil {
		return err
	}
	if err := b.findSystem(b.cfg.SystemDirs); err != nil {
		return err
	}
	groups, err := cgroup.Find(b.cfg.Cgroup)
	if err != nil && b.cfg.Cgroup != "" {
		return fmt.Errorf("control group of the configuration: %w", err)
	}
	if err == nil {
		b.groups = groups
		if err := b.workspace.recordGroups(groups.Parents()); err != nil {
			return err
		}
	}
	// Without Landlock the trial says so.
	b.landlockABI, _ = landlock.ABI()
	if os.Geteuid() == 0 {
		// Without it programs run as the superuser without privileges, and the
		// record says so.
		b.users, _ = b.nursery.parent.holdUsers()
	}
	return nil
}

// findSystem sorts the system directories into binds and links.
func (b *linuxBackend) findSystem(dirs []string) error {
	for _, dir := range dirs {
		info, err := os.Lstat(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look at system directory: %w", err)
		}
		switch {
		case info.Mode()&os.ModeSymlink != 0:
			text, err := os.Readlink(dir)
			if err != nil {
				return fmt.Errorf("read link of system directory: %w", err)
			}
			b.links = append(b.links, stage.Link{Target: dir, Text: text})
		default:
			b.binds = append(b.binds, stage.Bind{Source: dir, Target: dir, File: !info.IsDir()})
		}
	}
	return nil
}

func (b *linuxBackend) roots() roots {
	if b.namespaced {
		return roots{candidate: sandboxCandidate, action: sandboxAction}
	}
	return roots{candidate: plainCandidate, action: plainAction}
}

func (b *linuxBackend) close() error {
	errs := []error{b.nursery.close()}
	if b.users != nil {
		errs = append(errs, b.users.Close())
	}
	if b.stages != nil {
		errs = append(errs, b.stages.file.Close())
	}
	return errors.Join(errs...)
}

// needsPlain reports whether what is missing can't be left out of a namespaced
// run.
func needsPlain(missing []Missing) bool {
	for _, m := range missing {
		switch m.Protection {
		case ProtectionLandlock, ProtectionSeccomp, ProtectionProcessLimit:
		default:
			return true
		}
	}
	return false
}

// trial builds a sandbox without a program and returns what it lacks.
func (b *linuxBackend) trial(ctx context.Context) []Missing {
	if missing := b.unbounded(); missing != nil {
		return missing
	}
	p, err := b.nursery.parent.start(namespaces(b.users != nil), nil)
	if err != nil {
		return b.missingNamespaces(err)
	}
	nothing, err := memoryFile("trial")
	if err != nil {
		return []Missing{{ProtectionPrivateRoot, errors.Join(err, p.kill())}}
	}
	defer closeAll([]*os.File{nothing})
	base, cfg := b.base(), b.runConfig(b.cfg.Limits)
	var ready readyStage
	if err = p.socket.send(base.Encode()); err == nil {
		ready, err = p.prepare(ctx, &cfg, []*os.File{nothing}, func() ([]byte, error) { return []byte("{}"), nil })
	}
	closeAll(ready.files)
	if end := p.kill(); end != nil {
		return []Missing{{ProtectionTreeKill, end}}
	}
	if err != nil {
		return []Missing{{ProtectionPrivateRoot, err}}
	}
	return missingParts(ready.Failures)
}

// unbounded reports a host on which nothing would bound processes: the kernel
// exempts the superuser from that resource limit.
func (b *linuxBackend) unbounded() []Missing {
	if b.groups != nil {
		if _, procs := b.groups.Has(); procs {
			return nil
		}
	}
	if os.Geteuid() != 0 || b.users != nil {
		return nil
	}
	return []Missing{{ProtectionProcessLimit, cgroup.ErrUnavailable}}
}

// missingNamespaces tries the namespaces one by one, to name those that are
// not to be had; if all are, the reason is another and stands by itself.
func (b *linuxBackend) missingNamespaces(whole error) []Missing {
	var missing []Missing
	for _, ns := range []struct {
		flag       uintptr
		protection Protection
	}{
		{0, ProtectionUserNamespace},
		{unix.CLONE_NEWPID, ProtectionPIDNamespace},
		{unix.CLONE_NEWNS, ProtectionMountNamespace},
		{unix.CLONE_NEWNET, ProtectionNetworkNamespace},
		{unix.CLONE_NEWIPC, ProtectionIPCNamespace},
		{unix.CLONE_NEWUTS, ProtectionUTSNamespace},
	} {
		attr := namespaces(false)
		attr.Cloneflags = unix.CLONE_NEWUSER | ns.flag
		p, err := b.nursery.parent.start(attr, nil)
		if err == nil {
			err = p.kill()
		}
		if err != nil {
			missing = append(missing, Missing{ns.protection, err})
		}
		if err != nil && ns.flag == 0 {
			// No other namespace can be made without this one.
			return missing
		}
	}
	if missing == nil {
		missing = []Missing{{ProtectionUserNamespace, whole}}
	}
	return missing
}

// missingParts translates what a stage could not do.
func missingParts(failures []stage.Failure) []Missing {
	var missing []Missing
	for _, f := range failures {
		missing = append(missing, Missing{partProtection(f.Part), &f})
	}
	return missing
}

func partProtection(p stage.Part) Protection {
	switch p {
	case stage.PartMounts:
		return ProtectionPrivateRoot
	case stage.PartScratch:
		return ProtectionScratchLimit
	case stage.PartNoNewPrivs:
		return ProtectionNoNewPrivileges
	case stage.PartCapabilities:
		return ProtectionCapabilities
	case stage.PartLandlock:
		return ProtectionLandlock
	case stage.PartSeccomp:
		return ProtectionSeccomp
	case stage.PartRlimits:
		return ProtectionFileLimit
	case stage.PartSubreaper:
		return ProtectionTreeKill
	case stage.PartCgroup:
		return ProtectionMemoryLimit
	}
	return ProtectionTreeKill
}

// base is what all runs have in common. A stage whose trees come as detached
// mounts has no need of the host after it.
func (b *linuxBackend) base() stage.Base {
	if !b.namespaced {
		return stage.Base{Plain: true}
	}
	tmp := stage.Link{Target: sandboxTmp, Text: strings.TrimPrefix(sandboxWork, "/")}
	return stage.Base{
		Binds: b.binds, Links: append([]stage.Link{tmp}, b.links...), Devices: sandboxDevices[:],
		Leave: b.users != nil,
	}
}

// runConfig is what every namespaced run adds, the trial included.
func (b *linuxBackend) runConfig(l Limits) stage.Config {
	return stage.Config{
		Work: sandboxWork, Program: sandboxProgram,
		Request: check.RequestFile, Report: check.ReportFile, Result: check.ResultFile,
		Scratch: l.ScratchBytes, Inodes: l.ScratchFiles,
		Landlock: b.landlockABI, Limits: rlimits(l, b.groups),
		Rules: []landlock.Rule{
			{Path: "/", Access: landlock.Read},
			{Path: "/dev", Access: landlock.Device},
			{Path: sandboxWork, Access: landlock.Write},
		},
	}
}

// rlimits translates limits; memory is bounded here only where no control
// group does it.
func rlimits(l Limits, groups *cgroup.Host) stage.Rlimits {
	r := stage.Rlimits{
		CPUSeconds: uint64((l.CPU + 999_999_999) / 1_000_000_000),
		FileBytes:  uint64(l.FileBytes),
		OpenFiles:  uint64(l.OpenFiles),
		Processes:  uint64(l.Processes + stageThreads),
	}
	if groups == nil {
		r.DataBytes = uint64(l.Memory)
		return r
	}
	if mem, _ := groups.Has(); !mem {
		r.DataBytes = uint64(l.Memory)
	}
	return r
}

// groupOverhead is how many of the stage's own threads are in the group: in
// version 2 all, since it is born there, and in version 1 the one that joins.
func (b *linuxBackend) groupOverhead() int {
	if b.groups.Version() == 1 {
		return 1
	}
	return stageThreads
}

// stageThreads is the room for the stage's own threads, which count among the
// processes of the sandbox.
const stageThreads = 16

func closeAll(files []*os.File) {
	for _, f := range files {
		// Read-only descriptors: closing them can lose nothing.
		_ = f.Close()
	}
}
