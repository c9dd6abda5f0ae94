// Package notetest holds what every notebook of gates does, as a suite that
// each implementation runs.
package notetest
