// Package gate brings recorded deliveries to their one result: it takes them
// up, evaluates them under a lease, stages what is to be published, and
// publishes it once.
//
// One evaluation reads from top to bottom in these files:
//
//	pool.go, schedule.go    who works on what, and when again
//	work.go                 take-up: verified anew; claim
//	evaluate.go             refresh, acquire, run, refresh, freeze
//	acquire.go, keep.go     candidate and action, by object id
//	verdict.go, fate.go     what becomes of each reason
//	evidence.go, assess.go  what is kept for people
//	publish.go              stage; look up, read the gate again, write once
//	finish.go               recorded, forgotten, done
//	heal.go                 what the provider has and nothing here knows
//
// What a provider is stands behind [Lane]; package github is the first. Every
// other part it needs is a small interface in deps.go.
//
// DESIGN §8 is what it does, invariants 6 to 9 what it must never do.
package gate
