// Package count says how many there are of something.
//
// In go numbers and nouns, or texts of which not all can be shown; out comes text
// for people. It never decides anything.
package count

import (
	"fmt"
	"slices"
)

// Of is a number with its noun, which takes an s in the plural: "1 runner",
// "2 runners", "0 runners".
func Of[N int | int32 | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Is is the form of the verb "be" that goes with the number.
func Is[N int | int32 | int64](n N) string {
	if n == 1 {
		return "is"
	}
	return "are"
}

// First is the first texts, most of them, and how many more there are, if any.
func First(texts []string, most int) []string {
	if more := len(texts) - most; more > 0 {
		return append(slices.Clone(texts[:most]), fmt.Sprintf("and %d more", more))
	}
	return texts
}
