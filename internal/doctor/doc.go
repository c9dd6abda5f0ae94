// Package doctor looks at what a controller rests on (disk, clock, reach) and
// names the mend of what is wrong.
//
// It decides nothing else and repairs nothing.
package doctor
