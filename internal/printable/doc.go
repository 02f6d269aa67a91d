// Package printable makes text that others wrote safe to show on a terminal.
//
// In comes text from a hub, a cluster, a repository or a run; out comes text in
// which nothing is left that a terminal would obey rather than show: no escape
// sequence, no line break, nothing that turns the reading direction. What it
// takes away it shows in its place, as \x1b or \u202e. It must never be used on
// what programs read: there the text stays as it is.
package printable
