// Package mutation breaks the code that the promises rest on, one line at a
// time, and demands that a named test notices. The faults are in mutants.txt,
// what the last run of all of them saw is in docs/reliability.md.
//
// A quick test holds that every fault can still be made: its old text stands
// exactly once in its file, and its test exists. The run itself is `make
// mutate`; it builds one package for each fault, with the altered file laid
// over the tree, which is not changed.
package mutation
