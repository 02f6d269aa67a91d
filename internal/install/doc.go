// Package install says how a pool's controller gets into a cluster and is kept
// up to date there: commands as text, for people to paste into their shell.
//
// In go a pool, where it is installed, and the hub as whoever installs it sees
// it; out come commands, each whole and quoted. What may come from a hub or a
// flag is checked first (Place.Check) or quoted, so that no text of somebody
// else ends a command and begins the next. A credential goes into standard input
// or comes from a file, never into an argument. The package runs nothing.
package install
