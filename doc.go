// Package fencepost holds the words that everything else is written in: the
// proof that a delivery is authentic, the delivery itself, the lease under
// which it is worked on, the publication that may leave, and the ledger's
// contract.
//
// The flow of one delivery through these types:
//
//	headers, body ─ NewIngressCheck ─ Authenticate ─→ Proof ─ Accept ─→ AcceptedDelivery
//	AcceptedDelivery ─ Ledger.Claim ─→ Lease ─ Ledger.Stage ─→ StagedPublication ─ Ledger.Complete
//
// A [Proof] can be made by [Authenticate] alone and an [AcceptedDelivery] by
// [Accept] alone; their zero values are refused everywhere. A [Lease] and a
// [StagedPublication] are made by a ledger, and are worth what the ledger's
// row says at the moment of each operation.
//
// The package does no I/O, reads no clock and starts no goroutine.
package fencepost
