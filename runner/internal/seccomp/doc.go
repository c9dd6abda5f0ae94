// Package seccomp is the system-call filter that a run's program starts under.
//
// The filter is a list of what is refused, since programs of every language
// must work; what a kernel newer than this list adds is refused with it:
//
//  1. A call of another ABI than the binary's own (32-bit, x32) kills the
//     process.
//  2. A call newer than the newest one known here, and clone3, whose flags a
//     filter can't read, fail with ENOSYS: C libraries then fall back to clone.
//  3. clone with a flag that makes a namespace fails with EPERM.
//  4. socket and socketpair of another family than AF_UNIX, AF_INET and
//     AF_INET6 fail with EAFNOSUPPORT: AF_VSOCK ignores network namespaces, and
//     the others are much kernel for nothing in a namespace without a network.
//  5. The calls of the list fail with EPERM.
//
// It is written as classic BPF by hand: no library, no cgo, and a test that
// runs it.
package seccomp
