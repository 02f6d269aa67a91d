package scaffold

import (
	"bytes"
	"embed"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"cloop.dev/cloop/kustomize"
)

// Options of a repository.
type Options struct {
	// HubURL is where runners and controllers find the hub: https.
	HubURL string
	// HubCAPin and HubCABundle are how they trust it; both may be empty.
	HubCAPin, HubCABundle string
	// Clusters are the names of the overlays.
	Clusters []string
	// Repository is the https or ssh URL that hub and clusters will fetch from.
	Repository string
	// Branch is what they follow.
	Branch string
	// Contents stand in place of the pools to begin with; nil: those are written, and
	// need HubURL and at least one cluster.
	Contents *Contents
}

// Contents are the documents of a repository, in YAML, by a path of their own.
type Contents struct {
	// Hub is the hub's half; nil: the repository has none.
	Hub map[string][]byte
	// Clusters: name of an overlay → its documents.
	Clusters map[string]map[string][]byte
}

var (
	clusterName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	pin         = regexp.MustCompile(`^sha256:[A-Za-z0-9+/]{43}=$`)
	branchName  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._/-]{0,200}[A-Za-z0-9])?$`)
)

// hubStatus is the name of the hub's commit status, which no cluster can have.
const hubStatus = "hub"

// Check names every problem of the options.
func (o Options) Check() error {
	var problems []error
	say := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if hub, err := url.Parse(o.HubURL); o.Contents == nil && (err != nil || !plainHTTPS(hub)) {
		say("the hub's URL must be https, without user information, query or fragment")
	}
	if at, err := url.Parse(o.Repository); err != nil || !plainHTTPS(at) && !plainSSH(at) || strings.Trim(at.Path, "/") == "" {
		say("the repository's URL must be https, or ssh as in ssh://git@HOST/PATH, and hold no other user information, query or fragment: hub and clusters fetch from it")
	}
	if o.HubCAPin != "" && !pin.MatchString(o.HubCAPin) {
		say("the hub's pin is not sha256: and base64: `cloop hub pin` prints it")
	}
	if o.HubCABundle != "" && certificates(o.HubCABundle) == "" {
		say("the hub's certificates are not PEM")
	}
	if !branchName.MatchString(o.Branch) || strings.Contains(o.Branch, "..") {
		say("%q is no name for a branch", o.Branch)
	}
	if len(o.Clusters) == 0 && o.Contents == nil {
		say("name at least one cluster")
	}
	for i, name := range o.Clusters {
		switch {
		case !clusterName.MatchString(name):
			say("%q is no name for a cluster: use lowercase letters, digits and dashes, at most 63", name)
		case name == hubStatus:
			say("a cluster cannot be called %s: that is what the hub's half is called", name)
		case slices.Contains(o.Clusters[:i], name):
			say("cluster %s is named twice", name)
		}
	}
	return errors.Join(problems...)
}

// plainHTTPS says whether a URL has nothing but a host and a path; what would
// have to be quoted in YAML is none of it.
func plainHTTPS(u *url.URL) bool { return u.Scheme == "https" && plain(u) }

var userName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// plainSSH is plainHTTPS of a URL of ssh, which may name a user.
func plainSSH(u *url.URL) bool {
	if u.User != nil && !userName.MatchString(u.User.String()) {
		return false
	}
	rest := *u
	rest.User = nil
	return u.Scheme == "ssh" && plain(&rest)
}

func plain(u *url.URL) bool {
	return u.Hostname() != "" && u.User == nil && u.RawQuery == "" && u.Fragment == "" &&
		!strings.ContainsAny(u.String(), " '\"{}[],#&*!|>%@`\\\n")
}

// HubHalf says whether the repository has one.
func (o Options) HubHalf() bool { return o.Contents == nil || o.Contents.Hub != nil }

// SSH says whether the repository is fetched over ssh.
func (o Options) SSH() bool { return strings.HasPrefix(o.Repository, "ssh:") }

// certificates are those of a bundle and nothing else that stands in its file,
// such as a key.
func certificates(bundle string) string {
	var out strings.Builder
	for block, rest := pem.Decode([]byte(bundle)); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			block.Headers = nil
			out.Write(pem.EncodeToMemory(block))
		}
	}
	return out.String()
}

//go:embed all:files
var files embed.FS

// Files are the repository's, keyed by their slash-separated path.
func Files(o Options) (map[string][]byte, error) {
	if err := o.Check(); err != nil {
		return nil, err
	}
	o.HubCABundle = certificates(o.HubCABundle)
	out := map[string][]byte{}
	err := each(files, "files", func(name string, content []byte) error {
		folder, below, _ := strings.Cut(name, "/")
		switch {
		case folder == "bootstrap":
			return o.forClusters(out, folder, below, content)
		case o.Contents != nil && slices.Contains([]string{"hub", "pools", "cluster"}, folder):
			return nil
		case folder == "cluster":
			return o.forClusters(out, "clusters", below, content)
		}
		return render(out, name, content, struct{ Options }{o})
	})
	if err != nil {
		return nil, err
	}
	o.Contents.write(out)
	return out, each(kustomize.Kinds(), ".", func(name string, content []byte) error {
		out["kinds/"+name] = content
		return nil
	})
}

// write adds a kustomization for each half, and what it lists.
func (c *Contents) write(out map[string][]byte) {
	if c == nil {
		return
	}
	if c.Hub != nil {
		half(out, "hub", c.Hub, "")
	}
	for name, documents := range c.Clusters {
		half(out, "clusters/"+name, documents, "components:\n  - ../../kinds\n")
	}
}

func half(out map[string][]byte, folder string, documents map[string][]byte, more string) {
	list := "resources:\n"
	if len(documents) == 0 {
		list = "resources: []\n"
	}
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		list += "  - " + name + "\n"
		out[folder+"/"+name] = documents[name]
	}
	out[folder+"/kustomization.yaml"] = []byte("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n" + list + more)
}

// forClusters renders a file once for each cluster.
func (o Options) forClusters(out map[string][]byte, folder, name string, content []byte) error {
	for _, cluster := range o.Clusters {
		values := struct {
			Options
			Cluster string
		}{o, cluster}
		if err := render(out, path.Join(folder, cluster, name), content, values); err != nil {
			return err
		}
	}
	return nil
}

func each(from fs.FS, root string, visit func(name string, content []byte) error) error {
	return fs.WalkDir(from, root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(from, name)
		if err != nil {
			return err
		}
		return visit(strings.TrimPrefix(name, root+"/"), content)
	})
}

func render(out map[string][]byte, name string, content []byte, values any) error {
	rendered, err := Render(name, content, values)
	out[name] = rendered
	return err
}

// Render fills a template in, for another seed of a fleet repository too. Its
// marks, << and >>, are none that a workflow file has; its functions are text,
// which quotes a word for YAML where it must be, and indent, which puts so many
// spaces before every line of a text but its first.
func Render(name string, content []byte, values any) ([]byte, error) {
	parsed, err := template.New(name).Delims("<<", ">>").Option("missingkey=error").
		Funcs(template.FuncMap{"indent": indent, "text": text}).Parse(string(content))
	if err != nil {
		return nil, fmt.Errorf("template of %s: %w", name, err)
	}
	var rendered bytes.Buffer
	if err := parsed.Execute(&rendered, values); err != nil {
		return nil, fmt.Errorf("template of %s: %w", name, err)
	}
	return rendered.Bytes(), nil
}

// text is a word as YAML has it, in quotes where it would be a number or
// something else that is no text.
func text(word string) (string, error) {
	written, err := yaml.Marshal(word)
	return strings.TrimSpace(string(written)), err
}

// indent puts spaces before every line of a text but its first.
func indent(spaces int, text string) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+strings.Repeat(" ", spaces))
}
