package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/e2e/cluster"
	"cloop.dev/cloop/e2e/cluster/clustertest"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// poolsAFile and more make the overlay of the figures: files of fifty pools each, with
// a namespace, labels and a patch over all of them.
const poolsAFile = 50

// BenchmarkFleetSync measures what a fleet controller, a process of its own, takes
// to bring a cluster to what Git says, from the request to reconcile until
// everything is applied: from nothing, with one pool changed, all, none, with one
// that the API server refuses, and from a hundred edits by hand until all are
// undone. A real API server runs on the same cores. The same work is then done by
// Flux's two controllers, on the same API server.
func BenchmarkFleetSync(b *testing.B) {
	for _, pools := range fleetSizes() {
		b.Run(fmt.Sprintf("pools=%d", pools), func(b *testing.B) {
			var took comparison
			for b.Loop() {
				ground := newGround(b)
				for _, by := range []fleetApplier{&cloopApplier{}, &fluxApplier{}} {
					f := ground.manyPools(pools, by)
					f.measure(&took, "from nothing", f.create, f.applied)
					f.measure(&took, "one changed", f.pushed(map[string]string{f.file(0): f.pools(0, 4, 5)}), f.applied)
					f.measure(&took, "all changed", f.pushed(f.files(7)), f.applied)
					f.measure(&took, "nothing changed", f.pushed(map[string]string{"README.md": "nothing of a pool"}), f.applied)
					f.measure(&took, "100 edits healed", func() { f.edit(100) }, func() { f.have(7, f.n) })
					f.measure(&took, "1 of all refused", f.pushed(f.files(8, "refused")), f.refused)
					took.add("pools that landed beside it", by.name(), float64(f.count(8)))
					f.peak(&took)
					f.stop()
				}
				ground.stop()
			}
			took.report(b)
		})
	}
}

// fleetSizes are 1,000 pools and, where CLOOP_BENCH_POOLS names others, those.
func fleetSizes() []int {
	var sizes []int
	for _, text := range strings.Fields(os.Getenv("CLOOP_BENCH_POOLS")) {
		if n, err := strconv.Atoi(text); err == nil {
			sizes = append(sizes, n)
		}
	}
	if sizes == nil {
		sizes = []int{1000}
	}
	return sizes
}

// comparison has what each side took, in each run.
type comparison struct {
	rows []string
	// of: row and side → a value for each run.
	of map[[2]string][]float64
}

func (c *comparison) add(row, side string, value float64) {
	if c.of == nil {
		c.of = map[[2]string][]float64{}
	}
	if !slices.Contains(c.rows, row) {
		c.rows = append(c.rows, row)
	}
	c.of[[2]string{row, side}] = append(c.of[[2]string{row, side}], value)
}

// at is a percentile; without a value it is nothing.
func (c *comparison) at(row, side string, percent int) float64 {
	values := slices.Sorted(slices.Values(c.of[[2]string{row, side}]))
	if len(values) == 0 {
		return 0
	}
	return values[min(len(values)-1, len(values)*percent/100)]
}

// report prints a table, and what is compared as metrics of the benchmark.
func (c *comparison) report(b *testing.B) {
	b.Helper()
	var table strings.Builder
	fmt.Fprintf(&table, "\n%d runs\n| | cloop p50 | p95 | Flux p50 | p95 | ratio of p50 |\n| --- | --- | --- | --- | --- | --- |\n", b.N)
	for _, row := range c.rows {
		ours, theirs := c.at(row, cloopSide, 50), c.at(row, fluxSide, 50)
		ratio := ""
		if ours > 0 && theirs > 0 {
			ratio = fmt.Sprintf("%.1f", theirs/ours)
		}
		fmt.Fprintf(&table, "| %s | %.0f | %.0f | %.0f | %.0f | %s |\n", row, ours, c.at(row, cloopSide, 95), theirs, c.at(row, fluxSide, 95), ratio)
		if name, ms := strings.CutSuffix(row, ", ms"); ms {
			name = strings.ReplaceAll(name, " ", "-")
			b.ReportMetric(ours, name+"-ms")
			b.ReportMetric(theirs, name+"-flux-ms")
		}
	}
	b.ReportMetric(0, "ns/op")
	// A benchmark's log is cut after ten lines.
	_, _ = os.Stdout.WriteString(table.String())
}

// fleetApplier is who applies the overlay.
type fleetApplier interface {
	name() string
	// start starts the processes, and says where the metrics of each are.
	start(f *manyPools, dir, kubeconfig string) (processes map[string]int, metrics map[string]string, stop func())
	// create has the overlay applied from now on.
	create(f *manyPools)
	// ask asks for a sync, of the commit that was made last or of what was edited.
	ask(f *manyPools, edited bool)
	// applied waits until what was asked for last is applied.
	applied(f *manyPools)
	// refused waits until all is applied that can be of a commit with one pool that
	// the API server refuses.
	refused(f *manyPools)
}

// ground is a control plane and a Git server.
type ground struct {
	b          *testing.B
	dir        string
	kubeconfig string
	cluster    client.WithWatch
	git        *fleettest.Server
	stop       func()
}

func newGround(b *testing.B) *ground {
	b.Helper()
	g := &ground{b: b, git: fleettest.Serve(b), dir: b.TempDir()}
	binaries, err := cluster.FindBinaries(b.Context(), os.Stderr)
	if err != nil {
		b.Fatal(err)
	}
	dir := filepath.Join(g.dir, "cluster")
	up, err := cluster.Up(b.Context(), cluster.Options{Dir: dir, Binaries: binaries, Parts: cluster.APIServerOnly})
	if err != nil {
		b.Fatal(err)
	}
	g.stop = sync.OnceFunc(func() { _ = cluster.Down(context.Background(), dir) })
	b.Cleanup(g.stop)
	config, err := up.RESTConfig()
	if err != nil {
		b.Fatal(err)
	}
	config.QPS = -1
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			b.Fatal(err)
		}
	}
	g.cluster, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	if err != nil {
		b.Fatal(err)
	}
	g.kubeconfig = up.Kubeconfig
	clustertest.InstallCRDs(b, config)
	g.refuse()
	return g
}

// refuse makes a rule that refuses what is labelled so.
func (g *ground) refuse() {
	g.b.Helper()
	g.create(
		&admissionregistrationv1.ValidatingAdmissionPolicy{
			ObjectMeta: metav1.ObjectMeta{Name: "refuse"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
				MatchConstraints: &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
					RuleWithOperations: admissionregistrationv1.RuleWithOperations{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{v1alpha1.Group}, APIVersions: []string{"*"}, Resources: []string{"executorpools"}},
					},
				}}},
				Validations: []admissionregistrationv1.Validation{{Expression: "!has(object.metadata.labels) || !('refused' in object.metadata.labels)", Message: "refused as asked"}},
			},
		},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "refuse"},
			Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
				PolicyName: "refuse", ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
			},
		},
	)
}

func (g *ground) create(objects ...client.Object) {
	g.b.Helper()
	for _, object := range objects {
		if err := g.cluster.Create(g.b.Context(), object); err != nil {
			g.b.Fatal(err)
		}
	}
}
