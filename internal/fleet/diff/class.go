package diff

import (
	"encoding/json"
	"math/big"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/internal/fleet"
)

// Class says which way a change goes.
type Class string

// Classes, the gravest first.
const (
	// Destructive takes away what no other commit gives back: a volume, the hub or
	// the credential that a pool lives by, what a sync prunes.
	Destructive Class = "destructive"
	// Raise allows more than before: more runners, more people, more rights, less
	// that is checked. What gives one thing and takes another is one too: whoever
	// loses something notices that by themselves.
	Raise Class = "raise"
	// Lower allows less than before.
	Lower Class = "lower"
	// Neutral is another way to do as much.
	Neutral Class = "neutral"
)

// Classes lists all classes, the gravest first.
func Classes() []Class { return []Class{Destructive, Raise, Lower, Neutral} }

// gravest is the first of Classes that is among some; Neutral of none.
func gravest(some ...Class) Class {
	for _, class := range Classes() {
		if slices.Contains(some, class) {
			return class
		}
	}
	return Neutral
}

// change is one field before and after, in the objects that it changes in.
type change struct {
	// from and to are nil where the field is absent.
	from, to any
	// before and after are the whole objects.
	before, after *unstructured.Unstructured
}

// judge gives a change of a field its class.
type judge struct {
	// about says when which class is given, for people.
	about string
	// hidden values are never shown.
	hidden bool
	// takes says whether a value is one that the field may have: a server refuses
	// any other, which changes nothing then. nil: any value may be.
	takes func(any) bool
	of    func(change) Class
}

// class of a change; Neutral where a value is none that the field may have.
func (j judge) class(c change) Class {
	for _, value := range []any{c.from, c.to} {
		if value != nil && j.takes != nil && !j.takes(value) {
			return Neutral
		}
	}
	return j.of(c)
}

// with is the judge with another decision, which it says more of.
func (j judge) with(more string, of func(change) Class) judge {
	j.about, j.of = j.about+more, of
	return j
}

func always(class Class, about string) judge {
	return judge{about: about, of: func(change) Class { return class }}
}

func isWhole(value any) bool {
	_, text := value.(string)
	return !text && isAmount(value)
}

func isAmount(value any) bool   { return fleet.Amount(value) != nil }
func isSwitch(value any) bool   { _, ok := value.(bool); return ok }
func isText(value any) bool     { _, ok := value.(string); return ok }
func isList(value any) bool     { _, ok := value.([]any); return ok }
func isDuration(value any) bool { return seconds(value) != nil }

// direction is of two amounts; nil is without a bound.
func direction(from, to *big.Rat) Class {
	switch {
	case from == nil && to == nil:
		return Neutral
	case from == nil:
		return Lower
	case to == nil:
		return Raise
	}
	switch from.Cmp(to) {
	case -1:
		return Raise
	case 1:
		return Lower
	}
	return Neutral
}

// amount of a field, and nothing where it is absent.
func amount(value any) *big.Rat {
	if found := fleet.Amount(value); found != nil {
		return found
	}
	return new(big.Rat)
}

var (
	neutral = always(Neutral, "`neutral`")
	// summed is an amount whose absence means none; counted is such a number.
	summed = judge{about: "`raise` when it grows, `lower` when it shrinks", takes: isAmount, of: func(c change) Class {
		return direction(amount(c.from), amount(c.to))
	}}
	counted = judge{about: summed.about, takes: isWhole, of: summed.of}
	// capped is a bound whose absence means that there is none.
	capped = judge{about: "`raise` when it grows or goes, `lower` when it shrinks or comes", takes: isAmount, of: func(c change) Class {
		return direction(fleet.Amount(c.from), fleet.Amount(c.to))
	}}
	// nonZero is a bound of which nothing means that there is none.
	nonZero = judge{about: "`raise` when it grows or becomes 0, which is no bound, `lower` when it shrinks", takes: isWhole, of: func(c change) Class {
		bound := func(value any) *big.Rat {
			if found := amount(value); found.Sign() != 0 {
				return found
			}
			return nil
		}
		return direction(bound(c.from), bound(c.to))
	}}
	lasting = judge{about: "`raise` when it is longer, `lower` when it is shorter", takes: isDuration, of: func(c change) Class {
		return direction(seconds(c.from), seconds(c.to))
	}}
	// granted is a switch that gives something while it is on.
	granted = judge{about: "`raise` when it is turned on, `lower` when it is turned off", takes: isSwitch, of: func(c change) Class {
		return onOff(c, Raise, Lower)
	}}
	// halting is a switch that stops something while it is on.
	halting = judge{about: "`lower` when it is turned on, `raise` when it is turned off", takes: isSwitch, of: func(c change) Class {
		return onOff(c, Lower, Raise)
	}}
	// entries is a set of which each entry gives something.
	entries = judge{about: "`raise` when an entry comes, else `lower`", takes: isList, of: func(c change) Class {
		return setClass(set(c.from), set(c.to))
	}}
	// exempt is a set of which each entry takes something out.
	exempt = judge{about: "`raise` when an entry goes, else `lower`: Git leaves alone what it names", takes: isList, of: func(c change) Class {
		return setClass(set(c.to), set(c.from))
	}}
	// audience is a set of entries that, empty, gives to everybody.
	audience = judge{about: "`raise` when an entry comes, or the last goes: empty means any project; else `lower`", takes: isList, of: func(c change) Class {
		switch from, to := set(c.from), set(c.to); {
		case len(to) == 0:
			return Raise
		case len(from) == 0:
			return Lower
		default:
			return setClass(from, to)
		}
	}}
	// gives is a value that gives something of its own while it is there.
	gives = judge{about: "`raise` when it comes or changes, `lower` when it goes", takes: isText, of: func(c change) Class {
		if c.to == nil || c.to == "" {
			return Lower
		}
		return Raise
	}}
)

// guards is a value that bounds something while it is there.
func guards(about string) judge {
	return judge{about: "`lower` when it comes, `raise` when it changes or goes: " + about, takes: isText, of: func(c change) Class {
		if c.from == nil || c.from == "" {
			return Lower
		}
		return Raise
	}}
}

// kept is destructive once there was a value that something lives by; same gives
// equal texts for values of one meaning.
func kept(same func(string) string, about string) judge {
	return judge{about: "`destructive` when it changes or goes: " + about, takes: isText, of: func(c change) Class {
		if from := text(c.from); from == "" || same(from) == same(text(c.to)) {
			return Neutral
		}
		return Destructive
	}}
}

func asWritten(text string) string { return text }

func onOff(c change, on, off Class) Class {
	switch {
	case c.to == true:
		return on
	case c.from == true:
		return off
	}
	return Neutral
}

func text(value any) string {
	s, _ := value.(string)
	return s
}

func seconds(value any) *big.Rat {
	duration, err := time.ParseDuration(text(value))
	if err != nil {
		return nil
	}
	return new(big.Rat).SetInt64(int64(duration))
}

// setClass is of two sets of which each entry gives something.
func setClass(from, to map[string]bool) Class {
	for entry := range to {
		if !from[entry] {
			return Raise
		}
	}
	if len(to) < len(from) {
		return Lower
	}
	return Neutral
}

// set are the elements of a list, each as JSON.
func set(value any) map[string]bool {
	list, _ := value.([]any)
	found := map[string]bool{}
	for _, element := range list {
		if data, err := json.Marshal(element); err == nil {
			found[string(data)] = true
		}
	}
	return found
}
