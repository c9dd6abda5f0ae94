// Package ingress is the bounded HTTP edge: it takes webhooks, authenticates
// their exact bytes and answers when they are durably recorded (DESIGN §4).
//
// # Order of work
//
// [Server.ServeHTTP] does, each step before the next: method → path to route →
// header count and bytes → media type → declared length → draining? → room in
// the body budget → exact body up to the cap → receipt time → authentication
// → signed-time rule and delivery key → [Admission] (strict decode, closed
// list, identity) → [Recorder] → answer. Nothing of a body is parsed before
// its signature verified.
//
// # One refusal for all
//
// A path that is no route, whatever it looks like, is a route with no keys: it
// takes every step up to authentication, where the table's decoy computes as
// many MACs as a route's verifier does, and ends in the same answer. So does a
// request with a header of the route's twice.
//
// # What holds clients off
//
//	many    a cap on connections; further ones wait to be accepted
//	large   a cap on each body, and one budget over all bodies in memory
//	slow    headers, each part of a body, the whole body, the answer and
//	        idling have their times; a client that takes longer is cut off
//
// The budget is split in two, so that large bodies, however slow, never keep
// ordinary ones waiting: those of up to 1 MiB have a quarter of it to
// themselves. A body whose length isn't declared counts as 1 MiB until it
// turns out larger, and as the cap from then on. Who holds room in the larger
// part waits for nothing else, so no two wait for each other.
//
// # Stopping
//
// When [Server.Run]'s context ends, new requests are answered 503 draining on
// connections that close, until those in flight are done; then the listener
// closes.
package ingress
