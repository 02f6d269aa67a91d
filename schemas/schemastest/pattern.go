package schemastest

import (
	"math/rand/v2"
	"regexp/syntax"
	"strings"
)

// sample writes a random text that a regular expression matches, with few
// repetitions. It knows what the definitions use; what it does not know it
// leaves out, so that the text may not match.
func sample(rng *rand.Rand, expression *syntax.Regexp, text *strings.Builder) {
	switch expression.Op {
	case syntax.OpLiteral:
		text.WriteString(string(expression.Rune))
	case syntax.OpCharClass:
		text.WriteRune(sampleClass(rng, expression.Rune))
	case syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		text.WriteByte('x')
	case syntax.OpCapture, syntax.OpConcat:
		for _, part := range expression.Sub {
			sample(rng, part, text)
		}
	case syntax.OpAlternate:
		sample(rng, expression.Sub[rng.IntN(len(expression.Sub))], text)
	case syntax.OpStar:
		repeat(rng, expression, 0, 3, text)
	case syntax.OpPlus:
		repeat(rng, expression, 1, 3, text)
	case syntax.OpQuest:
		repeat(rng, expression, 0, 1, text)
	case syntax.OpRepeat:
		most := expression.Max
		if most < 0 || most > expression.Min+3 && rng.IntN(8) > 0 {
			most = expression.Min + 3
		}
		repeat(rng, expression, expression.Min, most, text)
	}
}

func repeat(rng *rand.Rand, expression *syntax.Regexp, least, most int, text *strings.Builder) {
	for range least + rng.IntN(most-least+1) {
		sample(rng, expression.Sub[0], text)
	}
}

// sampleClass picks a character, a printable one of ASCII where there is one.
func sampleClass(rng *rand.Rand, ranges []rune) rune {
	for range 8 {
		at := 2 * rng.IntN(len(ranges)/2)
		low, high := max(ranges[at], '!'), min(ranges[at+1], '~')
		if low <= high {
			return low + rng.Int32N(high-low+1)
		}
	}
	return ranges[0]
}
