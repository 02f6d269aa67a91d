// Package sandbox reads what a project asks of its runners: the file
// .cloop/sandbox.yaml of its repository.
//
// In goes the file's text, and what a pool declares; out come the requirements,
// every mistake with its line, and which requirements the pool does not meet.
// Hub and runner use it alike, so that both give the same verdict. It does no
// I/O, and takes nothing that it does not know for unimportant: a key that is
// not understood is a mistake, because what it asks for cannot be held.
package sandbox
