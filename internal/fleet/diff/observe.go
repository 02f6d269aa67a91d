package diff

import (
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// untouched says that a change of a document does nothing to what there is: nothing
// removes what it does not have any more or, after it or where it goes before it, the
// document is only compared.
func (o *Object) untouched() bool {
	if o.stays {
		return true
	}
	if o.after == nil {
		return fleet.ToObserve(o.before)
	}
	return fleet.ToObserve(o.after)
}

// observe says what a change does to a document that is, was or becomes only
// compared. Any other keeps the class and the meaning that it has.
func (o *Object) observe() {
	was, now := o.before != nil && fleet.ToObserve(o.before), o.after != nil && fleet.ToObserve(o.after)
	have := "the cluster has"
	if o.Kind == v1alpha1.HubPoolKind && o.either().ours {
		have = "the hub has"
	}
	switch {
	case now && o.before != nil && !was:
		o.quiet(Lower, "Git only compares it from then on: what "+have+" stays as it was applied last, is not put back where somebody changes it, and outlives the document")
	case now || was && o.after == nil:
		o.quiet(Neutral, "nothing happens to what "+have+": the document is only compared")
	case was:
		o.Class = gravest(o.Class, Raise)
		o.Meaning = "it is applied from then on, and not only compared: what " + have + " becomes what the document says, whatever it is now; `cloop fleet drift` shows in what the two differ"
	}
}

// quiet is for a change of which no field is applied.
func (o *Object) quiet(class Class, meaning string) {
	for i := range o.Fields {
		o.Fields[i].Class = Neutral
	}
	o.Class, o.Meaning = class, meaning
}
