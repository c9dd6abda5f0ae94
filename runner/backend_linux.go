package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/fencepost/fencepost/runner/internal/cgroup"
	"github.com/fencepost/fencepost/runner/internal/landlock"
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
	cfg Config
	// namespaced is false where only a plain run is possible.
	namespaced bool
	// missing is what the sandbox lacks here.
	missing []Missing
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
func openBackend(ctx context.Context, cfg Config) (backend, error) {
	// A stage dies with the thread that started it.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b := &linuxBackend{cfg: cfg, namespaced: true}
	if err := b.findSystem(cfg.SystemDirs); err != nil {
		return nil, err
	}
	if groups, err := cgroup.Find(cfg.Cgroup); err == nil {
		b.groups = groups
	} else if cfg.Cgroup != "" {
		return nil, fmt.Errorf("control group of the configuration: %w", err)
	}
	// Without Landlock the trial below says so.
	b.landlockABI, _ = landlock.ABI()
	if os.Geteuid() == 0 {
		// Without it programs run as the superuser without privileges, and the
		// record says so.
		b.users, _ = holdUsers(ctx)
	}
	b.missing = b.trial(ctx)
	if len(b.missing) == 0 {
		return b, nil
	}
	missing := &SandboxError{Missing: b.missing}
	if cfg.Sandbox == Required {
		return nil, errors.Join(missing, b.close())
	}
	b.namespaced = !needsPlain(b.missing)
	return b, nil
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
	if b.users == nil {
		return nil
	}
	return b.users.Close()
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
	p, err := b.startStage(ctx, b.namespaces(b.users != nil), nil, nil)
	if err != nil {
		return b.missingNamespaces(ctx, err)
	}
	cfg := b.rootConfig()
	cfg.Limits = rlimits(b.cfg.Limits, b.groups)
	cfg.Program = sandboxProgram
	ready, err := p.prepare(ctx, cfg, []byte("{}"))
	if end := p.kill(); end != nil {
		return []Missing{{ProtectionTreeKill, end}}
	}
	switch {
	case err != nil:
		return []Missing{{ProtectionPrivateRoot, err}}
	default:
		closeAll(ready.files)
		return missingParts(ready.failures)
	}
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
func (b *linuxBackend) missingNamespaces(ctx context.Context, whole error) []Missing {
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
		attr := b.namespaces(false)
		attr.Cloneflags = unix.CLONE_NEWUSER | ns.flag
		p, err := b.startStage(ctx, attr, nil, nil)
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
	}
	return ProtectionTreeKill
}

// rootConfig is what all namespaced runs have in common.
func (b *linuxBackend) rootConfig() stage.Config {
	return stage.Config{
		Binds:   append([]stage.Bind(nil), b.binds...),
		Links:   append([]stage.Link{{Target: sandboxTmp, Text: strings.TrimPrefix(sandboxWork, "/")}}, b.links...),
		Devices: sandboxDevices[:],
		Work:    sandboxWork, Scratch: b.cfg.Limits.ScratchBytes, Inodes: b.cfg.Limits.ScratchFiles,
		Landlock: b.landlockABI, Seccomp: true,
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

// stageThreads is the room for the stage's own threads, which count among the
// processes of the sandbox.
const stageThreads = 16

func closeAll(files []*os.File) {
	for _, f := range files {
		// Read-only descriptors: closing them can lose nothing.
		_ = f.Close()
	}
}
