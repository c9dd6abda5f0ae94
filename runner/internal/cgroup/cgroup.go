// Package cgroup bounds the memory and the number of processes of a run by a
// control group of its own, where the host lets us make one.
//
// Both interfaces of the kernel are spoken. In version 1 each controller has a
// tree of its own, and a thread can join a group by itself: what it starts then
// is born there. Moving another process would be simpler, but waits for a grace
// period of the whole machine each time. In version 2 there is one tree, a
// process is born into its group, and a parent that hands out controllers may
// hold no process itself (systemd: Delegate=yes with DelegateSubgroup=).
package cgroup
