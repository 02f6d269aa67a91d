// Package removal removes what a run left.
//
// In comes a directory that the run wrote into and that its owner wants gone;
// afterwards it is, whatever the run did to the rights on what is in it. It
// follows no link out of the directory, and must not be used on one that a
// process still writes into.
package removal
