// Package sink holds the places that sources give content to: a directory, the
// rows of a table, a program (DESIGN §9, "Sinks").
//
// Each kind is a [source.Sink] made by a constructor that takes plain options:
// [NewDirectory], [NewRows], [NewProgram]. What of a tree a sink takes is said
// by one [Content], with the patterns of package glob.
//
// # What all of them keep
//
// The last good content stays up. An application changes nothing that a reader
// sees before all of it is ready and on stable storage; then the hold is proven
// once more, and one step makes it visible: the rename of a symbolic link, the
// commit of a transaction, the start of the program.
//
// Fences are compared in the place itself, where no lock of another machine can
// be late: each place remembers the highest fence that it has seen, durably and
// before anything else is done, and an application with a lower one is
// [source.ErrLost].
//
// # A directory on disk
//
// The configured path is a symbolic link. What it leads to lies beside it, so
// that a tree is moved to its place by a rename and never copied:
//
//	parent/
//	    NAME -> .NAME.fencepost/trees/<id>[/<mount>]
//	    .NAME.fencepost/             0711: readers may pass, and see no list
//	        lock                     held locked by whoever applies
//	        state.json               the highest fence, and whose place it is
//	        health, POISON           the mark of a failed sync: package durable
//	        link.tmp                 the next link
//	        .gitfetch-<random>/      0700: a process's checkouts, until adopted
//	        trees/                   0711
//	            <id>/                0755: one tree, never changed once it is here
//	            <id>.json            what it is; there once all of it is durable
//	            <id>.manifest        for the next fetch; worth nothing but time
//
// docs/formats.md has the files byte by byte. An application does this, and may
// be killed between any two steps:
//
//	lock                                     one at a time, of all processes
//	write state.json with the own fence      the older ones are out from here on
//	write trees/<id>.manifest                what the checkout is
//	rename the checkout to trees/<id>
//	sync the file system                     all bytes and names of the tree are durable
//	write trees/<id>.json                    and that is known
//	make link.tmp                            leads to the tree
//	prove the hold
//	rename link.tmp to NAME                  readers see all of the new tree
//	sync parent/                             and will after a crash
//	remove trees that are old enough
//
// A tree without its .json that is not served was being made or removed by a
// process that is gone, since the lock is free: the next one removes it.
package sink
