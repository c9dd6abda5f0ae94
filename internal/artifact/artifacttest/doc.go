// Package artifacttest holds what every evidence store does, as a suite that
// each implementation runs.
package artifacttest
