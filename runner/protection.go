package runner

// A Protection is one thing that stands between a program and the host.
type Protection string

// The protections, in the order of a record.
const (
	// ProtectionUserNamespace: the program's privileges end at its namespace.
	ProtectionUserNamespace Protection = "user_namespace"
	// ProtectionPIDNamespace: it sees and signals processes of its run only.
	ProtectionPIDNamespace Protection = "pid_namespace"
	// ProtectionMountNamespace: its mounts are its own.
	ProtectionMountNamespace Protection = "mount_namespace"
	// ProtectionNetworkNamespace: it has no network, not even loopback.
	ProtectionNetworkNamespace Protection = "network_namespace"
	// ProtectionIPCNamespace: System V and POSIX IPC objects are its own.
	ProtectionIPCNamespace Protection = "ipc_namespace"
	// ProtectionUTSNamespace: it does not learn the host's name.
	ProtectionUTSNamespace Protection = "uts_namespace"
	// ProtectionPrivateRoot: it sees only what was bound for it.
	ProtectionPrivateRoot Protection = "private_root"
	// ProtectionReadOnlyTrees: checkouts and program are mounted read-only.
	ProtectionReadOnlyTrees Protection = "read_only_trees"
	// ProtectionScratchLimit: its working directory has a size.
	ProtectionScratchLimit Protection = "scratch_limit"
	// ProtectionUnprivilegedUser: it is not the superuser of the host, not
	// even without privileges.
	ProtectionUnprivilegedUser Protection = "unprivileged_user"
	// ProtectionCapabilities: it has none.
	ProtectionCapabilities Protection = "no_capabilities"
	// ProtectionNoNewPrivileges: it can't gain any.
	ProtectionNoNewPrivileges Protection = "no_new_privileges"
	// ProtectionLandlock: the kernel's second opinion on file access.
	ProtectionLandlock Protection = "landlock"
	// ProtectionSeccomp: the system call filter.
	ProtectionSeccomp Protection = "seccomp"
	// ProtectionCPULimit bounds processor time.
	ProtectionCPULimit Protection = "cpu_limit"
	// ProtectionFileLimit bounds the size and the number of open files.
	ProtectionFileLimit Protection = "file_limit"
	// ProtectionMemoryLimit bounds memory.
	ProtectionMemoryLimit Protection = "memory_limit"
	// ProtectionProcessLimit bounds processes.
	ProtectionProcessLimit Protection = "process_limit"
	// ProtectionTreeKill: the end of the whole process tree is proven.
	ProtectionTreeKill Protection = "tree_kill"
)

// Protections returns all of them in the order of a record.
func Protections() []Protection {
	return []Protection{
		ProtectionUserNamespace, ProtectionPIDNamespace, ProtectionMountNamespace, ProtectionNetworkNamespace,
		ProtectionIPCNamespace, ProtectionUTSNamespace, ProtectionPrivateRoot, ProtectionReadOnlyTrees,
		ProtectionScratchLimit, ProtectionUnprivilegedUser, ProtectionCapabilities, ProtectionNoNewPrivileges,
		ProtectionLandlock, ProtectionSeccomp, ProtectionCPULimit, ProtectionFileLimit,
		ProtectionMemoryLimit, ProtectionProcessLimit, ProtectionTreeKill,
	}
}

// A ProtectionState says whether one protection was on, and by what means.
type ProtectionState struct {
	Protection Protection `json:"protection"`
	On         bool       `json:"on"`
	// By is the means, such as "cgroup v1" or "rlimit, each process"; empty
	// where the name says it all.
	By string `json:"by,omitempty"`
}

// states is the list of a record, made from what is on.
func states(on map[Protection]string) []ProtectionState {
	all := Protections()
	out := make([]ProtectionState, len(all))
	for i, p := range all {
		by, ok := on[p]
		out[i] = ProtectionState{Protection: p, On: ok, By: by}
	}
	return out
}
