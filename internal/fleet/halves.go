package fleet

import (
	"fmt"

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
	defined := map[string]*half{}
	for _, hub := range c.hubPools {
		if first, ok := defined[hub.hubPool]; ok && first.root == hub.root {
			c.find(hub.subject, hub.problem(RuleDuplicateHubPool, "metadata.name", fmt.Sprintf("hub pool %s is defined at %s:%d already", hub.hubPool, first.file, first.line)))
			continue
		} else if !ok {
			defined[hub.hubPool] = hub
		}
	}
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
	if len(c.pools) == 0 {
		return
	}
	for name, hub := range defined {
		if !served[name] {
			c.find(hub.subject, hub.problem(RuleHubPoolWithoutPool, "metadata.name", fmt.Sprintf("no ExecutorPool serves hub pool %s", name)))
		}
	}
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
