package fleet

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/v1alpha1"
)

// HubPoolName is the hub pool that an ExecutorPool or a HubPool speaks of:
// spec.hubPool of the former, and else the object's own name.
func HubPoolName(obj *unstructured.Unstructured) string {
	if obj.GetKind() == v1alpha1.ExecutorPoolKind {
		if name, _, _ := unstructured.NestedString(obj.Object, "spec", "hubPool"); name != "" {
			return name
		}
	}
	return obj.GetName()
}

// hubPoolField is the field that HubPoolName is read from.
func hubPoolField(obj *unstructured.Unstructured) string {
	if name, _, _ := unstructured.NestedString(obj.Object, "spec", "hubPool"); name != "" {
		return "spec.hubPool"
	}
	return "metadata.name"
}

// between applies the rules that join the two halves of a pool.
func (c *checker) between() {
	defined := c.definitions()
	served := map[*half]bool{}
	for _, pool := range c.pools {
		hubs := hubsOf(pool, defined[pool.hubPool])
		for _, hub := range hubs {
			served[hub] = true
		}
		switch {
		case len(hubs) > 0:
			c.compareHalves(pool, hubs)
		case len(defined[pool.hubPool]) > 0:
			hub := defined[pool.hubPool][0]
			served[hub] = true
			if !pool.unsure && !c.lost && !anyUnsure(defined[pool.hubPool]) {
				c.find(pool.subject, pool.problem(RuleHubURLDisagrees, "spec.hubURL", fmt.Sprintf("the HubPool is pushed to %s (%s:%d)", hub.hubURL, hub.file, hub.line)))
			}
			c.compareHalves(pool, defined[pool.hubPool])
		case len(c.hubPools) > 0 && c.appliers != nil && !c.lost && !pool.unsure && !c.mayBe(v1alpha1.HubPoolKind, pool.hubPool):
			c.find(pool.subject, pool.problem(RulePoolWithoutHubPool, pool.field, fmt.Sprintf("no HubPool defines hub pool %s", pool.hubPool)))
		}
	}
	c.compareHubs(defined)
	if len(c.pools) == 0 || c.lost || slices.ContainsFunc(c.pools, func(p *half) bool { return p.unsure }) {
		return
	}
	for name, hubs := range defined {
		for _, hub := range hubs {
			if !served[hub] && !c.mayBe(v1alpha1.ExecutorPoolKind, name) {
				c.find(hub.subject, hub.problem(RuleHubPoolWithoutPool, "metadata.name", fmt.Sprintf("no ExecutorPool serves hub pool %s", name)))
			}
		}
	}
}

// unjudged is what is known of a half that was not judged. Its name may have the
// variable that has no value.
type unjudged struct{ kind, hubPool string }

// mayBe says whether a half of a hub pool that was not judged may be the one that
// is missing.
func (c *checker) mayBe(kind, hubPool string) bool {
	return slices.ContainsFunc(c.unjudged, func(u unjudged) bool {
		return u.kind == kind && (u.hubPool == hubPool || strings.Contains(u.hubPool, "$"))
	})
}

// definitions: hub pool → the HubPools that define it, one for each root: each hub
// has a root of its own, so that two roots may define the same.
func (c *checker) definitions() map[string][]*half {
	defined, inRoot := map[string][]*half{}, map[[2]string]*half{}
	for _, hub := range c.hubPools {
		key := [2]string{hub.root, hub.hubPool}
		if first, ok := inRoot[key]; ok {
			c.find(hub.subject, hub.problem(RuleDuplicateHubPool, "metadata.name", fmt.Sprintf("hub pool %s is defined at %s:%d already", hub.hubPool, first.file, first.line)))
			continue
		}
		inRoot[key] = hub
		defined[hub.hubPool] = append(defined[hub.hubPool], hub)
	}
	return defined
}

// hubsOf are the definitions that may be of the pool's hub: those that are pushed
// to its address, or else those that some hub reads from Git, which do not say
// which hub that is.
func hubsOf(pool *half, defined []*half) []*half {
	var pushed, read []*half
	address := HubAddress(pool.hubURL)
	for _, hub := range defined {
		switch {
		case hub.hubURL == "" || address == "":
			read = append(read, hub)
		case HubAddress(hub.hubURL) == address:
			pushed = append(pushed, hub)
		}
	}
	if len(pushed) > 0 {
		return pushed
	}
	return read
}

// compareHubs holds the clusters of each hub pool to one hub, where the repository
// defines the pool for one at most and does not say which.
func (c *checker) compareHubs(defined map[string][]*half) {
	first := map[string]*half{}
	for _, pool := range c.pools {
		address, hubs := HubAddress(pool.hubURL), defined[pool.hubPool]
		if address == "" || !hasHost(pool.hubURL) || len(hubs) > 1 || len(hubs) == 1 && hubs[0].hubURL != "" || pool.unsure || anyUnsure(hubs) {
			continue
		}
		before := first[pool.hubPool]
		if before == nil {
			first[pool.hubPool] = pool
		} else if HubAddress(before.hubURL) != address {
			c.find(pool.subject, pool.problem(RuleHubURLsDiffer, "spec.hubURL", fmt.Sprintf("%s serves hub pool %s at %s (%s:%d)", before.object, pool.hubPool, before.hubURL, before.file, before.line)))
		}
	}
}

// HubAddress is equal for addresses that are spelt in several ways.
func HubAddress(text string) string {
	address, err := url.Parse(strings.TrimRight(text, "/"))
	if err != nil {
		return text
	}
	address.Scheme, address.Host = strings.ToLower(address.Scheme), strings.TrimSuffix(strings.ToLower(address.Host), ":443")
	return address.String()
}

// hasHost says whether a text is an address at all; the schema reports what is none.
func hasHost(text string) bool {
	address, err := url.Parse(text)
	return err == nil && address.Host != ""
}

// anyUnsure says whether one of the definitions may be otherwise.
func anyUnsure(hubs []*half) bool {
	return slices.ContainsFunc(hubs, func(hub *half) bool { return hub.unsure })
}

func (c *checker) compareHalves(pool *half, hubs []*half) {
	if pool.unsure || anyUnsure(hubs) {
		return
	}
	// Whichever of them it is: what agrees with one may be as it should.
	first := hubs[0]
	above := func(hub *half) bool { return hub.limited && pool.maximum > hub.maximum }
	if pool.limited && all(hubs, above) {
		c.find(pool.subject, pool.problem(RuleMaximumAboveHub, "spec.maxRunners", fmt.Sprintf("%d is above the hub pool's maxRunners %d (%s:%d)", pool.maximum, first.maximum, first.file, first.line)))
	}
	for key, value := range pool.labels {
		other := func(hub *half) bool { of, ok := hub.labels[key]; return ok && of != value }
		if all(hubs, other) {
			c.find(pool.subject, pool.problem(RuleLabelsDisagree, labelPath(key), fmt.Sprintf("%q is %q at the hub pool (%s:%d)", value, first.labels[key], first.file, first.line)))
		}
	}
}

func all(hubs []*half, so func(*half) bool) bool {
	return !slices.ContainsFunc(hubs, func(hub *half) bool { return !so(hub) })
}

// maxLabels is how many labels a pool may have, as its schema says.
const maxLabels = 64

func labelsOf(obj *unstructured.Unstructured, field string) map[string]string {
	labels, _, _ := unstructured.NestedStringMap(obj.Object, "spec", field)
	if len(labels) == 0 {
		return nil
	}
	return labels
}
