package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDevUpIsReadyToUse does what README.md tells a newcomer to do, with
// nothing but what `dev up` printed, in a directory whose name has a space.
// There is no kubectl on PATH, and git trusts other certificates. The first up
// was cut off after the fleet was published.
func TestDevUpIsReadyToUse(t *testing.T) {
	system := up(t)
	fleet, err := system.SeedFleet(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := fleet.Push(t.Context()); err != nil {
		t.Fatal(err)
	}
	executable, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	environment := []string{"PATH=" + pathWithoutKubectl(t), "HOME=" + t.TempDir(), "CLOOP_KUBERNETES=" + system.Kubectl[0],
		"GIT_SSL_CAINFO=/dev/null", "GIT_AUTHOR_NAME=Bo", "GIT_AUTHOR_EMAIL=bo@example.com", "GIT_COMMITTER_NAME=Bo", "GIT_COMMITTER_EMAIL=bo@example.com"}
	for _, setting := range os.Environ() {
		if strings.HasPrefix(setting, "GORACE=") {
			environment = append(environment, setting)
		}
	}
	shell := func(script string) string {
		t.Helper()
		command := exec.CommandContext(t.Context(), "sh", "-euc", script)
		command.Env = environment
		var problems bytes.Buffer
		command.Stderr = &problems
		printed, err := command.Output()
		if err != nil {
			t.Fatalf("%s: %v\n%s%s", script, err, printed, problems.String())
		}
		return string(printed)
	}
	bringUp := executable + " dev up --dir '" + system.Dir + "'"
	first := shell(bringUp)
	if second := shell(bringUp); second != first {
		t.Errorf("a second up says\n%s\nnot\n%s", second, first)
	}
	setup, rest, found := strings.Cut(first, "Then try:\n")
	_, setup, foundExport := strings.Cut(setup, ":\n")
	try, _, foundEnd := strings.Cut(rest, "The fleet repository")
	if !found || !foundExport || !foundEnd {
		t.Fatalf("up printed\n%s", first)
	}
	if said := shell(setup + try); !strings.Contains(said, "checked\n") || !strings.Contains(said, "agents") {
		t.Errorf("what up says to try printed\n%s", said)
	}
	shell(setup + `cd "` + fleet.Dir + `"
sed -i 's/maxRunners: 4/maxRunners: 3/' hub/agents.yaml pools/base/agents.yaml
git commit --quiet --all --message Lower
git push --quiet
git pull --quiet
cloop fleet reconcile
kubectl -n cloop-pools wait xpool/agents --for=jsonpath='{.spec.maxRunners}'=3 --timeout=30s
kubectl -n cloop-pools wait xpool/agents --for=jsonpath='{.status.hub.maxRunners}'=3 --timeout=30s`)

	// What init writes is checked and synced as it is, and its pool serves.
	said := shell(setup + `cd "` + fleet.Dir + `"
remote=$(kubectl -n cloop-fleet get psync fleet -o jsonpath='{.spec.source.git.url}')
git rm --quiet -r .
cloop fleet init . --cluster dev --repository "$remote"
cloop fleet check
git add --all
git commit --quiet --message 'Begin the fleet'
git push --quiet
cloop fleet reconcile --wait
kubectl -n cloop-pools wait xpool/agents --for=jsonpath='{.status.hub.maxRunners}'=8 --timeout=30s
kubectl -n cloop-pools wait xpool/agents --for=condition=Ready --timeout=30s
kubectl -n cloop-pools wait xpool/agents --for=jsonpath='{.spec.runnerLabels.cluster}'=dev --timeout=30s`)
	if !strings.Contains(said, "3 roots, 4 documents, 1 pool: all is well\n") {
		t.Errorf("it said\n%s", said)
	}

	// What import writes of it all is taken over without a change.
	said = shell(setup + `cd "` + fleet.Dir + `"
remote=$(kubectl -n cloop-fleet get psync fleet -o jsonpath='{.spec.source.git.url}')
as='{.metadata.uid} {.metadata.generation}'
before=$(kubectl -n cloop-pools get xpool agents -o jsonpath="$as")
git rm --quiet -r .
cloop fleet import . --repository "$remote"
cloop fleet check
git add --all
git commit --quiet --message 'Take over what there is'
git push --quiet
kubectl apply --server-side --force-conflicts -k bootstrap/cloop
cloop fleet reconcile --wait
test "$before" = "$(kubectl -n cloop-pools get xpool agents -o jsonpath="$as")"
cloop fleet drift`)
	if !strings.Contains(said, "No drift: 1 pool compared.\n") || !strings.Contains(said, "PoolSync cloop-fleet/fleet applies 1 of the ExecutorPools") {
		t.Errorf("it said\n%s", said)
	}
}

// pathWithoutKubectl has what the scripts need and no more.
func pathWithoutKubectl(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"sh", "git", "sed", "sleep"} {
		found, err := exec.LookPath(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(found, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
