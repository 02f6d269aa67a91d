// Package output shows the answer of a check of a fleet repository to people,
// programs and forges.
//
// In comes a Result, which is a fleet.Report with its verdict; out come the
// bytes of one format. The verdict, every text and the exit code derive from
// that one value, so that they cannot disagree. Functions are pure: no file, no
// clock, no environment.
//
// Messages and names of files come from whoever opened the pull request. No
// format lets them act: as a command to a CI runner, as markup, as a mention,
// or as control characters of a terminal. And no format goes beyond what its
// reader takes in: what does not fit is left out by whole pools, and counted.
package output
