// Package config turns one strict YAML file into a validated value.
//
// The file is read into the sections of this package's document, whose
// struct tags and comments are the one source of what is accepted, of
// docs/fencepost.schema.json and of docs/configuration.md. [Parse] reports
// every fault of a file at once, each as a [Fault] that names file, line,
// column and field. What comes out is a [Config], which holds parsed values
// only; the rest of the program never sees the YAML.
//
// Secrets are no part of the value: it holds references, which are resolved
// at use ([SecretRef.Resolve]).
package config

//go:generate go test -run=^TestGeneratedDocs$ . -update
