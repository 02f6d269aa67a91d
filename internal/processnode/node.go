package processnode

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"cloop.dev/cloop/internal/filelock"
)

// Options say what node Run runs.
type Options struct {
	// NodeName is the Node object's name.
	NodeName string
	// Dir holds Pods, logs and volumes; one node at a time uses it.
	Dir string
	// RESTConfig is access to nodes, leases, Pods, Secrets, claims, volumes
	// and storage classes of the whole cluster.
	RESTConfig *rest.Config
	// Executable stands for "cloop" in the runners' image.
	Executable string
	// Capacity is what the scheduler may count on. Nothing holds a Pod to its
	// share, so the default is beyond any machine: 110 Pods, 64 CPUs, 256 GiB.
	Capacity corev1.ResourceList
	// ShutdownGrace bounds the time that Pods get when the node stops; 0 means
	// five seconds.
	ShutdownGrace time.Duration
	// Clock is the real one where it is nil.
	Clock clock.WithTickerAndDelayedExecution
	// Log is slog's default where it is nil.
	Log *slog.Logger
}

// defaultShutdownGrace is below what those who stop processes wait before they
// kill them, often ten seconds. lastWords is how long the API may take for the
// last statuses after that.
const (
	defaultShutdownGrace = 5 * time.Second
	lastWords            = 3 * time.Second
)

// unenforced is what this node ignores of what a Pod asks for.
const unenforced = "resource requests and limits, seccomp and capabilities, user and group ids, read-only root filesystem, " +
	"emptyDir media and sizes, network policies and Pod addresses, images, runtime classes, probes and hooks"

func (o *Options) complete() error {
	var problems []error
	if o.NodeName == "" {
		problems = append(problems, errors.New("no node name"))
	}
	if o.RESTConfig == nil {
		problems = append(problems, errors.New("no access to a cluster"))
	}
	var err error
	if o.Dir == "" {
		problems = append(problems, errors.New("no directory"))
	} else if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		problems = append(problems, err)
	}
	if info, err := os.Stat(o.Executable); err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o111 == 0 {
		problems = append(problems, fmt.Errorf("the program %q cannot be executed", o.Executable))
	} else if o.Executable, err = filepath.Abs(o.Executable); err != nil {
		problems = append(problems, err)
	}
	if o.ShutdownGrace == 0 {
		o.ShutdownGrace = defaultShutdownGrace
	}
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Log == nil {
		o.Log = slog.Default()
	}
	o.Log = o.Log.With("node", o.NodeName)
	return errors.Join(problems...)
}

// Run is the node, until the context ends; then it ends its Pods' processes,
// says so to the API, and returns nil. Processes that an earlier run left are
// killed first, and their Pods fail.
func Run(ctx context.Context, options Options) error {
	if err := options.complete(); err != nil {
		return fmt.Errorf("options of the process node: %w", err)
	}
	config := rest.CopyConfig(options.RESTConfig)
	// Starting a Pod takes three or four requests; they must not queue behind
	// each other when many start.
	config.QPS, config.Burst = 200, 400
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("process node %s: %w", options.NodeName, err)
	}
	n := &node{Options: options, client: client, store: store{options.Dir}, workers: map[types.UID]*worker{}, ended: map[types.UID]bool{}}
	if err := os.MkdirAll(n.store.pods(), 0o700); err != nil {
		return fmt.Errorf("process node %s: %w", n.NodeName, err)
	}
	release, err := n.lock()
	if err != nil {
		return fmt.Errorf("process node %s: %w", n.NodeName, err)
	}
	defer release()
	return n.run(ctx)
}

// node is a running process node.
type node struct {
	Options
	client kubernetes.Interface
	store  store
	// api outlives the node's context for as long as its last words take.
	api context.Context
	// recovered is the state of Pods of an earlier run: UID → state. It is not
	// changed once the node watches.
	recovered map[types.UID]podState

	// since is when the node got ready, or stopped being so. The heartbeat owns
	// it while the node runs.
	since time.Time

	mu       sync.Mutex // guards what follows
	stopping bool
	// workers are of Pods that the API has: UID → worker. A finished one stays
	// until its Pod is gone, else an old event would start the Pod again.
	workers map[types.UID]*worker
	// ended are workers whose Pod was gone before they were through.
	ended   map[types.UID]bool
	running sync.WaitGroup
}

func (n *node) run(ctx context.Context) (err error) {
	if n.recovered, err = n.store.recover(n.Clock.Now()); err != nil {
		return fmt.Errorf("process node %s: %w", n.NodeName, err)
	}
	api, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	n.api, n.since = api, n.Clock.Now()
	if err := retry(ctx, n.Clock, func() error { return n.register(ctx) }); err != nil {
		return fmt.Errorf("register node %s: %w", n.NodeName, err)
	}
	n.Log.Info("the process node is ready", "executable", n.Executable, "dir", n.Dir)
	n.Log.Warn("the process node isolates nothing", "ignores", unenforced)
	var loops sync.WaitGroup
	lost := make(chan struct{}, 1)
	loops.Go(func() { n.heartbeat(ctx, lost) })
	loops.Go(func() { n.followSelf(ctx, lost) })
	loops.Go(func() { n.provision(ctx) })
	loops.Go(func() { n.watch(ctx) })
	loops.Wait()
	n.stop(cancel)
	return nil
}

// stop ends all Pods and tells the API that the node is not there.
func (n *node) stop(cancel context.CancelFunc) {
	timer := n.Clock.AfterFunc(n.ShutdownGrace+lastWords, cancel)
	defer timer.Stop()
	n.mu.Lock()
	n.stopping = true
	for _, worker := range n.workers {
		worker.end(min(n.ShutdownGrace, gracePeriod(worker.pod)), ReasonStopped, "the process node was stopped")
	}
	n.mu.Unlock()
	n.running.Wait()
	n.since = n.Clock.Now()
	if err := n.patchReady(n.api, corev1.ConditionFalse, ReasonStopped); err != nil {
		n.Log.Warn("cannot say that the node has stopped", "error", err)
	}
	n.Log.Info("the process node has stopped")
}

// watch hears of the node's Pods until the context ends.
func (n *node) watch(ctx context.Context) {
	pods := cache.NewListWatchFromClient(n.client.CoreV1().RESTClient(), "pods", corev1.NamespaceAll,
		fields.OneTermEqualSelector("spec.nodeName", n.NodeName))
	_, controller := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: pods, ObjectType: &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { n.changed(object.(*corev1.Pod)) },
			UpdateFunc: func(_, object any) { n.changed(object.(*corev1.Pod)) },
			DeleteFunc: func(object any) {
				if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = last.Obj
				}
				if pod, ok := object.(*corev1.Pod); ok {
					n.removed(pod.UID)
				}
			},
		},
	})
	controller.RunWithContext(ctx)
}

func terminal(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// changed starts a Pod that is new, and passes changes of the others on.
func (n *node) changed(pod *corev1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if worker := n.workers[pod.UID]; worker != nil {
		if worker.updated(pod) {
			n.running.Go(func() { worker.remove(n.api) })
		}
		return
	}
	if n.stopping {
		return
	}
	if why := foreign(pod); why != "" && !terminal(pod) {
		n.running.Go(func() { n.leave(pod, why) })
		return
	}
	if state, ok := n.recovered[pod.UID]; ok || terminal(pod) {
		n.running.Go(func() { n.settle(pod, state, ok) })
		return
	}
	worker := n.newWorker(pod)
	n.workers[pod.UID] = worker
	worker.updated(pod)
	n.running.Go(func() {
		worker.run(n.api)
		n.finished(pod.UID)
	})
}

// settle is for a Pod of which nothing runs: it reports how an earlier run of
// the node left it, if the API does not know, and lets it be deleted.
func (n *node) settle(pod *corev1.Pod, state podState, recovered bool) {
	log := n.podLog(pod)
	if recovered && !terminal(pod) {
		log.Warn("a Pod did not survive the restart of its node", "phase", state.phase())
		report := newReporter(n.api, n.client, pod, n.Clock, log)
		report.set(state)
		report.close()
	}
	if pod.DeletionTimestamp != nil {
		if err := remove(n.api, n.client, pod, n.Clock); err != nil {
			log.Error("a deleted Pod stays", "error", err)
		}
	}
}

// removed forgets a Pod that the API has no more, at the latest when nothing
// of it runs.
func (n *node) removed(uid types.UID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	worker := n.workers[uid]
	if worker == nil {
		return
	}
	worker.removed()
	if worker.through() {
		delete(n.workers, uid)
	} else {
		n.ended[uid] = true
	}
}

// finished drops the oldest logs, and the worker of a Pod that is gone.
func (n *node) finished(uid types.UID) {
	n.mu.Lock()
	if n.ended[uid] {
		delete(n.ended, uid)
		delete(n.workers, uid)
	}
	busy := map[string]bool{}
	for _, worker := range n.workers {
		if !worker.through() {
			busy[filepath.Base(worker.dir.dir)] = true
		}
	}
	n.mu.Unlock()
	// A Pod that starts meanwhile is the youngest, and stays.
	if err := n.store.prune(func(entry string) bool { return busy[entry] }); err != nil {
		n.Log.Warn("cannot remove old logs", "error", err)
	}
}

func (n *node) podLog(pod *corev1.Pod) *slog.Logger {
	return n.Log.With("namespace", pod.Namespace, "pod", pod.Name)
}

func (n *node) newWorker(pod *corev1.Pod) *worker {
	log := n.podLog(pod)
	w := &worker{
		client: n.client, clock: n.Clock, log: log, executable: n.Executable, claims: n.store.claims(),
		dir: n.store.pod(pod), pod: pod, state: newPodState(pod, n.Executable, n.Clock.Now()),
	}
	w.ending, w.endNow = context.WithCancel(context.Background())
	w.killing, w.killNow = context.WithCancel(context.Background())
	w.report = newReporter(n.api, n.client, pod, n.Clock, log)
	return w
}

// lock makes sure that no other node uses the directory. The lock ends with
// the process.
func (n *node) lock() (func(), error) {
	file, err := os.OpenFile(n.store.lock(), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	release, err := filelock.Try(file)
	if errors.Is(err, filelock.ErrHeld) {
		err = fmt.Errorf("another process node uses %s; stop it first: %w", n.Dir, err)
	}
	return release, err
}
