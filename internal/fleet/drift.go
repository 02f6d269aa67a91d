package fleet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/secret"
	"cloop.dev/cloop/schemas"
)

// DriftInput is what was read of the three surfaces. What was not read is nil:
// nothing is then said about it, except in the report's notes.
type DriftInput struct {
	Clusters []ClusterSurface
	// Hub is nil where the hub was not asked.
	Hub *HubSurface
	// Missing says who takes what of this repository that what is compared does not have:
	// they are among Elsewhere.
	Missing []string
}

// ClusterSurface is what Git wants of one cluster and what the cluster has.
type ClusterSurface struct {
	// Name of the cluster for people, such as a kubeconfig context.
	Name string
	// Revision of Git that Git was rendered from.
	Revision string
	// Git is what the cluster's overlay renders; nil: not known.
	Git []Rendered
	// Hidden says what the account may not read that Git depends on, which is not
	// known then.
	Hidden []string
	// Live are the cluster's ExecutorPools.
	Live []unstructured.Unstructured
	// Syncs are the cluster's PoolSyncs; they say what was applied and since
	// when it differs.
	Syncs []v1alpha1.PoolSync
	// Foreign is what applies ExecutorPools of the cluster in place of a PoolSync.
	Foreign []ForeignSync
	// Variables: namespace and name of a PoolSync, with a slash → what it replaces
	// variables by; those that replace none are not there.
	Variables map[string]*Variables
	// Unserved: namespace and name of a PoolSync, with a slash → why nobody acts
	// on it; those that somebody acts on are not there.
	Unserved map[string]string
	// Elsewhere: "PoolSync NAMESPACE/NAME", or a ForeignReference → what it applies of
	// another repository, or of another revision. It is neither of Syncs nor of Foreign,
	// and what it applies is not compared with Git.
	Elsewhere map[string]string
}

// HubSurface is what Git wants of the hub and what the hub has.
type HubSurface struct {
	// Revision of Git that Git was rendered from.
	Revision string
	// Git is what the path of the hub's half renders; nil: not known.
	Git   []Rendered
	Pools []hubv1.Pool
	Syncs []hubv1.Sync
	// Elsewhere: name of a sync → what it applies of another repository, or of another
	// revision. It is none of Syncs, and its pools are not compared with Git.
	Elsewhere map[string]string
}

// Surfaces that a FieldDrift is between.
const (
	SurfaceGitCluster = "git-cluster"
	SurfaceGitHub     = "git-hub"
	SurfaceHubCluster = "hub-cluster"
)

// Causes that only this report can have, beside those of v1alpha1.
const (
	// CauseBeingDeleted is an object that the cluster has for as long as its
	// runners need to finish, whatever Git wants.
	CauseBeingDeleted = "BeingDeleted"
	// CauseNotPushed is a difference that what is only in this clone makes.
	CauseNotPushed = "NotPushed"
	// CauseCloneBehind is a difference to a commit that is not the newest one.
	CauseCloneBehind = "CloneBehind"
	// CauseUnserved is a commit that no controller is there to apply.
	CauseUnserved = "Unserved"
)

// DriftReport says for each pool where its surfaces disagree.
type DriftReport struct {
	// Pools that were compared, by name and cluster, those without drift too.
	Pools []PoolDrift `json:"pools"`
	// Notes say what could not be compared and why.
	Notes []string `json:"notes,omitempty"`
	// Hidden says that something could not be compared, because it may not be read or is
	// not in what is compared: without a difference the surfaces may differ all the same.
	Hidden bool `json:"hidden,omitempty"`
	// Elsewhere says that all that hub and clusters follow is of other repositories, so
	// that nothing was compared with what Git wants.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// PoolDrift is one hub pool, in one cluster or at the hub.
type PoolDrift struct {
	// Pool is the hub pool's name.
	Pool string `json:"pool"`
	// Cluster is empty for what is between Git and the hub.
	Cluster string `json:"cluster,omitempty"`
	// AppliedBy is what applies the cluster's half in place of a PoolSync, as "KIND
	// NAMESPACE/NAME", and Revision what that has applied, as its status has it.
	AppliedBy string `json:"appliedBy,omitempty"`
	Revision  string `json:"revision,omitempty"`
	// Fields that differ; none: the surfaces agree.
	Fields []FieldDrift `json:"fields"`
}

// FieldDrift is one field on which two surfaces disagree.
type FieldDrift struct {
	// Surface is git-cluster, git-hub or hub-cluster.
	Surface string `json:"surface"`
	// Kind, Namespace and Name of the object.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	// Path is a JSON pointer, empty for a whole object.
	Path string `json:"path,omitempty"`
	// Git, Hub and Cluster are the values; nil where absent or not compared.
	Git     any `json:"git"`
	Hub     any `json:"hub"`
	Cluster any `json:"cluster"`
	// Cause says what made the difference, as a Drift… constant of v1alpha1 or a
	// Cause… of this package does: ClusterEdited, for one.
	Cause string `json:"cause"`
	// Manager wrote the value that differs, where that is known.
	Manager string `json:"manager,omitempty"`
	// Since is when the difference began, where that is known.
	Since *time.Time `json:"since,omitempty"`
	// Outcome says what becomes of it, as an Outcome… of v1alpha1 does (Corrected, for
	// one), and Message why.
	Outcome string `json:"outcome"`
	Message string `json:"message"`
}

// Any says whether there is drift. What is still converging counts: the
// surfaces do not agree now.
func (r *DriftReport) Any() bool {
	return slices.ContainsFunc(r.Pools, func(p PoolDrift) bool { return len(p.Fields) > 0 })
}

// key tells the fields of a report apart.
func (f *FieldDrift) key(cluster string) string {
	return strings.Join([]string{cluster, f.Surface, f.Kind, f.Namespace, f.Name, f.Path}, "|")
}

// Unpublished tells apart what a clone makes differ and what differed before,
// given the report of the newest commit that is pushed; nil: there is none. A
// difference to that one too has that one's cause, since hub and clusters can
// have no other.
func (r *DriftReport) Unpublished(published *DriftReport) {
	before := map[string]*FieldDrift{}
	if published != nil {
		for i := range published.Pools {
			for j := range published.Pools[i].Fields {
				field := &published.Pools[i].Fields[j]
				before[field.key(published.Pools[i].Cluster)] = field
			}
		}
	}
	for i := range r.Pools {
		for j := range r.Pools[i].Fields {
			field := &r.Pools[i].Fields[j]
			same := before[field.key(r.Pools[i].Cluster)]
			switch {
			case same != nil && canonical(same.Git) == canonical(field.Git):
				field.Cause, field.Outcome, field.Message = same.Cause, same.Outcome, same.Message
			case field.Surface != SurfaceHubCluster || field.Cause != v1alpha1.DriftRuleBroken:
				field.explain(CauseNotPushed)
			}
		}
	}
}

// Outdated says of every difference that a newer commit may explain that this
// clone does not have that commit.
func (r *DriftReport) Outdated() {
	for i := range r.Pools {
		for j := range r.Pools[i].Fields {
			switch field := &r.Pools[i].Fields[j]; field.Cause {
			case v1alpha1.DriftConverging, v1alpha1.DriftCommitNotApplied, CauseUnserved:
				field.explain(CauseCloneBehind)
			}
		}
	}
}

// Drift compares the surfaces. It decides from its input alone.
func Drift(in DriftInput) *DriftReport {
	d := &drift{report: &DriftReport{Pools: []PoolDrift{}}, in: in, entries: map[poolAt]int{}}
	if in.Hub != nil {
		d.hub()
	}
	for i := range in.Clusters {
		d.cluster(&in.Clusters[i])
	}
	d.bothEdited()
	d.report.Elsewhere = in.elsewhere()
	d.report.Hidden = d.report.Hidden || len(in.Missing) > 0
	slices.SortStableFunc(d.report.Pools, func(a, b PoolDrift) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Cluster, b.Cluster))
	})
	for _, pool := range d.report.Pools {
		for i := range pool.Fields {
			field := &pool.Fields[i]
			if field.Outcome == "" {
				field.explain(field.Cause)
			}
			field.Git, field.Hub, field.Cluster = secret.RedactValue(field.Git), secret.RedactValue(field.Hub), secret.RedactValue(field.Cluster)
		}
		slices.SortStableFunc(pool.Fields, func(a, b FieldDrift) int {
			return cmp.Or(cmp.Compare(a.Surface, b.Surface), cmp.Compare(a.Namespace, b.Namespace),
				cmp.Compare(a.Name, b.Name), cmp.Compare(a.Path, b.Path))
		})
	}
	return d.report
}

// Compares says whether Git is known of any surface.
func (in *DriftInput) Compares() bool {
	return in.Hub != nil && in.Hub.Git != nil || slices.ContainsFunc(in.Clusters, func(c ClusterSurface) bool { return c.Git != nil })
}

// elsewhere says whether Git was left out because other repositories are followed, and
// this one by nobody.
func (in *DriftInput) elsewhere() (others bool) {
	if in.Compares() {
		return false
	}
	others = in.Hub != nil && len(in.Hub.Elsewhere) > 0
	for i := range in.Clusters {
		others = others || len(in.Clusters[i].Elsewhere) > 0
	}
	return others
}

// leftOut notes what follows another repository; kind is what each is, where its name
// does not say so.
func (d *drift) leftOut(kind, where string, elsewhere map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(elsewhere)) {
		d.note("%s%s of %s applies %s, so what it has there was not compared with Git", kind, name, where, secret.Redact(elsewhere[name]))
	}
}

// drift gathers a report.
type drift struct {
	in     DriftInput
	report *DriftReport
	// entries: pool and cluster → its place in the report.
	entries map[poolAt]int
	// hubNamed and hubByID are the hub's pools that are not revoked, the first of a
	// name.
	hubNamed, hubByID map[string]*hubv1.Pool
	// halves: hub pool → the first HubPool of Git.
	halves map[string]*unstructured.Unstructured
}

type poolAt struct{ pool, cluster string }

// index finds the hub's pools, and Git's half of them, without a look at all of them
// for each.
func (d *drift) index() {
	d.hubNamed, d.hubByID, d.halves = map[string]*hubv1.Pool{}, map[string]*hubv1.Pool{}, map[string]*unstructured.Unstructured{}
	for i := range d.in.Hub.Pools {
		have := &d.in.Hub.Pools[i]
		if have.State == hubv1.PoolRevoked {
			continue
		}
		if d.hubNamed[have.Name] == nil {
			d.hubNamed[have.Name] = have
		}
		d.hubByID[have.ID] = have
	}
	for _, wanted := range HubPools(d.in.Hub.Git) {
		if name := HubPoolName(wanted.Object); d.halves[name] == nil {
			d.halves[name] = wanted.Object
		}
	}
}

func (d *drift) note(format string, args ...any) {
	d.report.Notes = append(d.report.Notes, fmt.Sprintf(format, args...))
}

// pool returns the entry of a pool in a cluster, which it makes where it is not
// there. It is valid until the next call.
func (d *drift) pool(name, cluster string) *PoolDrift {
	at, known := d.entries[poolAt{name, cluster}]
	if !known {
		at = len(d.report.Pools)
		d.entries[poolAt{name, cluster}] = at
		d.report.Pools = append(d.report.Pools, PoolDrift{Pool: name, Cluster: cluster, Fields: []FieldDrift{}})
	}
	return &d.report.Pools[at]
}

func (d *drift) add(pool, cluster string, fields ...FieldDrift) {
	entry := d.pool(pool, cluster)
	entry.Fields = append(entry.Fields, fields...)
}

// hub compares Git's half with the hub's.
func (d *drift) hub() {
	hub := d.in.Hub
	d.index()
	d.leftOut("sync ", "the hub", hub.Elsewhere)
	if hub.Git == nil && len(hub.Elsewhere) > 0 && len(hub.Syncs) == 0 {
		return
	}
	if hub.Git == nil {
		d.note("what Git wants of the hub is not known, so Git and hub were not compared")
		return
	}
	known := map[string]bool{}
	for _, wanted := range HubPools(hub.Git) {
		name := HubPoolName(wanted.Object)
		known[name] = true
		have := d.hubNamed[name]
		typed, err := schemas.As[v1alpha1.HubPool](wanted.Object)
		if err != nil {
			d.note("%s:%d: %v", wanted.SourcePath, wanted.Line, err)
			continue
		}
		d.hubPool(name, typed, have)
	}
	for i := range hub.Pools {
		have := &hub.Pools[i]
		switch {
		case known[have.Name] || have.State == hubv1.PoolRevoked:
		case have.Source != nil && (hub.Elsewhere[have.Source.Sync] != "" || d.ofCluster(have)):
		case have.Source == nil:
			d.note("hub pool %s is not in Git", have.Name)
		default:
			d.add(have.Name, "", FieldDrift{Surface: SurfaceGitHub, Kind: v1alpha1.HubPoolKind, Name: have.Name,
				Hub: have.PoolDefinition, Cause: hub.cause(have)})
		}
	}
}

func (d *drift) hubPool(name string, wanted *v1alpha1.HubPool, have *hubv1.Pool) {
	field := FieldDrift{Surface: SurfaceGitHub, Kind: v1alpha1.HubPoolKind, Namespace: wanted.Namespace, Name: wanted.Name}
	d.pool(name, "")
	definition := DefinitionOf(wanted)
	if have == nil {
		field.Git, field.Cause = definition, d.in.Hub.cause(nil)
		field.observed(wanted)
		d.add(name, "", field)
		return
	}
	for _, diff := range CompareHub(definition, have.PoolDefinition) {
		at := field
		at.Path, at.Git, at.Hub, at.Cause = diff.Path, diff.Want, diff.Have, d.in.Hub.cause(have)
		at.overridden(have)
		at.observed(wanted)
		d.add(name, "", at)
	}
	if wanted.Spec.Cordon != nil && (have.Cordon == nil || have.Cordon.Reason != wanted.Spec.Cordon.Reason) {
		field.Path, field.Git, field.Hub, field.Cause = "/spec/cordon/reason", wanted.Spec.Cordon.Reason, nil, d.in.Hub.cause(have)
		if have.Cordon != nil {
			field.Hub, field.Manager, field.Since = have.Cordon.Reason, have.Cordon.By, &have.Cordon.At
		}
		field.overridden(have)
		field.observed(wanted)
		d.add(name, "", field)
	}
}

// ofCluster adds a pool that a HubPool of a cluster defines, and says whether it is
// one: what Git says of it is in no half that the hub reads, but the hub knows.
func (d *drift) ofCluster(have *hubv1.Pool) bool {
	_, namespace, name, is := have.Source.Cluster()
	if !is {
		return false
	}
	d.pool(have.Name, "")
	for i := range have.Drift {
		field := FieldDrift{Surface: SurfaceGitHub, Kind: v1alpha1.HubPoolKind, Namespace: namespace, Name: name, Path: have.Drift[i].Path}
		field.Git, field.Hub = fromJSON(have.Drift[i].Git), fromJSON(have.Drift[i].Hub)
		field.overridden(have)
		d.add(have.Name, "", field)
	}
	return true
}

// fromJSON is a value as the hub shows it; nil for none.
func fromJSON(text string) any {
	var value any
	if text == "" || json.Unmarshal([]byte(text), &value) != nil {
		return nil
	}
	return value
}

// overridden says of a field that somebody made differ, at the hub and on record,
// who and since when.
func (f *FieldDrift) overridden(have *hubv1.Pool) {
	for i := range have.Drift {
		if d := &have.Drift[i]; d.Path == f.Path {
			f.Cause, f.Manager, f.Since = d.Cause, d.By, &d.Since
			f.Outcome, f.Message = d.Outcome, d.Message
			if d.Until != nil {
				f.Message = fmt.Sprintf("until %s: %s", d.Until.UTC().Format(time.RFC3339), d.Message)
			}
		}
	}
}

// cause says why the hub differs from Git: somebody changed it there, it has
// not applied the revision yet, or it cannot.
func (h *HubSurface) cause(have *hubv1.Pool) string {
	if have != nil && have.Source != nil && sameRevision(have.Source.Revision, h.Revision) {
		return v1alpha1.DriftHubEdited
	}
	cause := v1alpha1.DriftCommitNotApplied
	for i := range h.Syncs {
		sync := &h.Syncs[i]
		if have != nil && have.Source != nil && have.Source.Sync != sync.Name {
			continue
		}
		switch {
		case sync.State == hubv1.SyncFailed:
			return v1alpha1.DriftCommitNotApplied
		case !sameRevision(sync.LastAppliedRevision, h.Revision):
			cause = v1alpha1.DriftConverging
		case have != nil:
			return v1alpha1.DriftHubEdited
		}
	}
	return cause
}
