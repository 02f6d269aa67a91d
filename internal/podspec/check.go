package podspec

import (
	"fmt"
	"net/url"
	"strings"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/secret"
)

// Limits are what a pool's template is held to beyond its CRD.
type Limits struct {
	// OwnServiceAccount is the controller's; empty where it is not known.
	OwnServiceAccount string
	// DefaultImage is the runner's image where the template names none.
	DefaultImage string
	// ForbiddenSecrets hold a pool credential or a runner's token.
	ForbiddenSecrets map[string]bool
}

// Check returns every rule that the pool's spec breaks, one sentence each. The
// API server enforces the CRD's rules; those that guard a credential are
// checked here again, since the CRD of a cluster may be an older one.
func Check(pool *v1alpha1.ExecutorPool, limits Limits) []string {
	var problems []string
	add := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	spec := pool.Spec
	if hub, err := url.Parse(spec.HubURL); err != nil || hub.Scheme != "https" || hub.Host == "" {
		add("spec.hubURL: must be an https URL")
	} else if hub.User != nil {
		add("spec.hubURL: must not contain user information")
	}
	for _, place := range secret.HeldIn("spec", spec) {
		add("%s: must not hold a credential, which Pods would show: take it out and revoke it", place)
	}
	if spec.MinRunners > spec.MaxRunners {
		add("spec.minRunners: may not be above spec.maxRunners")
	}
	template := spec.Template
	if Image(pool, limits.DefaultImage) == "" {
		add("spec.template.image: must be set, because this controller has no default image")
	}
	account := template.ServiceAccountName
	if account == "" {
		account = "default"
	}
	if account == limits.OwnServiceAccount {
		add("spec.template.serviceAccountName: runners may not run as the controller's own ServiceAccount %s", account)
	}
	if template.AutomountServiceAccountToken && account == "default" {
		add("spec.template.automountServiceAccountToken: needs a serviceAccountName other than default")
	}
	for i, v := range template.Env {
		if reserved(v.Name) {
			add("spec.template.env[%d].name: %s is reserved for the controller", i, v.Name)
		}
		name := v.SecretKeyRef.Name
		if limits.ForbiddenSecrets[name] || strings.HasPrefix(name, SecretPrefix) || name == spec.PoolCredentialSecretRef.Name {
			add("spec.template.env[%d].secretKeyRef.name: %s holds a credential that runs may not read", i, name)
		}
	}
	return problems
}

// reserved says whether the controller alone sets the variable.
func reserved(name string) bool {
	return name == "HOME" || name == "PATH" || strings.HasPrefix(name, "CLOOP_")
}
