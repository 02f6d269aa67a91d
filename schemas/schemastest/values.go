package schemastest

import "strings"

// texts are worth trying wherever a text stands: each is near an edge of some
// field. What a field's own bounds and pattern allow is picked from them.
var texts = []string{
	"", "a", "A", "0", "-", "-a", "a-", "a.b", "a..b", "A_b", "a/b", "/a", "a/", "a b", " a", "a\n", "x\ty", "é", "日本語", "\U0001F600", "\u200b",
	"true", "null", "default", "HOME", "PATH", "CLOOP_X", "CLOOP", "Path", "LICENSE", "cloop-runner-gpu-1", "gpu-pool-credential",
	"https://cloop.example.com", "https://cloop.example.com:8443/base/", "https://10.0.0.1", "https://[::1]:8443", "https://localhost",
	"http://cloop.example.com", "https://", "https:///a", "https://u:p@cloop.example.com", "https://u@a", "https://a?q=1", "https://a#f",
	"https://a:0", "https://a:65535", "https://a:65536", "https://a:b", "https://a:", "HTTPS://a", "https://a b", "https://a/%zz", "//a", "ftp://a", "https://ä.example",
	"ssh://git@git.example.com/fleet.git", "git@git.example.com:fleet.git", "oci://registry.example.com/fleet",
	"0s", "1s", "999ms", "1m", "5m", "90s", "1h30m", "1.5h", "59m60s", "24h", "24h1ms", "23h59m59s", "8760h", "8760h1s", "-5m", "5", "1d", "1us", "99999h", "1h-1m", "00000000h",
	"1", "2", "500m", "1.5", "1.5Gi", ".5", "5.", "1e3", "1E", "1Ei", "+1", "-1", "1k", "1K", "1Ki", "0", "0.0", "0m", "0e9", "1n", "1u", "1 Gi", "1GiB", "Gi", "9223372036854775807", "1e99",
	"cpu", "memory", "nvidia.com/gpu", "ephemeral-storage", "hugepages-2Mi", "requests.cpu", "kubernetes.io/batch-cpu", "storage",
	"team", "example.com/team", "cloop.dev/pool", "app.kubernetes.io/name", "app.kubernetes.io/part-of", "kubernetes.io/os", "a/b/c", "Example.com/x",
	".", "./clusters/eu", "clusters/eu/", "/clusters", "..", "../eu", "clusters/../eu", "a..b/c", "./.git",
	"main", "release/eu-1", "-x", "a.lock", "a..b", "x~y", "refs/heads/main", "v1.2.3", ">=1.0.0 <2.0.0", "1.x", "latest", "*",
	"0123456789abcdef0123456789abcdef01234567", "0123456789ABCDEF0123456789abcdef01234567", "sha256:" + hex64, "sha256:Vb9mR0E2Xj3LwJ8kq1yZ5nH7tC4uA6dF0gS2pQ9rT3w=", "sha256:Vb9mR0E2Xj3LwJ8kq1yZ5nH7tC4uA6dF0gS2pQ9rT3x=",
	"user:a", "group:ml-team", "role:admin", "user:", "team:x", "user:a b", "user:alice@example.com", "GROUP:x",
	"registry.example.com/runner:1", "registry.example.com:5000/a/b@sha256:" + hex64, "UPPER/x", "runner", "a//b", "docker.io/library/x:latest",
	"command", "kernelIsolated", "sharedRunners", "command.v2", "/spec/maxRunners", "/spec/template/env/0", "/metadata/labels/a~1b", "spec/x", "/a~2", "//",
	"ExecutorPool", "HubPool", "executorPool", "Deployment", "REGION", "1REGION", "_x", "region-eu", "${X}",
	"-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n", "-----BEGIN PRIVATE KEY-----\n", "2026-01-02T03:04:05Z", "2026-01-02", "Exists", "Equal", "NoExecute",
	strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a.", 126) + "a", strings.Repeat("a.", 126) + "aa", strings.Repeat("é", 63),
}

const hex64 = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

// oddities are worth trying wherever anything stands.
var oddities = []any{
	nil, true, false, int64(0), int64(-1), int64(1), int64(7), int64(100_000), int64(100_001), int64(1) << 31, int64(1)<<53 + 1, int64(-1) << 63, 0.5, 1e3, -1.5, 1e30,
	map[string]any{}, map[string]any{"a": "b"}, map[string]any{"name": "a"}, map[string]any{"name": nil}, map[string]any{"key": "a", "operator": "Exists"},
	[]any{}, []any{nil}, []any{"a"}, []any{"a", "a"}, []any{int64(1)}, []any{map[string]any{}}, []any{[]any{}},
	[]any{map[string]any{"name": "A"}, map[string]any{"name": "A"}},
}

// sound are texts that rules of their field like, by the field's name, for
// documents that are meant to be good.
var sound = map[string][]string{
	"hubURL": {"https://cloop.example.com", "https://cloop.example.com:8443/base", "https://[::1]:8443"},
	"url":    {"https://git.example.com/platform/fleet.git", "https://cloop.example.com"},
	"path":   {"./clusters/eu", "clusters/us", "."}, "semver": {">=1.0.0", "1.x", "~1.2"},
	"hubCABundle": {"", pem}, "caBundle": {"", pem},
	"scaleDownDelay": {"0s", "5m", "24h"}, "interval": {"1m", "1h", "90s"}, "retryInterval": {"30s"}, "timeout": {"2m", "1h"}, "rotateEvery": {"720h", "1h"},
	"size": {"10Gi", "1"}, "suspendUntil": {"2030-01-02T03:04:05Z"}, "branch": {"main", "release/eu-1"}, "tag": {"v1.2.3"},
	"serviceAccountName": {"runs", "", "default"}, "image": {"", "registry.example.com/runner:1"}, "key": {"credential", "gpu", "token"}, "reason": {"node upgrades"},
}

const pem = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"

// keys are keys of maps, by the field's name; other maps take labels.
var keys = map[string][]string{
	"limits": {"cpu", "memory", "nvidia.com/gpu"}, "requests": {"cpu", "memory", "ephemeral-storage"},
	"capabilities": {"kernelIsolated", "sharedRunners"}, "vars": {"REGION", "ZONE"}, "": {"team", "example.com/team", "gpu"},
}
