// Package landlock restricts a thread and all it starts to named parts of the
// file system, and keeps it from the network and from processes outside.
//
// Unlike libraries that restrict a whole process, it restricts the calling
// thread alone: the runner's init must stay free while the program that it
// starts is not.
package landlock
