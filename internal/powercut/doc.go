// Package powercut makes file systems that lose their power while processes
// write to them, for tests.
//
// A [Volume] is a file system in an image, mounted through a loop device.
// [Volume.Cut] takes its power away under whoever uses it, and
// [Volume.Restart] is the next start of the machine: the image is mounted
// again, and the file system recovers as it does after a real cut. ext4 and
// XFS are cut by the shutdown ioctl without a flush of their logs, so that
// what the kernel had not sent to the device is gone. btrfs has no such ioctl
// (seen with Linux 6.18): its image stands on an XFS of its own, and the cut
// is a clone of it, which is a picture of the device at one instant.
//
// Both forget what had not reached the device. Neither forgets or reorders
// what a device holds in a cache of its own; for that there is the double in
// package crashfs, which this package's tests hold against the real outcomes.
//
// Syncs that are under way while the ioctl is called may report success and
// be lost, which no power cut does. So only what was answered before Cut is
// called counts.
package powercut
