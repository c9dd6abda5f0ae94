// Package ops is what operators see of a running controller: health,
// readiness, metrics, one read-only page, and the evidence (DESIGN §11).
//
// All of it stands on a listener of its own, which is never the public one and
// asks for no password. It takes GET and HEAD alone and changes nothing.
// What it shows comes through the small interfaces of this package.
package ops
