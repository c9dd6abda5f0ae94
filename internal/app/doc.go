// Package app puts the parts together into the controller that `fencepost
// serve` runs: it opens the stores of one data directory, joins the packages
// that must not know each other, and runs and stops them in order.
//
// It is the one package below internal that imports its siblings.
//
//	data/
//	  FENCEPOST    what this directory is, and of which version
//	  health       package durable: whether a sync ever failed
//	  ledger/      who may run, stage and publish
//	  inbox/       raw deliveries until they are done
//	  notebook/    attempts, and the newest evaluation of each head
//	  artifacts/   evidence
//	  receipts/    the journal for people
//	  alerts/      what is open
//	  fetch/, run/ scratch, one directory for each process
package app
