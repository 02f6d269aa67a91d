package fleet

import (
	"cmp"
	"slices"

	"cloop.dev/cloop/internal/fleet/policy"
	"cloop.dev/cloop/schemas"
)

// Rules that this package reports beside those of package schemas. They are
// stable: SARIF and scripts use them.
const (
	// RuleBuild is a root that kustomize cannot render.
	RuleBuild = "build"
	// RuleMissingReference is an entry of a kustomization that is not there.
	RuleMissingReference = "missing-reference"
	// RuleRemoteReference is an entry of a kustomization that is elsewhere.
	RuleRemoteReference = "remote-reference"
	// RuleEmptyRoot is a kustomization, or a path of a PoolSync, that renders nothing.
	RuleEmptyRoot = "empty-root"
	// RuleTooLarge is a root beyond the bounds of what is rendered.
	RuleTooLarge = "too-large"
	// RuleUnresolvedVariable is a variable without a value and without a default.
	RuleUnresolvedVariable = "unresolved-variable"
	// RuleSubstitution is an object whose variables cannot be replaced.
	RuleSubstitution = "substitution"
	// RuleKindNotApplied is an object that no PoolSync applies.
	RuleKindNotApplied = "kind-not-applied"
	// RuleNullApplied is a null that a server-side apply refuses.
	RuleNullApplied = "null-applied"
	// RuleDuplicateObject is one object that a root renders twice.
	RuleDuplicateObject = "duplicate-object"
	// RuleDuplicateHubPool is one hub pool that is defined twice.
	RuleDuplicateHubPool = "duplicate-hubpool"
	// RuleDuplicatePool is two ExecutorPools of a root that serve one hub pool.
	RuleDuplicatePool = "duplicate-pool"
	// RuleMovedFromTwice is an object that says that it was one that another was.
	RuleMovedFromTwice = "moved-from-twice"
	// RulePoolWithoutHubPool is an ExecutorPool whose hub pool nothing defines.
	RulePoolWithoutHubPool = "pool-without-hubpool"
	// RuleHubPoolWithoutPool is a hub pool that no ExecutorPool serves.
	RuleHubPoolWithoutPool = "hubpool-without-pool"
	// RuleMaximumAboveHub is a cluster that may start more than the hub allows.
	RuleMaximumAboveHub = "maximum-above-hub"
	// RuleLabelsDisagree is one label with two values on the two halves.
	RuleLabelsDisagree = "labels-disagree"
	// RuleHubURLDisagrees is a pool whose halves name two hubs.
	RuleHubURLDisagrees = "hub-url-disagrees"
	// RuleHubURLsDiffer is a hub pool whose clusters name two hubs.
	RuleHubURLsDiffer = "hub-urls-differ"
	// RuleObjectInTwoSyncs is one object that two PoolSyncs of a cluster apply.
	RuleObjectInTwoSyncs = "object-in-two-syncs"
	// RulePathNotFound is a PoolSync with a path that is not in its repository.
	RulePathNotFound = "path-not-found"
	// RulePrincipalName is an audience or owner by which the hub can call nobody.
	RulePrincipalName = "principal-name"
	// RuleUnrendered is a field of a Kustomization of Flux, or of an Application, that
	// changes what it applies, and that is not applied to what is checked.
	RuleUnrendered = "unrendered"
	// RuleUnlisted is a file with documents that no kustomization lists.
	RuleUnlisted = "unlisted"
)

// Rule says how much a broken rule weighs and what to do about it.
type Rule struct {
	// ID of the rule.
	ID string `json:"id"`
	// Severity that its problems have.
	Severity schemas.Severity `json:"severity"`
	// Meaning is a sentence that holds when the rule is broken.
	Meaning string `json:"meaning"`
	// Remedy says what to do.
	Remedy string `json:"remedy"`
	// Fixed rules are the verdict of whoever applies the document: an API server,
	// the hub, kustomize. A repository can neither ignore them nor give them
	// another severity.
	Fixed bool `json:"fixed,omitempty"`
	// File and Line have a rule of the repository's own; see package policy.
	File string `json:"file,omitempty"`
	Line int    `json:"line,omitempty"`
}

// rules: id → rule.
var rules = map[string]Rule{
	RuleBuild: {Severity: schemas.SeverityError, Fixed: true, Meaning: "The root cannot be rendered.",
		Remedy: "fix what the message names; `kubectl kustomize` shows the same"},
	RuleMissingReference: {Severity: schemas.SeverityError, Fixed: true, Meaning: "A kustomization refers to a file or directory that is not in the repository, or that Flux, which applies it, leaves out of what it fetches.",
		Remedy: "commit it, or remove the entry"},
	RuleRemoteReference: {Severity: schemas.SeverityError, Fixed: true, Meaning: "A kustomization refers to something outside the repository.",
		Remedy: "copy what it refers to into the repository, where it is reviewed"},
	RuleEmptyRoot: {Severity: schemas.SeverityError, Fixed: true, Meaning: "A kustomization, or the path of a PoolSync, renders nothing. Hub and PoolSync take that for an accident and change nothing.",
		Remedy: "list its resources; to remove the last pool, revoke it at the hub and delete the PoolSync"},
	RuleTooLarge: {Severity: schemas.SeverityError, Fixed: true, Meaning: "The root is larger or deeper than what is rendered.",
		Remedy: "split it, or write it flatter"},
	RuleUnresolvedVariable: {Severity: schemas.SeverityError, Fixed: true, Meaning: "A variable has neither a value nor a default. What it stands for cannot be checked, and no PoolSync applies it.",
		Remedy: "set it in spec.substitute of the PoolSync, or spec.postBuild.substitute of the Kustomization, that applies this, give --substitute FILE, or write ${NAME:=default}; $${NAME} is the text itself"},
	RuleSubstitution: {Severity: schemas.SeverityError, Fixed: true, Meaning: "The variables of an object cannot be replaced, or what they make of it is no object.",
		Remedy: "write variables as ${NAME}, and $${NAME} for the text itself; the annotation cloop.dev/substitute: disabled leaves an object as it is"},
	RuleKindNotApplied: {Severity: schemas.SeverityWarning, Meaning: "A PoolSync refuses an object of this kind.",
		Remedy: "apply it by another way, or use a Flux Kustomization or Argo CD for this root"},
	RuleNullApplied: {Severity: schemas.SeverityError, Fixed: true, Meaning: "A field of an object of cloop.dev is null, and what applies it does that on the server's side, where an API server takes a null for a value of the wrong type: Flux, and Argo CD with ServerSideApply=true. Flux then applies nothing of the Kustomization. What a PoolSync, or `kubectl apply` without --server-side, applies may have nulls.",
		Remedy: "remove the field, or write a value behind it"},
	RuleDuplicateObject: {Severity: schemas.SeverityError, Fixed: true, Meaning: "One object is defined twice in a root.",
		Remedy: "remove one of the two"},
	RuleDuplicateHubPool: {Severity: schemas.SeverityError, Fixed: true, Meaning: "One hub pool is defined twice; the namespace means nothing to the hub.",
		Remedy: "remove or rename one of the two"},
	RuleDuplicatePool: {Severity: schemas.SeverityError, Meaning: "Two ExecutorPools of one cluster serve one hub pool.",
		Remedy: "remove one of them, or give it another spec.hubPool"},
	RuleMovedFromTwice: {Severity: schemas.SeverityWarning, Meaning: "Two objects of a root say, by the annotation cloop.dev/moved-from, that they were the same one. At most one is taken for it under a new name, and keeps what it had at the hub; the other is new. Where what they name is still there nothing is renamed, and nothing said.",
		Remedy: "take the annotation out of the one whose rename is over, or that is another pool"},
	RulePoolWithoutHubPool: {Severity: schemas.SeverityError, Meaning: "No HubPool in the repository defines the hub pool that an ExecutorPool serves.",
		Remedy: "add a HubPool of that name, or correct spec.hubPool"},
	RuleHubPoolWithoutPool: {Severity: schemas.SeverityWarning, Meaning: "No ExecutorPool in the repository serves a hub pool: its runs wait for ever.",
		Remedy: "add an ExecutorPool to a cluster's overlay, or remove the HubPool"},
	RuleMaximumAboveHub: {Severity: schemas.SeverityWarning, Meaning: "A cluster may start more runners than its hub pool allows; the hub's maximum counts.",
		Remedy: "lower the ExecutorPool's maxRunners, or raise the HubPool's"},
	RuleLabelsDisagree: {Severity: schemas.SeverityWarning, Meaning: "A runner label has another value than the hub pool's label; only the hub's counts for grants.",
		Remedy: "give both the same value, or remove the runner label"},
	RuleHubURLDisagrees: {Severity: schemas.SeverityError, Meaning: "An ExecutorPool connects to another hub than the one that its HubPool is pushed to, where nobody knows its credential.",
		Remedy: "write the same address in spec.hubURL and in the HubPool's spec.hub.url"},
	RuleHubURLsDiffer: {Severity: schemas.SeverityWarning, Meaning: "Clusters that serve one hub pool name different hubs. Only where several hubs sync the repository does each have such a pool.",
		Remedy: "write the same address in both, or ignore it with the reason that there are several hubs"},
	RuleObjectInTwoSyncs: {Severity: schemas.SeverityError, Meaning: "Two PoolSyncs, or two Kustomizations of Flux, of one cluster apply one object. Each undoes what the other does.",
		Remedy: "leave it in one of the two paths"},
	RulePathNotFound: {Severity: schemas.SeverityWarning, Meaning: "The path of a PoolSync, or of a Kustomization of Flux, is not in the repository, or Flux leaves all of it out of what it fetches: it applies nothing.",
		Remedy: "correct spec.path, or commit what it names; ignore it with the reason where it reads another repository"},
	RulePrincipalName: {Severity: schemas.SeverityError, Meaning: "No user, group or role of a hub can have a name that an audience or an owner gives: nobody is meant by it.",
		Remedy: "write one user:NAME, group:NAME or role:NAME an entry; names have letters, digits and . _ @ + -, and those of roles are lower case with -"},
	RuleUnrendered: {Severity: schemas.SeverityWarning, Meaning: "A Kustomization of Flux that applies the whole repository, or an Application of Argo CD, changes what it applies by fields of its own, and its path has no kustomization. What is checked and compared is what lies there, without them.",
		Remedy: "give it a path of its own, or add a kustomization.yaml that lists the files of the path; or ignore it with the reason that it changes nothing of a pool"},
	RuleUnlisted: {Severity: schemas.SeverityWarning, Meaning: "A file with documents of cloop.dev lies in a directory with a kustomization, or below one, and no kustomization lists it: nothing applies it.",
		Remedy: "add it to the resources of the kustomization, or remove it"},
	policy.RuleConfig: {Severity: schemas.SeverityError, Fixed: true, Meaning: "A file of .cloop, or a comment that turns a rule off, says what cannot be meant.",
		Remedy: "correct it at the line"},
	policy.RuleUnusedIgnore: {Severity: schemas.SeverityWarning, Meaning: "An ignore covers no finding: what it was for is repaired, or it stands at the wrong place.",
		Remedy: "remove it, or move it to the line that it is meant for"},
	policy.RuleUnusedRule: {Severity: schemas.SeverityWarning, Meaning: "A rule of the repository's own is about no object: its match names a kind, root or name that is not there.",
		Remedy: "correct its match, or remove it; ignore it with the reason where the object is still to come"},
	policy.RuleExpiredIgnore: {Severity: schemas.SeverityWarning, Meaning: "The last day of an ignore is over. What it covered counts again.",
		Remedy: "do what it was waiting for and remove it, or give it another day"},

	// Those of package schemas, which judge one document.
	schemas.RuleSyntax: {Severity: schemas.SeverityError, Fixed: true, Meaning: "A file is not YAML, or a document in it is not an object.",
		Remedy: "correct the text at the line; `yamllint` or an editor shows the same"},
	schemas.RuleDuplicateKey: {Severity: schemas.SeverityError, Fixed: true, Meaning: "A key stands twice in one mapping, so that one value is lost.",
		Remedy: "remove one of the two"},
	schemas.RuleTypeMeta: {Severity: schemas.SeverityError, Fixed: true, Meaning: "A document has no apiVersion or no kind.",
		Remedy: "add them, such as apiVersion: cloop.dev/v1alpha1 and kind: ExecutorPool"},
	schemas.RuleUnknownKind: {Severity: schemas.SeverityError, Fixed: true, Meaning: "cloop.dev has no such kind or version.",
		Remedy: "use ExecutorPool, HubPool or PoolSync of cloop.dev/v1alpha1"},
	schemas.RuleUnknownField: {Severity: schemas.SeverityError, Fixed: true, Meaning: "A field is not one of the kind's. An API server would drop it without a word.",
		Remedy: "correct its name or indentation, or remove it"},
	schemas.RuleMetadata: {Severity: schemas.SeverityError, Fixed: true, Meaning: "A name, label or annotation is not what Kubernetes takes, or a field of metadata is the cluster's.",
		Remedy: "correct it as the message says"},
	schemas.RuleSchema: {Severity: schemas.SeverityError, Fixed: true, Meaning: "A value has the wrong type or is out of bounds, or a required field is missing.",
		Remedy: "correct the value; the reference page of the kind has its bounds"},
	schemas.RuleCEL: {Severity: schemas.SeverityError, Fixed: true, Meaning: "Values that have to agree with each other do not.",
		Remedy: "change one of the fields that the message names"},
}

// Rules lists every rule that a check applies by itself, by id.
func Rules() []Rule {
	list := make([]Rule, 0, len(rules))
	for id, rule := range rules {
		rule.ID = id
		list = append(list, rule)
	}
	slices.SortFunc(list, func(a, b Rule) int { return cmp.Compare(a.ID, b.ID) })
	return list
}

// broken is a problem with the rule's severity and remedy.
func broken(rule, message string) schemas.Problem {
	return schemas.Problem{Rule: rule, Severity: rules[rule].Severity, Message: message, Hint: rules[rule].Remedy}
}
