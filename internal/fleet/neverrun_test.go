package fleet_test

import (
	"slices"
	"testing"
)

// What would run a program is refused in words that say what to do instead.
func TestWhatIsNeverRunSaysWhatToDo(t *testing.T) {
	const base = "resources: [../../pools/base]\n"
	function := "apiVersion: x/v1\nkind: Y\nmetadata:\n  name: z\n  annotations:\n    config.kubernetes.io/function: |\n      container: {image: x}\n"
	const chart, plugin = "helmCharts: charts are never rendered here", ": plugins, programs and functions in containers are never run"
	for name, test := range map[string]struct {
		text string
		want string
	}{
		"a chart of the repository": {base + "helmCharts: [{name: x}]\nhelmGlobals: {chartHome: ../../charts}\n", chart},
		"a generator":               {base + "generators: [g.yaml]\n", "generators" + plugin},
		"a transformer":             {base + "transformers: [g.yaml]\n", "transformers" + plugin},
		"a validator":               {base + "validators: [g.yaml]\n", "validators" + plugin},
	} {
		t.Run(name, func(t *testing.T) {
			report := check(t, with(sound(), map[string]string{"clusters/eu/kustomization.yaml": test.text, "clusters/eu/g.yaml": function}))
			var got []string
			for _, p := range report.Problems {
				got = append(got, p.Message)
			}
			if !slices.Equal(got, []string{test.want}) {
				t.Errorf("%q, want %q: %v", got, test.want, report.Problems)
			}
		})
	}
}
