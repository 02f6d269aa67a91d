package cli_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"cloop.dev/cloop/apis/hubv1"
)

const rotatedText = `Minted credential c2 of pool gpu.
The credential in the command is shown once and cannot be recovered.

kubectl apply --server-side --force-conflicts -f - <<'EOF'
apiVersion: v1
kind: Secret
metadata:
  name: $SECRET
  namespace: $NAMESPACE
stringData:
  credential: cloop_pool1_new
EOF

The controller reads the Secret again within five minutes, and at once when its credential is refused.
Then revoke the older ones: cloop executor pool rotate-credential gpu --finish
`

func TestRotateCredentialPrintsTheSecretsCommandOnly(t *testing.T) {
	pool := gpu()
	stubHub(t, map[string]any{
		"GET /api/v1/pools/gpu":             http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { send(w, pool) }),
		"POST /api/v1/pools/p1/credentials": hubv1.Credential{ID: "c2", Secret: "cloop_pool1_new"},
	})
	in := func(namespace, secret string) string {
		return strings.NewReplacer("$NAMESPACE", namespace, "$SECRET", secret).Replace(rotatedText)
	}
	cloop(t, "executor", "pool", "rotate-credential", "gpu").want(t, 0, in("cloop-gpu", "gpu-pool-credential"), "")
	// Where the pool was said to be, and where the command is told that it is.
	pool.Install = &hubv1.InstallHints{Namespace: "ml"}
	cloop(t, "executor", "pool", "rotate-credential", "gpu").want(t, 0, in("ml", "gpu-pool-credential"), "")
	cloop(t, "executor", "pool", "rotate-credential", "gpu", "--namespace", "x", "--secret", "y").want(t, 0, in("x", "y"), "")
}

func TestFinishingARotation(t *testing.T) {
	finish := []string{"executor", "pool", "rotate-credential", "gpu", "--finish"}
	seen := stubHub(t, map[string]any{"POST /api/v1/pools/gpu/credentials/finish": hubv1.FinishRotationResponse{
		Kept: hubv1.Credential{ID: "c3"}, Revoked: []hubv1.Credential{
			{ID: "c2"}, {ID: "c1", Runners: hubv1.RunnerCounts{Idle: 1, Busy: 2}},
		},
	}})
	cloop(t, append(finish, "--force")...).want(t, 0, "Revoked 2 older credentials of pool gpu; c3 stays.\n"+
		"c2: no runner went with it\nc1: 3 runners of it retired, and 2 runs stopped\n", "")
	if want := `POST /api/v1/pools/gpu/credentials/finish {"force":true}`; len(*seen) != 1 || (*seen)[0] != want {
		t.Errorf("the hub got %q, want %q", *seen, want)
	}
	stubHub(t, map[string]any{"POST /api/v1/pools/gpu/credentials/finish": &hubv1.Problem{
		Status: http.StatusConflict, Code: hubv1.CodeRotationUnfinished, Detail: "pool gpu still needs its older credentials", Remedy: "wait",
		Errors: []hubv1.FieldError{{Location: "credential c1", Message: "1 runner of it is busy"}},
	}})
	cloop(t, finish...).want(t, 1, "", "cloop: finish the rotation of pool gpu: pool gpu still needs its older credentials; credential c1: 1 runner of it is busy: wait\n")
	stubHub(t, map[string]any{"POST /api/v1/pools/gpu/credentials/finish": hubv1.FinishRotationResponse{Kept: hubv1.Credential{ID: "c3"}}})
	cloop(t, finish...).want(t, 0, "Nothing to finish: credential c3 is the only one of pool gpu.\n", "")
	for _, args := range [][]string{{"--force"}, {"--finish", "--namespace", "x"}} {
		if got := cloop(t, append([]string{"executor", "pool", "rotate-credential", "gpu"}, args...)...); got.code != 2 {
			t.Errorf("%v: exit code %d", args, got.code)
		}
	}
}

func TestCredentialsAreListedAndRevoked(t *testing.T) {
	list := []hubv1.Credential{
		{ID: "c2", CreatedAt: time.Now().Add(-90 * time.Second), UsedAt: new(time.Now().Add(-time.Minute)), Controllers: []hubv1.ControllerContact{
			{Instance: "c-0", Connected: true}, {Instance: "c-1"},
		}},
		{ID: "c1", CreatedAt: time.Now().Add(-3 * time.Hour), RevokedAt: new(time.Now().Add(-time.Minute))},
	}
	seen := stubHub(t, map[string]any{
		"GET /api/v1/pools/gpu/credentials":            hubv1.CredentialList{Items: list},
		"POST /api/v1/pools/gpu/credentials/c2/revoke": list[1],
	})
	cloop(t, "executor", "pool", "credentials", "gpu", "--all").want(t, 0, ""+
		"CREDENTIAL   STATE            CREATED   USED    STARTING   IDLE   BUSY   CONTROLLERS\n"+
		"c2           live             1m ago    now     0          0      0      c-0,c-1\n"+
		"c1           revoked 1m ago   3h ago    never   0          0      0      -\n", "")
	if want := "GET /api/v1/pools/gpu/credentials?revoked=true"; (*seen)[0] != want {
		t.Errorf("the hub got %q, want %q", (*seen)[0], want)
	}
	cloop(t, "executor", "pool", "revoke-credential", "gpu", "c2").want(t, 0,
		"Revoked credential c1 of pool gpu: its controller and its runners are refused, and their runs are stopped.\n", "")
}
