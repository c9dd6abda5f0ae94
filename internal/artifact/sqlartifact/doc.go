// Package sqlartifact is the evidence store of package artifact on PostgreSQL,
// shared by all processes of all machines.
//
// An artifact is a row under the SHA-256 of its bytes, so nothing can be read
// under a [artifact.Ref] but those bytes. What is stored is counted in one row,
// which whoever stores or removes something changes first: they wait for each
// other, and the bounds hold exactly. The oldest make room.
//
// Time is the server's.
package sqlartifact
