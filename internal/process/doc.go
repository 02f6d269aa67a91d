// Package process names operating system processes so that they can be found
// and ended safely by somebody who did not start them.
//
// A pid alone is no name: it is given to another process once its owner is
// gone. An Identity adds when the process started and in which boot, and every
// signal is sent through a file descriptor of the process itself, so that a
// process which is not meant is never hit. A Mark, an environment variable
// that children inherit, finds what a process left behind.
//
// In go pids and marks, out come identities. The package reads /proc and so
// works on Linux only; elsewhere it finds no process. It never starts one and
// keeps no files.
package process
