// Package e2e holds the end-to-end tests: real controllers in processes of
// their own, killed at every point, against the simulated forge.
package e2e
