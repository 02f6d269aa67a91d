package output

import (
	"cmp"
	"net/url"
	"slices"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/schemas"
)

// docsURL is where docs/reference/rules.md is published. A rule's id is the
// anchor of its paragraph.
const docsURL = "https://cloop.dev/docs/reference/rules.md"

// documentRules are the rules of package schemas, which judge one document.
var documentRules = []fleet.Rule{
	{ID: schemas.RuleSyntax, Severity: schemas.SeverityError, Meaning: "A file is not YAML, or a document in it is not an object.",
		Remedy: "correct the text at the line; `yamllint` or an editor shows the same"},
	{ID: schemas.RuleDuplicateKey, Severity: schemas.SeverityError, Meaning: "A key stands twice in one mapping, so that one value is lost.",
		Remedy: "remove one of the two"},
	{ID: schemas.RuleTypeMeta, Severity: schemas.SeverityError, Meaning: "A document has no apiVersion or no kind.",
		Remedy: "add them, such as apiVersion: cloop.dev/v1alpha1 and kind: ExecutorPool"},
	{ID: schemas.RuleUnknownKind, Severity: schemas.SeverityError, Meaning: "cloop.dev has no such kind or version.",
		Remedy: "use ExecutorPool, HubPool or PoolSync of cloop.dev/v1alpha1"},
	{ID: schemas.RuleUnknownField, Severity: schemas.SeverityError, Meaning: "A field is not one of the kind's. An API server would drop it without a word.",
		Remedy: "correct its name or indentation, or remove it"},
	{ID: schemas.RuleMetadata, Severity: schemas.SeverityError, Meaning: "A name, label or annotation is not what Kubernetes takes.",
		Remedy: "correct it as the message says"},
	{ID: schemas.RuleSchema, Severity: schemas.SeverityError, Meaning: "A value has the wrong type or is out of bounds, or a required field is missing.",
		Remedy: "correct the value; the reference page of the kind has its bounds"},
	{ID: schemas.RuleCEL, Severity: schemas.SeverityError, Meaning: "Values that have to agree with each other do not.",
		Remedy: "change one of the fields that the message names"},
}

// Rules lists every rule that a check applies by itself, by id.
func Rules() []fleet.Rule {
	rules := append(fleet.Rules(), documentRules...)
	slices.SortFunc(rules, func(a, b fleet.Rule) int { return cmp.Compare(a.ID, b.ID) })
	return rules
}

// helpURL is where a rule is explained. It is fit for the target of a Markdown
// link, whatever the id.
func helpURL(id string) string { return docsURL + "#" + url.PathEscape(id) }
