// Package ledger measures ledgers beside what else could keep the same rows,
// and runs one scenario against a job queue. It is a module of its own, so
// that nothing it measures comes near the product's dependencies.
//
//	go test -run '^$' -bench Ledger -benchtime 1x
//	go test -run LateWorker -v
package ledger
