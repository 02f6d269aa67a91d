package fleet

import (
	"fmt"
	"net/url"
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
	served := map[string]bool{}
	for _, pool := range c.pools {
		served[pool.hubPool] = true
		hub, ok := defined[pool.hubPool]
		switch {
		case ok:
			c.compareHalves(pool, hub)
		case len(c.hubPools) > 0:
			c.find(pool.subject, pool.problem(RulePoolWithoutHubPool, pool.field, fmt.Sprintf("no HubPool defines hub pool %s", pool.hubPool)))
		}
	}
	c.compareHubs(defined)
	if len(c.pools) == 0 {
		return
	}
	for name, hub := range defined {
		if !served[name] {
			c.find(hub.subject, hub.problem(RuleHubPoolWithoutPool, "metadata.name", fmt.Sprintf("no ExecutorPool serves hub pool %s", name)))
		}
	}
}

// definitions: hub pool → the first HubPool that defines it. Each hub has a root
// of its own, so that two roots may define the same.
func (c *checker) definitions() map[string]*half {
	defined, inRoot := map[string]*half{}, map[[2]string]*half{}
	for _, hub := range c.hubPools {
		key := [2]string{hub.root, hub.hubPool}
		if first, ok := inRoot[key]; ok {
			c.find(hub.subject, hub.problem(RuleDuplicateHubPool, "metadata.name", fmt.Sprintf("hub pool %s is defined at %s:%d already", hub.hubPool, first.file, first.line)))
			continue
		}
		inRoot[key] = hub
		if defined[hub.hubPool] == nil {
			defined[hub.hubPool] = hub
		}
	}
	return defined
}

// compareHubs holds the clusters of each hub pool to one hub: that of its
// HubPool, or else that of the first cluster.
func (c *checker) compareHubs(defined map[string]*half) {
	first := map[string]*half{}
	for _, pool := range c.pools {
		address := HubAddress(pool.hubURL)
		if address == "" {
			continue
		}
		if hub := defined[pool.hubPool]; hub != nil && hub.hubURL != "" {
			if HubAddress(hub.hubURL) != address {
				c.find(pool.subject, pool.problem(RuleHubURLDisagrees, "spec.hubURL", fmt.Sprintf("the HubPool is pushed to %s (%s:%d)", hub.hubURL, hub.file, hub.line)))
			}
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

func (c *checker) compareHalves(pool, hub *half) {
	if pool.limited && hub.limited && pool.maximum > hub.maximum {
		c.find(pool.subject, pool.problem(RuleMaximumAboveHub, "spec.maxRunners", fmt.Sprintf("%d is above the hub pool's maxRunners %d (%s:%d)", pool.maximum, hub.maximum, hub.file, hub.line)))
	}
	for key, value := range pool.labels {
		if of, ok := hub.labels[key]; ok && of != value {
			c.find(pool.subject, pool.problem(RuleLabelsDisagree, labelPath(key), fmt.Sprintf("%q is %q at the hub pool (%s:%d)", value, of, hub.file, hub.line)))
		}
	}
}
