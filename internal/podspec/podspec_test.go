package podspec_test

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/podspec"
	"cloop.dev/cloop/internal/secret"
)

const bundle = "-----BEGIN CERTIFICATE-----\n"

func gpuPool() *v1alpha1.ExecutorPool {
	return &v1alpha1.ExecutorPool{
		ObjectMeta: metav1.ObjectMeta{Name: "gpu", Namespace: "cloop-gpu", UID: "pool-uid"},
		Spec: v1alpha1.ExecutorPoolSpec{
			HubURL: "https://cloop.example.com", HubCAPin: "sha256:pin", HubCABundle: bundle,
			PoolCredentialSecretRef: v1alpha1.SecretKeyRef{Name: "gpu-pool-credential", Key: "credential"},
			MaxRunners:              4,
			RunnerLabels:            map[string]string{"team": "ml"},
			Template: v1alpha1.RunnerTemplate{
				RuntimeClassName: "gvisor", ServiceAccountName: "runner",
				Resources:    v1alpha1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("8Gi")}},
				NodeSelector: map[string]string{"pool.example.com/cloop": "true"},
				Tolerations:  []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpEqual, Value: "cloop", Effect: corev1.TaintEffectNoSchedule}},
				Env: []v1alpha1.SecretEnvVar{{
					Name: "HTTPS_PROXY", SecretKeyRef: v1alpha1.SecretKeyRef{Name: "runner-proxy", Key: "url"},
				}},
			},
		},
	}
}

func gpuRunner() podspec.Runner {
	return podspec.Runner{Pool: gpuPool(), Image: "default:image", ID: "runner-1", Key: "0123456789ab-1-0", AnchorUID: "anchor-uid"}
}

func TestPodMeetsTheRestrictedStandard(t *testing.T) {
	pod := podspec.Pod(gpuRunner())
	spec, c := pod.Spec, pod.Spec.Containers[0]
	for what, ok := range map[string]bool{
		"never restarts":         spec.RestartPolicy == corev1.RestartPolicyNever,
		"no host namespaces":     !spec.HostNetwork && !spec.HostPID && !spec.HostIPC,
		"no token mounted":       !*spec.AutomountServiceAccountToken,
		"Pod runs as 65532":      *spec.SecurityContext.RunAsUser == 65532 && *spec.SecurityContext.RunAsGroup == 65532 && *spec.SecurityContext.RunAsNonRoot,
		"Pod's seccomp":          spec.SecurityContext.SeccompProfile.Type == corev1.SeccompProfileTypeRuntimeDefault,
		"container is non-root":  *c.SecurityContext.RunAsNonRoot && *c.SecurityContext.RunAsUser == 65532,
		"no escalation":          !*c.SecurityContext.AllowPrivilegeEscalation && !*c.SecurityContext.Privileged,
		"read-only root":         *c.SecurityContext.ReadOnlyRootFilesystem,
		"drops ALL":              len(c.SecurityContext.Capabilities.Drop) == 1 && c.SecurityContext.Capabilities.Drop[0] == "ALL" && len(c.SecurityContext.Capabilities.Add) == 0,
		"one container, no init": len(spec.Containers) == 1 && len(spec.InitContainers) == 0,
		"template's limits":      c.Resources.Limits.Memory().String() == "8Gi",
		"runtime class":          *spec.RuntimeClassName == "gvisor",
		"service account":        spec.ServiceAccountName == "runner",
		"toleration":             spec.Tolerations[0].Value == "cloop",
		"node selector":          spec.NodeSelector["pool.example.com/cloop"] == "true",
		"default image":          c.Image == "default:image",
		"people's label":         pod.Labels["team"] == "ml",
		"app label":              pod.Labels[v1alpha1.LabelAppName] == v1alpha1.RunnerAppName,
	} {
		if !ok {
			t.Errorf("not so: %s", what)
		}
	}
	for _, v := range spec.Volumes {
		if v.EmptyDir == nil && v.Secret == nil {
			t.Errorf("volume %s is neither scratch nor the runner's Secret", v.Name)
		}
		if v.Name == "home" && (v.EmptyDir.Medium != corev1.StorageMediumMemory || v.EmptyDir.SizeLimit.Cmp(resource.MustParse("512Mi")) > 0) {
			t.Errorf("the home directory is not in bounded memory: %+v", v.EmptyDir)
		}
	}
}

func TestPodSurvivesThePoolsDeletion(t *testing.T) {
	owners := podspec.Pod(gpuRunner()).OwnerReferences
	if len(owners) != 2 || owners[0].UID != "pool-uid" || owners[1].UID != "anchor-uid" {
		t.Fatalf("owners are %+v", owners)
	}
	for _, owner := range owners {
		if owner.BlockOwnerDeletion != nil {
			t.Errorf("%s's deletion is blocked", owner.Kind)
		}
	}
	if anchor := podspec.Anchor(gpuPool()); len(anchor.OwnerReferences) != 0 || anchor.Name != owners[1].Name {
		t.Errorf("anchor %+v does not fit owner %+v", anchor.ObjectMeta, owners[1])
	}
}

func TestCredentialIsInTheSecretAlone(t *testing.T) {
	const token = "cloop_run1_verysecret" //nolint:gosec // no credential
	s := podspec.Secret(gpuRunner(), secret.New(token))
	if string(s.Data["token"]) != token || string(s.Data["ca.crt"]) != bundle {
		t.Errorf("Secret holds %q", s.Data)
	}
	pod := podspec.Pod(gpuRunner())
	text, err := json.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), token) {
		t.Error("the Pod holds the token")
	}
	for _, v := range pod.Spec.Containers[0].Env {
		if v.Name == "HTTPS_PROXY" && (v.Value != "" || v.ValueFrom.SecretKeyRef.Name != "runner-proxy") {
			t.Errorf("HTTPS_PROXY is %+v", v)
		}
	}
}

// Every legal pool name gives legal names, and no two pools or keys share one.
func TestNamesAreLegalAndDistinct(t *testing.T) {
	poolName := rapid.StringMatching(`[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?`).Filter(func(s string) bool {
		return len(validation.IsDNS1123Subdomain(s)) == 0
	})
	key := rapid.StringMatching(`[a-z0-9-]{8,63}`)
	rapid.Check(t, func(t *rapid.T) {
		pools := rapid.SliceOfNDistinct(poolName, 2, 2, rapid.ID).Draw(t, "pools")
		keys := rapid.SliceOfNDistinct(key, 2, 2, rapid.ID).Draw(t, "keys")
		seen := map[string]bool{}
		claim := func(name string) {
			if seen[name] {
				t.Fatalf("%s is used twice", name)
			}
			seen[name] = true
			if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
				t.Fatalf("%q: %v", name, problems)
			}
		}
		for _, p := range pools {
			claim(podspec.AnchorName(p))
			for _, k := range keys {
				claim(podspec.PodName(p, k))
				claim(podspec.SecretName(p, k))
				if problems := validation.IsDNS1123Label(podspec.PodName(p, k)); len(problems) > 0 {
					t.Fatalf("host name %q: %v", podspec.PodName(p, k), problems)
				}
			}
		}
		if podspec.LabelValue(pools[0]) == podspec.LabelValue(pools[1]) {
			t.Fatalf("pools %q share the label %q", pools, podspec.LabelValue(pools[0]))
		}
		if problems := validation.IsValidLabelValue(podspec.LabelValue(pools[0])); len(problems) > 0 {
			t.Fatalf("label of %q: %v", pools[0], problems)
		}
	})
}

func TestLongPoolNamesThatDifferAtTheEndStayApart(t *testing.T) {
	long := strings.Repeat("a", 200)
	if podspec.PodName(long+"1", "key-0000") == podspec.PodName(long+"2", "key-0000") {
		t.Error("two pools share a Pod name")
	}
	// Whoever starts a runner again, in any later build, must find its Pod.
	if got := podspec.PodName("gpu", "key-0000"); got != "gpu-sjnorizafm" {
		t.Errorf("the name is now %s", got)
	}
}

func FuzzNames(f *testing.F) {
	f.Add("gpu", "0123456789ab-1-0")
	f.Add(strings.Repeat("a.", 120)+"a", "--------")
	f.Add("UPPER_and.dots", "")
	f.Fuzz(func(t *testing.T, pool, key string) {
		if problems := validation.IsDNS1123Label(podspec.PodName(pool, key)); len(problems) > 0 {
			t.Errorf("%q: %v", podspec.PodName(pool, key), problems)
		}
		if problems := validation.IsValidLabelValue(podspec.LabelValue(pool)); len(problems) > 0 {
			t.Errorf("%q: %v", podspec.LabelValue(pool), problems)
		}
	})
}

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1alpha1.ExecutorPoolSpec)
		want   string
	}{
		"a legal pool":               {func(*v1alpha1.ExecutorPoolSpec) {}, ""},
		"plain http":                 {func(s *v1alpha1.ExecutorPoolSpec) { s.HubURL = "http://hub" }, "spec.hubURL: must be an https URL"},
		"a password in the URL":      {func(s *v1alpha1.ExecutorPoolSpec) { s.HubURL = "https://a:b@hub" }, "user information"},
		"the pool credential in env": {func(s *v1alpha1.ExecutorPoolSpec) { s.Template.Env[0].SecretKeyRef.Name = "gpu-pool-credential" }, "runs may not read"},
		"another pool's credential":  {func(s *v1alpha1.ExecutorPoolSpec) { s.Template.Env[0].SecretKeyRef.Name = "cpu-pool-credential" }, "runs may not read"},
		"a runner's token in env":    {func(s *v1alpha1.ExecutorPoolSpec) { s.Template.Env[0].SecretKeyRef.Name = "cloop-runner-gpu-abc" }, "runs may not read"},
		"a reserved variable":        {func(s *v1alpha1.ExecutorPoolSpec) { s.Template.Env[0].Name = "CLOOP_HUB_URL" }, "reserved"},
		"the controller's account":   {func(s *v1alpha1.ExecutorPoolSpec) { s.Template.ServiceAccountName = "controller" }, "own ServiceAccount"},
		"a token of default": {func(s *v1alpha1.ExecutorPoolSpec) {
			s.Template.ServiceAccountName, s.Template.AutomountServiceAccountToken = "", true
		}, "other than default"},
		"a credential in a label": {func(s *v1alpha1.ExecutorPoolSpec) {
			s.RunnerLabels = map[string]string{"team": "cloop_pool1_" + strings.Repeat("a", 49)}
		}, "spec.runnerLabels.team: must not hold a credential"},
		"a minimum above the maximum": {func(s *v1alpha1.ExecutorPoolSpec) { s.MinRunners = 5 }, "spec.minRunners"},
	} {
		t.Run(name, func(t *testing.T) {
			p := gpuPool()
			c.change(&p.Spec)
			got := strings.Join(podspec.Check(p, podspec.Limits{
				OwnServiceAccount: "controller", DefaultImage: "image",
				ForbiddenSecrets: map[string]bool{"cpu-pool-credential": true},
			}), "; ")
			if c.want == "" && got != "" || !strings.Contains(got, c.want) {
				t.Errorf("problems are %q, want %q", got, c.want)
			}
		})
	}
}
