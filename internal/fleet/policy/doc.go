// Package policy is what a fleet repository says of its own check: which
// findings it bears, for what reason and until when, how much a rule weighs, and
// rules of its own.
//
// In come the repository's .cloop/config.yaml and .cloop/rules.cue, and the
// comments of its YAML files. Out come ignores and severities, compiled rules
// with what they say of an object, and problems with file, line and column for
// all that cannot be meant.
//
// What it reads was written by whoever may open a pull request, and is read by
// hub and controllers too. So it is data: nothing in it is imported, called or
// repeated, each file has a bound, and an expression has a budget. The package
// never reads outside the repository, and never decides what a finding is: it is
// asked about findings of others.
package policy
