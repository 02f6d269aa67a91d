package install

import (
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"

	"cloop.dev/cloop/apis/hubv1"
)

// chartPath is where a hub serves its own build's chart.
const chartPath = "/charts/cloop-executor-controller.tgz"

// ErrPlainHTTP says that nothing can be installed for a hub at a plain HTTP
// address.
var ErrPlainHTTP = errors.New("a controller connects to a hub over HTTPS only")

// Hub is the hub as whoever installs a controller for it reaches it.
type Hub struct {
	// URL of the hub, without a slash at the end.
	URL string
	// Pin of its key; empty where none is held to.
	Pin string
	// CAFile has the certificates that are trusted for it; empty: the system's.
	CAFile string
	// Info is what the hub says of itself.
	Info hubv1.HubInfo
}

// Check refuses a hub that no controller would connect to, and says the way out.
func (h Hub) Check(pool string) error {
	parsed, err := url.Parse(h.URL)
	if err == nil && parsed.Scheme == "https" && parsed.Host != "" {
		return nil
	}
	return fmt.Errorf("%w: serve the hub over HTTPS, mint a credential there with `cloop executor pool rotate-credential %s`, which prints the command that stores it, "+
		"and install the controller with that hub's URL and its pin, which `cloop hub pin` prints: `helm install` with the chart that it serves", ErrPlainHTTP, Quote(pool))
}

// releaseTag is what an image's tag may be.
var releaseTag = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$`)

// edge is the newest build of main, and its image's tag.
const edge = "edge"

// Released says whether a build is a release. Any other is called edge, with
// what it was built from or without.
func Released(build string) bool {
	return build != edge && !strings.HasPrefix(build, edge+"-") && releaseTag.MatchString(build)
}

// tag is the tag of the image of the hub's own build.
func (h Hub) tag() string {
	if Released(h.Info.Build) {
		return strings.TrimPrefix(h.Info.Build, "v")
	}
	return edge
}

// Pool is what the commands say of a pool beside its place.
type Pool struct {
	MaxRunners int32
	Hints      hubv1.InstallHints
}

// InstallCommand installs the controller with the hub's chart, which makes the
// ExecutorPool. It is no `upgrade --install`, which would replace the values of a
// release that is there without a word.
func (p Place) InstallCommand(h Hub, pool Pool) string {
	c := p.helm("install", h)
	c.set("pool.create", "true")
	c.setString("pool.name", p.Pool)
	c.setString("pool.hubURL", h.URL)
	if h.Pin != "" {
		c.setString("pool.hubCAPin", h.Pin)
	}
	if h.CAFile != "" {
		c.add("--set-file", "pool.hubCABundle="+value(h.CAFile))
	}
	c.setString("pool.credential.existingSecret", p.Secret)
	c.set("pool.maxRunners", number(pool.MaxRunners))
	if pool.Hints.MinRunners > 0 {
		c.set("pool.minRunners", number(pool.Hints.MinRunners))
	}
	if kept := pool.Hints.Persistence; kept != nil {
		c.set("pool.persistence.enabled", "true")
		c.setString("pool.persistence.size", kept.Size)
		if kept.StorageClassName != "" {
			c.setString("pool.persistence.storageClassName", kept.StorageClassName)
		}
		if kept.ReclaimPolicy != "" {
			c.setString("pool.persistence.reclaimPolicy", kept.ReclaimPolicy)
		}
	}
	c.setString("image.tag", h.tag())
	return c.String()
}

// MaximumCommand changes the cluster's maximum.
func (p Place) MaximumCommand(h Hub, maxRunners int32) string {
	c := p.helm("upgrade", h, "--reuse-values")
	c.set("pool.maxRunners", number(maxRunners))
	return c.String()
}

// UpgradeCommand brings the controller to the hub's build. An edge build has no
// tag of its own: the digest that the tag points at now is to be put in.
func (p Place) UpgradeCommand(h Hub) string {
	c := p.helm("upgrade", h, "--reuse-values")
	if Released(h.Info.Build) {
		c.setString("image.tag", h.tag())
	} else {
		c.set("image.digest", "sha256:…")
	}
	return c.String()
}

// Behind says whether a controller's build is to be upgraded to the hub's: an
// older release, or another edge build than an edge hub's. A build that cannot be
// compared is not behind.
func Behind(controller, hub string) bool {
	if !Released(hub) {
		return strings.HasPrefix(hub, edge+"-") && !Released(controller) && controller != hub && controller != ""
	}
	theirs, err := version.ParseSemantic(controller)
	if err != nil {
		return false
	}
	ours, err := version.ParseSemantic(hub)
	return err == nil && theirs.LessThan(ours)
}

// helm begins a command on the release with the hub's chart.
func (p Place) helm(verb string, h Hub, flags ...string) *command {
	c := &command{words: []string{"helm " + verb + " " + p.Release + " " + Quote(h.URL+chartPath)}}
	c.words = append(c.words, strings.Join(append([]string{"-n " + p.Namespace}, flags...), " "))
	if h.CAFile != "" {
		c.add("--ca-file", h.CAFile)
	}
	return c
}

// command is a helm command in the making, a line each.
type command struct{ words []string }

func (c *command) add(flag, argument string) { c.words = append(c.words, flag+" "+Quote(argument)) }

// set gives a number or a word, setString a text whatever it looks like.
func (c *command) set(name, text string)       { c.add("--set", name+"="+value(text)) }
func (c *command) setString(name, text string) { c.add("--set-string", name+"="+value(text)) }

// String is the command over several lines.
func (c *command) String() string { return strings.Join(c.words, " \\\n  ") }

// value is a text as Helm's flags take it: a comma would begin the next value,
// and a brace at the beginning a list.
func value(text string) string {
	text = strings.NewReplacer(`\`, `\\`, `,`, `\,`).Replace(text)
	if strings.HasPrefix(text, "{") {
		text = `\` + text
	}
	return text
}

func number(n int32) string { return strconv.FormatInt(int64(n), 10) }
