package diff_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/internal/fleet/diff"
)

// leaf is a field that the random documents have, as a path of names, and two
// values of it that differ.
type leaf struct {
	path     []string
	one, two any
}

// scalars are leaves of each kind: all that is no part of a list, with values of
// which none is the default.
var scalars = map[string][]leaf{
	"ExecutorPool": {
		{[]string{"hubURL"}, "https://a", "https://b"}, {[]string{"hubCAPin"}, "sha256:a", "sha256:b"}, {[]string{"hubCABundle"}, "a", "b"},
		{[]string{"poolCredentialSecretRef", "name"}, "a", "b"}, {[]string{"poolCredentialSecretRef", "key"}, "a", "b"}, {[]string{"hubPool"}, "a", "b"},
		{[]string{"minRunners"}, int64(1), int64(2)}, {[]string{"maxRunners"}, int64(7), int64(9)}, {[]string{"scaleDownDelay"}, "1m", "2m"},
		{[]string{"runnerLabels", "a/b~c"}, "x", "y"}, {[]string{"template", "image"}, "a", "b"}, {[]string{"template", "runtimeClassName"}, "a", "b"},
		{[]string{"template", "serviceAccountName"}, "a", "b"}, {[]string{"template", "resources", "requests", "cpu"}, "1", "2"},
		{[]string{"template", "resources", "limits", "memory"}, "1Gi", "2Gi"}, {[]string{"template", "nodeSelector", "a"}, "x", "y"},
		{[]string{"persistence", "size"}, "1Gi", "2Gi"}, {[]string{"persistence", "storageClassName"}, "a", "b"},
		{[]string{"persistence", "maxClaims"}, int64(10), int64(20)}, {[]string{"persistence", "minFree"}, "2Gi", "3Gi"},
	},
	"HubPool": {
		{[]string{"maxRunners"}, int64(7), int64(9)}, {[]string{"labels", "a"}, "x", "y"}, {[]string{"owner"}, "user:a", "user:b"}, {[]string{"harness"}, "a", "b"},
		{[]string{"capabilities", "a"}, true, false}, {[]string{"cordon", "reason"}, "a", "b"}, {[]string{"hub", "url"}, "https://a", "https://b"},
		{[]string{"credential", "secretRef", "name"}, "a", "b"}, {[]string{"credential", "rotateEvery"}, "1h", "2h"},
	},
	"PoolSync": {
		{[]string{"interval"}, "1m", "2m"}, {[]string{"path"}, "a", "b"}, {[]string{"source", "git", "url"}, "https://a", "https://b"},
		{[]string{"source", "git", "ref", "branch"}, "a", "b"}, {[]string{"pruneLimit", "count"}, int64(7), int64(9)}, {[]string{"serviceAccountName"}, "a", "b"},
		{[]string{"suspendReason"}, "a", "b"}, {[]string{"substitute", "vars", "A"}, "x", "y"}, {[]string{"hub", "url"}, "https://a", "https://b"},
	},
}

// random is an object with a value, at each leaf, of one side or the other.
func random(r *rand.Rand, kind, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cloop.dev/v1alpha1", "kind": kind,
		"metadata": map[string]any{"name": name, "namespace": "ns-" + strconv.Itoa(r.IntN(2))}}}
	for _, l := range scalars[kind] {
		value := l.one
		if r.IntN(2) == 0 {
			value = l.two
		}
		if err := unstructured.SetNestedField(o.Object, value, append([]string{"spec"}, l.path...)...); err != nil {
			panic(err)
		}
	}
	return o
}

func pointer(path []string) string {
	var b strings.Builder
	b.WriteString("/spec")
	for _, name := range path {
		b.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(name))
	}
	return b.String()
}

// Whatever changes is said once and nothing else is; against itself a document
// has no difference; back and forth is the same fields the other way round.
func TestEveryChangedLeafAppearsOnce(t *testing.T) {
	t.Parallel()
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 1))
		for kind, fields := range scalars {
			was := random(r, kind, "gpu")
			if o, differs := diff.CompareObjects(was, was.DeepCopy()); differs {
				t.Fatalf("seed %d: %s against itself: %v", seed, kind, o.Fields)
			}
			now, want := was.DeepCopy(), []string{}
			for _, l := range fields {
				if r.IntN(3) > 0 {
					continue
				}
				at := append([]string{"spec"}, l.path...)
				before, _, _ := unstructured.NestedFieldNoCopy(was.Object, at...)
				value := l.one
				if reflect.DeepEqual(before, l.one) {
					value = l.two
				}
				if err := unstructured.SetNestedField(now.Object, value, at...); err != nil {
					t.Fatal(err)
				}
				want = append(want, pointer(l.path))
			}
			slices.Sort(want)
			for _, pair := range [][2]*unstructured.Unstructured{{was, now}, {now, was}} {
				o, differs := diff.CompareObjects(pair[0], pair[1])
				got := []string{}
				for _, field := range o.Fields {
					got = append(got, field.Path)
				}
				if !slices.Equal(got, want) || differs != (len(want) > 0) {
					t.Fatalf("seed %d: %s: fields %v, want %v", seed, kind, got, want)
				}
			}
		}
	}
}

// The order of documents means nothing, nor does who is compared first.
func TestTheOrderOfObjectsMeansNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 2))
		side := func() []*unstructured.Unstructured {
			var all []*unstructured.Unstructured
			for i := range 8 {
				if r.IntN(4) == 0 {
					continue
				}
				o := random(r, []string{"ExecutorPool", "HubPool", "PoolSync"}[r.IntN(3)], fmt.Sprintf("p%d", i))
				if r.IntN(3) == 0 {
					o.SetAnnotations(map[string]string{"cloop.dev/moved-from": fmt.Sprintf("p%d", r.IntN(8))})
				}
				all = append(all, o)
			}
			return all
		}
		was, now := side(), side()
		want, wantNotes := diff.Pairs(was, now)
		if same, _ := diff.Pairs(was, was); len(same) > 0 {
			t.Fatalf("seed %d: against itself: %v", seed, same)
		}
		r.Shuffle(len(was), func(i, j int) { was[i], was[j] = was[j], was[i] })
		r.Shuffle(len(now), func(i, j int) { now[i], now[j] = now[j], now[i] })
		got, notes := diff.Pairs(was, now)
		if !reflect.DeepEqual(told(got), told(want)) || !slices.Equal(notes, wantNotes) {
			t.Fatalf("seed %d: %v\nwant %v", seed, told(got), told(want))
		}
		seen := map[string]bool{}
		for _, o := range got {
			name := o.Kind + o.Namespace + "/" + o.Name
			if seen[name] {
				t.Fatalf("seed %d: %s is there twice", seed, name)
			}
			seen[name] = true
		}
	}
}

func told(objects []diff.Object) []string {
	var all []string
	for _, o := range objects {
		all = append(all, fmt.Sprint(o.Kind, o.Namespace, o.Name, o.Change, o.From, o.Class, o.Fields))
	}
	return all
}
