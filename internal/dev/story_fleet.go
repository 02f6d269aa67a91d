package dev

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
)

// Files of the fleet repository that the story edits.
const (
	batchFile    = "pools/base/batch.yaml"
	hubBatchFile = "hub/batch.yaml"
)

// commitFleet: a fleet repository is committed, and hub and cluster have its
// pools.
func (st *Story) commitFleet(ctx context.Context, r *record) error {
	s := st.System
	fleet, err := s.SeedFleet(ctx)
	if err != nil {
		return err
	}
	st.fleet = fleet
	pushed := time.Now()
	if err := st.publish(ctx); err != nil {
		return err
	}
	if st.good, err = fleet.Head(ctx); err != nil {
		return err
	}
	st.pools = map[string]hubv1.Pool{}
	for _, name := range []string{agentsPool, batchPool} {
		if err := until(ctx, "the hub has pool "+name, func(ctx context.Context) error {
			pool, err := s.Hub.GetPool(ctx, name)
			if err != nil {
				return err
			}
			if pool.Source == nil || pool.Source.Revision != st.good {
				return fmt.Errorf("the pool's source is %+v", pool.Source)
			}
			st.pools[name] = pool
			return nil
		}); err != nil {
			return err
		}
	}
	r.timed(time.Since(pushed), "the hub had both pools")
	if err := st.applied(ctx, st.good); err != nil {
		return err
	}
	r.timed(time.Since(pushed), "the cluster had both ExecutorPools")
	for _, name := range []string{agentsPool, batchPool} {
		if err := s.HandCredential(ctx, name); err != nil {
			return err
		}
		if err := st.serving(ctx, name); err != nil {
			return err
		}
	}
	r.timed(time.Since(pushed), "both pools had a credential and were Ready")
	err = until(ctx, "a runner waits in pool "+agentsPool, func(ctx context.Context) error {
		pool, err := s.Hub.GetPool(ctx, agentsPool)
		if err == nil && pool.Runners.Idle < 1 {
			return fmt.Errorf("its runners are %+v", pool.Runners)
		}
		return err
	})
	r.timed(time.Since(pushed), "a warm runner waited in pool %s", agentsPool)
	return err
}

// SeedFleet commits the first fleet to an empty fleet repository, without
// publishing it.
func (s *System) SeedFleet(ctx context.Context) (*Repository, error) {
	fleet, err := s.Fleet(ctx)
	if err != nil {
		return nil, err
	}
	if _, err := fleet.Head(ctx); err == nil {
		return fleet, nil
	}
	files, err := seedFiles("fleet", fleetValues{
		HubURL: s.HubURL, HubCAPin: s.HubPin, HubCABundle: string(s.ca.Certificate), Namespace: PoolNamespace,
	})
	if err != nil {
		return nil, err
	}
	if err := fleet.Write(files); err != nil {
		return nil, err
	}
	_, err = fleet.Commit(ctx, "Add the first pools")
	return fleet, err
}

// PublishSeed gives an empty fleet repository its first fleet, the pools their
// credentials and the project a pool, and goes on where it was interrupted.
// Once it was through it does nothing.
func (s *System) PublishSeed(ctx context.Context) error {
	if s.state.Seeded {
		return nil
	}
	story := &Story{System: s}
	if err := story.RunUntil(ctx, steps[0].name); err != nil {
		return err
	}
	if err := s.Bind(ctx, agentsPool); err != nil {
		return err
	}
	s.state.Seeded = true
	return s.writeState()
}

// HandCredential mints a credential for a pool and puts it into the Secret
// that its ExecutorPool names.
func (s *System) HandCredential(ctx context.Context, pool string) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: PoolNamespace, Name: pool + "-pool-credential"}}
	err := s.Cluster.Get(ctx, client.ObjectKeyFromObject(secret), secret)
	if err == nil || !apierrors.IsNotFound(err) {
		return err
	}
	return until(ctx, "mint a credential for pool "+pool, func(ctx context.Context) error {
		credential, err := s.Hub.CreateCredential(ctx, pool)
		if err != nil {
			return unlessUnavailable(err)
		}
		secret.Data = map[string][]byte{"credential": []byte(credential.Secret)}
		if err := s.Cluster.Create(ctx, secret); err != nil {
			return never("%w", err)
		}
		return nil
	})
}

// publish pushes the fleet repository and pokes both sides, as a webhook does.
func (st *Story) publish(ctx context.Context) error {
	if err := until(ctx, "push the fleet repository", st.fleet.Push); err != nil {
		return err
	}
	return st.System.Poke(ctx)
}

// Poke asks the hub and the cluster to sync now.
func (s *System) Poke(ctx context.Context) error {
	patch := fmt.Sprintf(`{"metadata":{"annotations":{"reconcile.fluxcd.io/requestedAt":%q}}}`, time.Now().Format(time.RFC3339Nano))
	sync := &v1alpha1.PoolSync{ObjectMeta: metav1.ObjectMeta{Namespace: FleetNamespace, Name: SyncName}}
	if err := s.Cluster.Patch(ctx, sync, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		return err
	}
	return until(ctx, "ask the hub to sync", func(ctx context.Context) error {
		_, err := s.Hub.ReconcileSync(ctx, SyncName)
		return unlessUnavailable(err)
	})
}

// applied waits until the PoolSync has applied a revision whole and is Ready.
func (st *Story) applied(ctx context.Context, revision string) error {
	return until(ctx, "the PoolSync applies "+revision, func(ctx context.Context) error {
		sync, err := st.poolSync(ctx)
		if err != nil {
			return err
		}
		ready := meta.FindStatusCondition(sync.Status.Conditions, v1alpha1.ConditionReady)
		if !strings.Contains(sync.Status.LastAppliedRevision, revision) || ready == nil || ready.Status != metav1.ConditionTrue {
			return fmt.Errorf("it has applied %q: %+v", sync.Status.LastAppliedRevision, ready)
		}
		return nil
	})
}

func (st *Story) poolSync(ctx context.Context) (*v1alpha1.PoolSync, error) {
	var sync v1alpha1.PoolSync
	err := st.System.Cluster.Get(ctx, client.ObjectKey{Namespace: FleetNamespace, Name: SyncName}, &sync)
	return &sync, err
}

func (st *Story) executorPool(ctx context.Context, name string) (*v1alpha1.ExecutorPool, error) {
	var pool v1alpha1.ExecutorPool
	err := st.System.Cluster.Get(ctx, client.ObjectKey{Namespace: PoolNamespace, Name: name}, &pool)
	return &pool, err
}

// serving waits until an ExecutorPool is Ready.
func (st *Story) serving(ctx context.Context, name string) error {
	return until(ctx, "ExecutorPool "+name+" is Ready", func(ctx context.Context) error {
		pool, err := st.executorPool(ctx, name)
		if err != nil {
			return err
		}
		if !meta.IsStatusConditionTrue(pool.Status.Conditions, v1alpha1.ConditionReady) {
			return fmt.Errorf("its conditions are %+v", pool.Status.Conditions)
		}
		return nil
	})
}

// editCluster: somebody edits the ExecutorPool with kubectl; the difference
// appears with the field and who wrote it, and is corrected.
func (st *Story) editCluster(ctx context.Context, r *record) error {
	before, err := st.executorPool(ctx, agentsPool)
	if err != nil {
		return err
	}
	edited := time.Now()
	arguments := append(slices.Clone(st.System.Kubectl), "--kubeconfig", st.System.Kubeconfig, "--namespace", PoolNamespace,
		"patch", "executorpool", agentsPool, "--type=merge", "--field-manager=kubectl-edit", `--patch={"spec":{"maxRunners":3}}`)
	if printed, err := exec.CommandContext(ctx, arguments[0], arguments[1:]...).CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl patch: %w: %s", err, printed)
	}
	err = until(ctx, "the drift appears in the PoolSync's status", func(ctx context.Context) error {
		sync, err := st.poolSync(ctx)
		if err != nil {
			return err
		}
		for _, entry := range sync.Status.Drift {
			if entry.Name == agentsPool && entry.Path == "/spec/maxRunners" && entry.Cause == v1alpha1.DriftClusterEdited &&
				entry.Manager == "kubectl-edit" && entry.Git == "4" && entry.Cluster == "3" {
				r.timed(time.Since(edited), "drift showed: %s of %s is %s, Git wants %s, written by %s", entry.Path, entry.Name, entry.Cluster, entry.Git, entry.Manager)
				return nil
			}
		}
		return fmt.Errorf("its drift is %+v", sync.Status.Drift)
	})
	if err != nil {
		return err
	}
	err = until(ctx, "the drift is corrected", func(ctx context.Context) error {
		after, err := st.executorPool(ctx, agentsPool)
		if err != nil {
			return err
		}
		if after.Spec.MaxRunners != before.Spec.MaxRunners {
			return fmt.Errorf("maxRunners is %d", after.Spec.MaxRunners)
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.timed(time.Since(edited), "Git's value was restored")
	return until(ctx, "fleet drift finds nothing", func(ctx context.Context) error {
		output, code, err := st.System.cloop(ctx, "fleet", "drift", "--repo", ".", "--cluster", st.System.context)
		if err == nil && code != 0 {
			return fmt.Errorf("exit code %d: %s", code, output)
		}
		return err
	})
}

// editHub: somebody edits the pool at the hub and is told what owns it.
func (st *Story) editHub(ctx context.Context, r *record) error {
	output, code, err := st.System.cloop(ctx, "executor", "pool", "update", agentsPool, "--max-runners", "9")
	if err != nil {
		return err
	}
	if code != 1 {
		return fmt.Errorf("the edit was not refused: exit code %d: %s", code, output)
	}
	for _, part := range []string{st.System.GitURL("fleet"), "hub/agents.yaml", st.good} {
		if !strings.Contains(output, part) {
			return fmt.Errorf("the refusal does not name %s: %s", part, output)
		}
	}
	r.note("refused: %s", strings.TrimSpace(output))
	return until(ctx, "the pool is unchanged", func(ctx context.Context) error {
		pool, err := st.System.Hub.GetPool(ctx, agentsPool)
		if err != nil {
			return unlessUnavailable(err)
		}
		if pool.MaxRunners != st.pools[agentsPool].MaxRunners {
			return never("maxRunners is %d", pool.MaxRunners)
		}
		return nil
	})
}

// badCommit: the check refuses a commit with file, line and rule; merged all
// the same, the pool that it is about stays as it was, and the PoolSync says why.
func (st *Story) badCommit(ctx context.Context, r *record) error {
	hubBefore, clusterBefore, err := st.definitions(ctx)
	if err != nil {
		return err
	}
	if err := st.fleet.Replace(batchFile, "minRunners: 0", "minRunners: 5"); err != nil {
		return err
	}
	content, err := st.fleet.Read(batchFile)
	if err != nil {
		return err
	}
	at := fmt.Sprintf("%s:%d", batchFile, lineOf(string(content), "minRunners: 5"))
	output, code, err := st.System.cloop(ctx, "fleet", "check", ".")
	if err != nil {
		return err
	}
	if code != 1 || !strings.Contains(output, at) || !strings.Contains(output, "minRunners") {
		return fmt.Errorf("the check does not refuse %s: exit code %d: %s", at, code, output)
	}
	r.note("fleet check refused it: %s", firstLineWith(output, at))
	bad, err := st.fleet.Commit(ctx, "Keep five batch runners waiting")
	if err != nil {
		return err
	}
	pushed := time.Now()
	if err := st.publish(ctx); err != nil {
		return err
	}
	err = until(ctx, "the PoolSync says why it does not apply "+bad, func(ctx context.Context) error {
		sync, err := st.poolSync(ctx)
		if err != nil {
			return err
		}
		ready := meta.FindStatusCondition(sync.Status.Conditions, v1alpha1.ConditionReady)
		if !strings.Contains(sync.Status.LastAttemptedRevision, bad) || ready == nil || ready.Status != metav1.ConditionFalse ||
			ready.Reason != string(v1alpha1.ReasonValidationFailed) || !strings.Contains(ready.Message, at) {
			return fmt.Errorf("it has seen %q: %+v", sync.Status.LastAttemptedRevision, ready)
		}
		r.timed(time.Since(pushed), "merged all the same, the PoolSync said: %s", firstLineWith(ready.Message, at))
		return nil
	})
	if err != nil {
		return err
	}
	if err := st.hubSynced(ctx, bad); err != nil {
		return err
	}
	hubAfter, clusterAfter, err := st.definitions(ctx)
	if err != nil {
		return err
	}
	if hubBefore != hubAfter || clusterBefore != clusterAfter {
		return fmt.Errorf("the bad commit changed something:\n%s%s\n%s%s", hubBefore, clusterBefore, hubAfter, clusterAfter)
	}
	r.note("nothing changed at the hub or in the cluster")
	return nil
}

// hubSynced waits until the hub has seen a revision.
func (st *Story) hubSynced(ctx context.Context, revision string) error {
	return until(ctx, "the hub sees "+revision, func(ctx context.Context) error {
		sync, err := st.System.Hub.GetSync(ctx, SyncName)
		if err != nil {
			return err
		}
		if sync.LastAppliedRevision != revision {
			return fmt.Errorf("it has applied %q: %s", sync.LastAppliedRevision, sync.Message)
		}
		return nil
	})
}

// definitions are the pools' definitions at the hub and in the cluster, as
// text to compare.
func (st *Story) definitions(ctx context.Context) (hub, inCluster string, err error) {
	var pools []hubv1.Pool
	err = until(ctx, "list the hub's pools", func(ctx context.Context) (err error) {
		pools, err = st.System.Hub.ListPools(ctx)
		return unlessUnavailable(err)
	})
	if err != nil {
		return "", "", err
	}
	for _, pool := range pools {
		encoded, err := json.Marshal(pool.PoolDefinition)
		if err != nil {
			return "", "", err
		}
		hub += pool.Name + " " + string(encoded) + "\n"
	}
	var list v1alpha1.ExecutorPoolList
	if err := st.System.Cluster.List(ctx, &list, client.InNamespace(PoolNamespace)); err != nil {
		return "", "", err
	}
	for _, pool := range list.Items {
		encoded, err := json.Marshal(pool.Spec)
		if err != nil {
			return "", "", err
		}
		inCluster += pool.Name + " " + string(encoded) + "\n"
	}
	return hub, inCluster, nil
}

// revert: git revert heals.
func (st *Story) revert(ctx context.Context, r *record) error {
	revision, err := st.fleet.Revert(ctx)
	if err != nil {
		return err
	}
	pushed := time.Now()
	if err := st.publish(ctx); err != nil {
		return err
	}
	if err := st.applied(ctx, revision); err != nil {
		return err
	}
	r.timed(time.Since(pushed), "the PoolSync was Ready again")
	st.good = revision
	return st.hubSynced(ctx, revision)
}

func lineOf(content, part string) int {
	for i, line := range strings.Split(content, "\n") {
		if strings.Contains(line, part) {
			return i + 1
		}
	}
	return 0
}

func firstLineWith(text, part string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, part) {
			return strings.TrimSpace(line)
		}
	}
	return strings.TrimSpace(text)
}

// gone says whether an object's absence is what an error reports.
func gone(err error) bool {
	var problem *hubv1.Problem
	return apierrors.IsNotFound(err) || errors.As(err, &problem) && problem.Code == hubv1.CodeNotFound
}
