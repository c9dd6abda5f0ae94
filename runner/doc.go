// Package runner runs one pinned program over one verified tree, alone, within
// limits and under a lease, and says what it concluded.
//
// # What a run is
//
// [Runner.Run] verifies both checkouts again, copies the program out of the
// action's checkout while it compares the digest, derives request.json, and
// starts the program in a sandbox of its own: new user, PID, mount, network,
// IPC and UTS namespaces; a private root that holds read-only binds of the
// checkouts and of a list of system directories, and one writable directory of
// bounded size; Landlock and a system call filter; no capability and no way to
// gain one; limits on processor time, memory, processes, files and wall time;
// an empty environment and the null device for standard streams. The contract
// that the program keeps is package check.
//
// However a run ends, its process tree is killed and proven gone before a byte
// of output is read: the first process of the PID namespace is ours, and the
// kernel lets it end only after all others. The same holds when the controller
// is killed; what it leaves on disk is swept by the next [Open].
//
// Every outcome but [Concluded] is a [Failed] with a reason, and can never
// become a pass.
//
// # Using it
//
// The sandbox is built by the executable itself, started again under another
// name. So the first statement of main must be a call of [Init], whose value
// [Open] asks for:
//
//	func main() {
//		entry := runner.Init()
//		…
//		r, err := runner.Open(ctx, runner.Config{Entry: entry, Scratch: dir, Now: time.Now})
//
// A test binary does the same first thing in TestMain.
//
// # Where there is no sandbox
//
// With [Required], the default, Open fails and names what the kernel lacks.
// With [BestEffort] a run has what protections there are, and its record says
// which: on Linux without namespaces still Landlock, the filter, the limits
// and a subreaper; elsewhere a process group.
package runner
