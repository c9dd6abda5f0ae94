// Package shelftest is the suite that every shelf of results has to pass.
package shelftest
