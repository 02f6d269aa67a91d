package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"cloop.dev/cloop/internal/atomicfile"
	"cloop.dev/cloop/internal/filelock"
)

// readyPoll is how often a starting part is asked.
const readyPoll = 50 * time.Millisecond

// Up brings a control plane up in a directory, or brings the one that is there
// back to what the options say: a part that runs as wanted is left alone, one
// that died or has other flags is started again, one too many is ended. It
// returns when the API serves and, unless only the API server runs, the
// namespace default has its ServiceAccount.
func Up(ctx context.Context, options Options) (*Cluster, error) {
	dir, err := filepath.Abs(options.Dir)
	if err != nil {
		return nil, err
	}
	options.Dir = dir
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the cluster's directory: %w", err)
	}
	l := layout{dir}
	// The settings come first: with them in place Down knows the directory.
	release, err := filelock.Wait(ctx, l.lock(), nil)
	if err != nil {
		return nil, err
	}
	defer release()
	settings, err := l.keepSettings()
	if err != nil {
		return nil, err
	}
	if err := l.keepPKI(settings, time.Now()); err != nil {
		return nil, fmt.Errorf("make the cluster's certificates: %w", err)
	}
	if options.AuditLog != "" {
		if err := atomicfile.Write(l.audit(), []byte(auditPolicy), 0o600); err != nil {
			return nil, err
		}
	}
	timeout := options.ReadyTimeout
	if timeout == 0 {
		timeout = defaultReadyTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	cluster := &Cluster{Dir: dir, Kubeconfig: l.kubeconfig(), Binaries: options.Binaries}
	return cluster, l.bringUp(ctx, cluster, options, settings)
}

func (l layout) bringUp(ctx context.Context, cluster *Cluster, options Options, settings settings) error {
	config, err := cluster.RESTConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	first, later := l.parts(options, settings)
	for _, part := range first {
		if err := l.ensure(part, options.Env); err != nil {
			return err
		}
	}
	if err := l.wait(ctx, first, func(ctx context.Context) error {
		return client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	}); err != nil {
		return fmt.Errorf("wait for the API server: %w", err)
	}
	for _, part := range later {
		if err := l.ensure(part, options.Env); err != nil {
			return err
		}
	}
	if err := l.stopOthers(slices.Concat(first, later)); err != nil {
		return err
	}
	if len(later) == 0 {
		return nil
	}
	if err := l.wait(ctx, slices.Concat(first, later), func(ctx context.Context) error {
		_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
		return err
	}); err != nil {
		return fmt.Errorf("wait for the default ServiceAccount: %w", err)
	}
	return nil
}

// ensure has a part running with exactly these arguments.
func (l layout) ensure(part part, env []string) error {
	processes := l.processes()
	if record, err := processes.read(part.name); err == nil && record.Alive {
		if slices.Equal(record.Argv, part.argv) {
			return nil
		}
		if err := processes.Stop(part.name); err != nil {
			return err
		}
	}
	_, err := processes.Start(part.name, part.argv, append(os.Environ(), env...))
	return err
}

// stopOthers ends parts that an earlier Up started and this one leaves out.
func (l layout) stopOthers(wanted []part) error {
	list, err := l.processes().List()
	if err != nil {
		return err
	}
	for _, process := range list {
		if !slices.ContainsFunc(wanted, func(part part) bool { return part.name == process.Name }) {
			if err := l.processes().Stop(process.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// wait asks until the answer is no error. It gives up early when a part died,
// and then quotes its log.
func (l layout) wait(ctx context.Context, parts []part, ask func(context.Context) error) error {
	for {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		for _, part := range parts {
			if _, err := l.processes().Running(part.name); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			// What the last question met says more than that time is up.
			if apierrors.IsNotFound(err) || !errors.Is(err, context.DeadlineExceeded) {
				return errors.Join(ctx.Err(), err)
			}
			return fmt.Errorf("%w (logs are in %s)", err, l.path("logs"))
		case <-time.After(readyPoll):
		}
	}
}
