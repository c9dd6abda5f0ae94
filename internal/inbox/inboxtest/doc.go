// Package inboxtest holds what every inbox of deliveries does, as a suite that
// each implementation runs.
package inboxtest
