package output

import "cloop.dev/cloop/internal/printable"

// MaxComment bounds a Markdown output in bytes; see maxComment.
const MaxComment = maxComment

// Code is text that others wrote as a Markdown code span: on one line, of
// bounded length, and nothing but text to any forge.
func Code(text string) string { return code(printable.Abridge(visible(text), maxName)) }

// Prose is a sentence for Markdown: plain words as they are, everything else in
// code spans.
func Prose(text string) string { return prose(printable.Abridge(visible(text), maxMessage/2)) }

// Logged is text that others wrote as a line of a CI job's log: visible, and no
// command to any runner.
func Logged(line string) string { return logged(visible(line)) }
