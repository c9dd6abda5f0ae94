// Package cgroup bounds the memory and the number of processes of a run by a
// control group of its own, where the host lets us make one.
//
// Both interfaces of the kernel are spoken. In version 1 each controller has a
// tree of its own and a process is moved after its start; in version 2 there
// is one tree, a process is born into its group, and a parent that hands out
// controllers may hold no process itself (systemd: Delegate=yes with
// DelegateSubgroup=).
package cgroup
