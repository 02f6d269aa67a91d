package output

import (
	"net/url"
	"sync"

	"cloop.dev/cloop/internal/fleet"
)

const (
	// docsURL is where docs/reference/rules.md is published. A rule's id is the
	// anchor of its section.
	docsURL = "https://cloop.dev/docs/reference/rules.md"
	// ownAnchor is the section on rules of a repository's own.
	ownAnchor = "rules-of-the-repository"
)

// known: id → one of cloop's own rules.
var known = sync.OnceValue(func() map[string]fleet.Rule {
	all := map[string]fleet.Rule{}
	for _, rule := range fleet.Rules() {
		all[rule.ID] = rule
	}
	return all
})

// helpURL is where a rule is explained. It is fit for the target of a Markdown
// link, whatever the id.
func helpURL(id string) string {
	if _, ok := known()[id]; !ok {
		id = ownAnchor
	}
	return docsURL + "#" + url.PathEscape(id)
}
