// Command doclinks is a Fencepost check that finds relative links leading
// nowhere in the Markdown files of a candidate tree.
package main

func main() {}
