// Package count says how many there are of something.
//
// In go a number and a noun; out comes text for people. It never decides
// anything.
package count

import "fmt"

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
