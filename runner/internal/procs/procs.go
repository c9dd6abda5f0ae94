// Package procs names processes so that a number which was used again is not
// taken for the process that had it, and kills them under that name.
package procs
