package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/podspec"
	"cloop.dev/cloop/internal/pool"
	"cloop.dev/cloop/internal/retry"
	"cloop.dev/cloop/internal/secret"
)

const (
	mintRetry = 30 * time.Second
	// A refused Pod is tried again after 5 s at first and a minute at most.
	podRetryFirst = 5 * time.Second
	podRetryLast  = time.Minute
)

// startAll starts runners, several at a time, and returns the Secrets that
// their Pods do not own yet: that can wait until all Pods exist.
func (a *actor) startAll(ctx context.Context, starts []pool.Start) []pool.Ownership {
	var owned []pool.Ownership
	each(starts, func(s pool.Start) {
		pod, ok := a.start(ctx, s)
		if !ok {
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		a.o.pods[pod.Name] = pod
		owned = append(owned, pool.Ownership{Secret: podspec.SecretName(a.o.xpool.Name, s.Key), Pod: pod.Name})
	})
	return owned
}

// start mints a token, writes it into a Secret and creates the Pod. Whatever
// step it stops after, the next pass goes on with the same key.
func (a *actor) start(ctx context.Context, s pool.Start) (*corev1.Pod, bool) {
	if a.stopped() {
		return nil, false
	}
	name := podspec.PodName(a.o.xpool.Name, s.Key)
	if s.Again {
		exists, err := a.podExists(ctx, name)
		if err != nil || exists != s.SecretOnly {
			a.failIf(err)
			return nil, false
		}
	}
	minted, ok := a.mint(ctx, s.Key)
	if !ok {
		return nil, false
	}
	runner := podspec.Runner{
		Pool: a.o.xpool, Image: a.runnerImage, ID: minted.RunnerID, Key: s.Key,
		AnchorUID: types.UID(a.o.snapshot.AnchorUID),
	}
	pod, err := a.create(ctx, runner, secret.New(minted.Token))
	if err != nil {
		a.notCreated(ctx, runner, err)
		return nil, false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.o.memory.Started[s.Key] = pool.Started{RunnerID: minted.RunnerID, At: a.clock.Now()}
	a.o.memory.PodRefused, a.o.memory.podFailures = nil, 0
	a.started++
	a.metrics.started(a.o.name(), a.clock.Since(a.o.hub.since()))
	return pod, true
}

// stopped says whether a start of this pass was refused: then no more are
// asked for.
func (a *actor) stopped() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.refused
}

// mint asks the hub for the key's token.
func (a *actor) mint(ctx context.Context, key string) (hubv1.MintResponse, bool) {
	minted, err := asked(ctx, a, func(hub poolHub) (hubv1.MintResponse, error) { return hub.MintRunner(ctx, key) })
	if errors.Is(err, errSilent) {
		a.fail(fmt.Errorf("mint a runner: %w", err)) // nothing was asked
		return hubv1.MintResponse{}, false
	}
	if err == nil {
		a.metrics.minted(a.o.name(), "minted")
		a.mu.Lock()
		a.o.memory.MintRefused = nil
		a.mu.Unlock()
		return minted, true
	}
	code := problemCode(err)
	a.metrics.minted(a.o.name(), orElse(string(code), "unavailable"))
	switch {
	case code == hubv1.CodeTokenRedeemed || code == hubv1.CodeRunnerRetired:
		// The snapshot that this key came from is old.
		a.mu.Lock()
		a.o.memory.Burnt[key] = true
		a.mu.Unlock()
	case code == "" || refused(err):
		a.fail(fmt.Errorf("mint a runner: %w", err))
	default:
		message := secret.Redact(err.Error())
		a.mu.Lock()
		a.refused = true
		a.o.memory.MintRefused = &pool.Refusal{
			Message: message, RetryAt: a.clock.Now().Add(mintRetry), Revision: a.o.snapshot.Hub.Revision,
		}
		a.mu.Unlock()
		a.events.record(a.o.xpool, runnersRefused(message))
	}
	return hubv1.MintResponse{}, false
}

// create writes the Secret and then the Pod. Both have names that follow from
// the key, so one that exists already is the same runner's.
func (a *actor) create(ctx context.Context, runner podspec.Runner, token secret.String) (*corev1.Pod, error) {
	object := podspec.Secret(runner, token)
	err := a.client.Create(ctx, object)
	if apierrors.IsAlreadyExists(err) {
		// Left by a start that was cut short; its token is spent.
		object = podspec.Secret(runner, token)
		err = a.client.Patch(ctx, object, client.MergeFrom(&corev1.Secret{}))
	}
	if err != nil {
		return nil, fmt.Errorf("write Secret %s: %w", podspec.SecretName(runner.Pool.Name, runner.Key), err)
	}
	pod := podspec.Pod(runner)
	err = a.client.Create(ctx, pod)
	if apierrors.IsAlreadyExists(err) {
		err = a.live.Get(ctx, client.ObjectKeyFromObject(pod), pod)
	}
	if err != nil {
		return nil, fmt.Errorf("create Pod %s: %w", pod.Name, err)
	}
	return pod, nil
}

// notCreated deals with a runner that was minted and could not be created. One
// that the API server refuses is given back; any other is gone on with.
func (a *actor) notCreated(ctx context.Context, runner podspec.Runner, err error) {
	if !podRefusal(err) {
		a.fail(err)
		return
	}
	message := secret.Redact(err.Error())
	a.mu.Lock()
	first := !a.refused
	a.refused = true
	memory := a.o.memory
	if first {
		wait := retry.Spread(retry.After(memory.podFailures, podRetryFirst, podRetryLast))
		memory.podFailures++
		memory.PodRefused = &pool.Refusal{Message: message, RetryAt: a.clock.Now().Add(wait)}
	}
	a.mu.Unlock()
	a.events.record(a.o.xpool, podRefused(message))
	a.deleteSecret(ctx, podspec.SecretName(a.o.xpool.Name, runner.Key))
	if _, err := a.askRetire(ctx, runner.ID); err != nil {
		a.fail(err)
	}
}

// ownerPatch replaces an object's owners.
func ownerPatch(owner metav1.OwnerReference) client.Patch {
	data, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"ownerReferences": []metav1.OwnerReference{owner}},
	})
	if err != nil {
		// Only strings and booleans go in.
		panic(err)
	}
	return client.RawPatch(types.MergePatchType, data)
}
