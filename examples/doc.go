// Package examples holds fleet repositories and a hub's configuration to read and
// to copy. There is no code in it but the test that builds, checks and compares
// each of them.
package examples
