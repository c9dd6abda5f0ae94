// Package storetest is the suite that every [source.Store] passes, on each of
// its databases (DESIGN §9).
package storetest
