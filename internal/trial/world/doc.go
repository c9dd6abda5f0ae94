// Package world is a simulated forge with one gated repository, and a real
// controller in a process of its own that gates it.
//
// `fencepost try` tells its story in one, and the end-to-end tests set their
// scenes in one.
package world
