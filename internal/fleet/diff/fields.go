package diff

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/fleet"
)

// metadata of each kind that is compared.
var metadata = map[string]judge{
	"metadata.namespace":     always(Neutral, "`neutral` of a HubPool without `spec.hub`, which the hub knows by its name; any other object is then another one"),
	"metadata.labels{}":      neutral,
	"metadata.annotations{}": {about: "`neutral`; its value is shown only where this table names the annotation", hidden: true, of: func(change) Class { return Neutral }},
	"metadata.annotations{" + v1alpha1.AnnotationForceDelete + "}":  forceDelete,
	"metadata.annotations{" + v1alpha1.AnnotationObserve + "}":      observing,
	"metadata.annotations{" + v1alpha1.AnnotationMovedFrom + "}":    neutral,
	"metadata.annotations{" + v1alpha1.AnnotationApprovePrune + "}": neutral,
}

var (
	hubTrust = guards("who passes for the hub")
	minted   = kept(asWritten, "the credential is minted elsewhere, and who reads the old Secret has one that ages")
)

// judges: kind → field → its judge. A field is spelt with [] behind a list, for
// the list as a whole and its elements, and with {} behind a map, for its
// entries. A test holds the table to the definitions.
var judges = map[string]map[string]judge{
	v1alpha1.ExecutorPoolKind: {
		"spec.hubURL":                                   kept(fleet.HubAddress, "the pool goes to another hub, and what waits for it at the old one has no runners"),
		"spec.hubCAPin":                                 hubTrust,
		"spec.hubCABundle":                              hubTrust,
		"spec.poolCredentialSecretRef.name":             kept(asWritten, "which hub pool is served follows from the credential"),
		"spec.poolCredentialSecretRef.key":              kept(asWritten, "which hub pool is served follows from the credential"),
		"spec.hubPool":                                  neutral,
		"spec.minRunners":                               counted,
		"spec.maxRunners":                               maximum,
		"spec.scaleDownDelay":                           lasting,
		"spec.runnerLabels{}":                           neutral,
		"spec.template.image":                           neutral,
		"spec.template.runtimeClassName":                guards("it decides how far runs are kept apart from their node"),
		"spec.template.serviceAccountName":              gives,
		"spec.template.automountServiceAccountToken":    granted,
		"spec.template.resources.requests{}":            summed,
		"spec.template.resources.limits{}":              capped,
		"spec.template.nodeSelector{}":                  neutral,
		"spec.template.tolerations[]":                   entries,
		"spec.template.tolerations[].key":               another,
		"spec.template.tolerations[].operator":          another,
		"spec.template.tolerations[].value":             another,
		"spec.template.tolerations[].effect":            another,
		"spec.template.tolerations[].tolerationSeconds": neutral,
		"spec.template.env[]":                           entries,
		"spec.template.env[].name":                      neutral,
		"spec.template.env[].secretKeyRef.name":         another,
		"spec.template.env[].secretKeyRef.key":          another,
		"spec.persistence.enabled":                      volumes,
		"spec.persistence.size":                         while(summed),
		"spec.persistence.storageClassName":             neutral,
		"spec.persistence.accessModes[]":                neutral,
		"spec.persistence.mounts[]":                     while(entries),
		"spec.persistence.reclaimPolicy":                reclaim,
		"spec.persistence.maxClaims":                    while(claims),
		"spec.persistence.minFree":                      neutral,
	},
	v1alpha1.HubPoolKind: {
		"spec.maxRunners":                     counted,
		"spec.labels{}":                       gives,
		"spec.audience[]":                     audience,
		"spec.owner":                          guards("only projects that the owner may read run"),
		"spec.harness":                        neutral,
		"spec.capabilities{}":                 granted,
		"spec.cordon.reason":                  cordoned,
		"spec.deletionPolicy":                 deletion,
		"spec.hub.url":                        kept(fleet.HubAddress, "the pool stays behind at the hub it is at"),
		"spec.hub.caPin":                      hubTrust,
		"spec.hub.caBundle":                   hubTrust,
		"spec.hub.tokenSecretRef.name":        neutral,
		"spec.hub.tokenSecretRef.key":         neutral,
		"spec.credential.secretRef.namespace": minted,
		"spec.credential.secretRef.name":      minted,
		"spec.credential.secretRef.key":       minted,
		"spec.credential.rotateEvery":         neutral,
	},
	v1alpha1.PoolSyncKind: {
		"spec.interval":                          neutral,
		"spec.retryInterval":                     neutral,
		"spec.timeout":                           neutral,
		"spec.source.git.url":                    applied(gitURLOf, "repository"),
		"spec.source.git.ref.branch":             applied(refOf, "revision"),
		"spec.source.git.ref.tag":                applied(refOf, "revision"),
		"spec.source.git.ref.semver":             applied(refOf, "revision"),
		"spec.source.git.ref.commit":             applied(refOf, "revision"),
		"spec.source.git.secretRef.name":         neutral,
		"spec.source.git.proxySecretRef.name":    neutral,
		"spec.source.git.webhook.forge":          neutral,
		"spec.source.git.webhook.secretRef.name": neutral,
		"spec.source.git.webhook.secretRef.key":  neutral,
		"spec.source.git.verify.mode":            verification,
		"spec.source.git.verify.secretRef.name":  guards("its keys say who may sign"),
		"spec.sourceRef.kind":                    applied(fluxSourceOf, "source"),
		"spec.sourceRef.name":                    applied(fluxSourceOf, "source"),
		"spec.sourceRef.namespace":               applied(fluxSourceOf, "source"),
		"spec.path":                              moving,
		"spec.prune":                             pruning,
		"spec.pruneLimit.count":                  counted,
		"spec.pruneLimit.percent":                nonZero,
		"spec.drift.mode":                        correction,
		"spec.drift.ignore[]":                    exempt,
		"spec.drift.ignore[].paths[]":            exempt,
		"spec.drift.ignore[].target.kind":        neutral,
		"spec.drift.ignore[].target.namespace":   neutral,
		"spec.drift.ignore[].target.name":        neutral,
		"spec.serviceAccountName":                guards("without one the controller's own rights hold"),
		"spec.dependsOn[]":                       neutral,
		"spec.dependsOn[].name":                  neutral,
		"spec.dependsOn[].namespace":             neutral,
		"spec.wait":                              neutral,
		"spec.suspend":                           halting,
		"spec.suspendReason":                     neutral,
		"spec.suspendUntil":                      neutral,
		"spec.substitute.vars{}":                 {about: "`neutral`; its value is not shown", hidden: true, of: func(change) Class { return Neutral }},
		"spec.substitute.from[]":                 neutral,
		"spec.substitute.from[].kind":            neutral,
		"spec.substitute.from[].name":            neutral,
		"spec.substitute.from[].optional":        neutral,
		"spec.hub.url":                           neutral,
		"spec.hub.caPin":                         hubTrust,
		"spec.hub.caBundle":                      hubTrust,
		"spec.hub.tokenSecretRef.name":           neutral,
		"spec.hub.tokenSecretRef.key":            neutral,
	},
}

// FieldClass is one line of the table of classes, for documentation.
type FieldClass struct {
	Kind string
	// Name is the field's path, with [] behind a list and {} behind a map.
	Name string
	// About says when a change of it has which class.
	About string
}

// Fields lists the table of classes by kind and name, the metadata that all
// kinds share under "Every kind".
func Fields() []FieldClass {
	var all []FieldClass
	add := func(kind string, table map[string]judge) {
		for _, name := range slices.Sorted(maps.Keys(table)) {
			all = append(all, FieldClass{Kind: kind, Name: name, About: table[name].about})
		}
	}
	for _, kind := range []string{v1alpha1.ExecutorPoolKind, v1alpha1.HubPoolKind, v1alpha1.PoolSyncKind} {
		add(kind, judges[kind])
	}
	add("Every kind", metadata)
	return all
}

// table is what is known of a kind's fields.
type table struct {
	judges map[string]judge
	// prefixes are the names of what fields lie in.
	prefixes map[string]bool
}

// tables: kind → its table, with the metadata; "" is of every other kind.
var tables = sync.OnceValue(func() map[string]table {
	all := map[string]table{}
	for _, kind := range []string{"", v1alpha1.ExecutorPoolKind, v1alpha1.HubPoolKind, v1alpha1.PoolSyncKind} {
		t := table{judges: maps.Clone(metadata), prefixes: map[string]bool{}}
		maps.Copy(t.judges, judges[kind])
		for name := range t.judges {
			for i := range len(name) {
				switch name[i] {
				case '.', '[', '{':
					t.prefixes[name[:i]] = true
				case ']', '}':
					t.prefixes[name[:i+1]] = true
				}
			}
		}
		all[kind] = t
	}
	return all
})

// field finds the judge of what lies at the tokens of a JSON pointer below what
// name means. A whole list has the list's.
func (t table) field(name string, tokens []string) (judge, bool) {
	if len(tokens) == 0 {
		for _, spelt := range []string{name, name + "[]"} {
			if j, ok := t.judges[spelt]; ok {
				return j, true
			}
		}
		return judge{}, false
	}
	for _, inner := range t.inner(name, tokens[0]) {
		if j, ok := t.field(inner, tokens[1:]); ok {
			return j, true
		}
	}
	return judge{}, false
}

// inner are the names that a token below a name may mean, the closest first.
func (t table) inner(name, token string) []string {
	all := []string{strings.TrimPrefix(name+"."+token, "."), name + "{" + token + "}", name + "{}"}
	if _, err := strconv.Atoi(token); err == nil {
		all = append(all, name+"[]")
	}
	return slices.DeleteFunc(all, func(inner string) bool {
		_, leaf := t.judges[inner]
		return !leaf && !t.prefixes[inner]
	})
}

// tokens splits a JSON pointer.
func tokens(pointer string) []string {
	if pointer == "" {
		return nil
	}
	parts := strings.Split(pointer[1:], "/")
	for i, part := range parts {
		parts[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
	}
	return parts
}
