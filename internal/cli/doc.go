// Package cli is cloop's command line: `cloop NOUN VERB`, one file a noun.
//
// In go arguments, environment, flags and files; out come text, JSON or YAML
// on standard output, remarks on standard error, and an exit code: 0 for done,
// 1 where the answer is no, 2 where there is no answer (errors.go). The text
// and the code come from one value.
//
// A command reads its flags into one options struct, checks them all at once,
// calls the package that does the work and prints what came back. Nothing is
// decided here that a program without a terminal would need, and no credential
// is ever taken from an argument.
package cli
