package cluster

import (
	"context"
	"crypto/sha256"
	_ "embed" // the name of the sources
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"cloop.dev/cloop/internal/gobuild"
)

// Environment variables that name finished programs.
const (
	// EnvKubernetes names a finished multi-call binary, as the module
	// e2e/cluster/kubernetes builds it.
	EnvKubernetes = "CLOOP_KUBERNETES"
	// EnvAssets names a directory with etcd, kube-apiserver and kubectl, as
	// controller-runtime's setup-envtest makes it.
	EnvAssets = "KUBEBUILDER_ASSETS"
)

// Binaries are the programs of a control plane, each as the start of a command
// line.
type Binaries struct {
	Etcd, APIServer, ControllerManager, Scheduler, Kubectl []string
}

// multiCall are the programs of one binary that takes its role as the first
// argument.
func multiCall(binary string) Binaries {
	role := func(name string) []string { return []string{binary, name} }
	return Binaries{
		Etcd: role("etcd"), APIServer: role("kube-apiserver"), ControllerManager: role("kube-controller-manager"),
		Scheduler: role("kube-scheduler"), Kubectl: role("kubectl"),
	}
}

func (b *Binaries) slots() map[string]*[]string {
	return map[string]*[]string{
		"etcd": &b.Etcd, "kube-apiserver": &b.APIServer, "kube-controller-manager": &b.ControllerManager,
		"kube-scheduler": &b.Scheduler, "kubectl": &b.Kubectl,
	}
}

// FindBinaries finds the programs: the binary that CLOOP_KUBERNETES names,
// else what is in KUBEBUILDER_ASSETS, and for the rest the binary in the
// user's cache. Within the repository it is the one of these sources, and built
// where it is missing (some ten minutes on two cores, told to progress, which
// may be nil); elsewhere it is the one of the sources that this program was
// built with.
func FindBinaries(ctx context.Context, progress io.Writer) (Binaries, error) {
	if progress == nil {
		progress = io.Discard
	}
	if binary := os.Getenv(EnvKubernetes); binary != "" {
		if err := gobuild.Executable(binary); err != nil {
			return Binaries{}, fmt.Errorf("%s: %w", EnvKubernetes, err)
		}
		return multiCall(binary), nil
	}
	found, complete, err := assets(os.Getenv(EnvAssets))
	if err != nil || complete {
		return found, err
	}
	binary, err := cachedOrBuilt(ctx, progress)
	if err != nil {
		return Binaries{}, err
	}
	built := multiCall(binary)
	for name, slot := range found.slots() {
		if *slot == nil {
			*slot = *built.slots()[name]
		}
	}
	return found, nil
}

// cachedOrBuilt is the binary in the user's cache.
func cachedOrBuilt(ctx context.Context, progress io.Writer) (string, error) {
	source, notHere := findSource()
	if notHere != nil {
		source = builtWith()
	}
	binary, err := source.cached()
	if err != nil {
		return "", err
	}
	if gobuild.Executable(binary) == nil {
		return binary, nil
	}
	if notHere != nil {
		return "", fmt.Errorf("no Kubernetes %s to run: %w, which builds one (some ten minutes, once) and keeps it as %s; "+
			"or set %s to a finished binary, or %s to a directory with all programs", source.version, notHere, binary, EnvKubernetes, EnvAssets)
	}
	return binary, source.program().Build(ctx, binary, progress)
}

// assets returns what a directory has of the programs.
func assets(dir string) (found Binaries, complete bool, err error) {
	if dir == "" {
		return Binaries{}, false, nil
	}
	complete = true
	for name, slot := range found.slots() {
		file := filepath.Join(dir, name)
		switch err := gobuild.Executable(file); {
		case err == nil:
			*slot = []string{file}
		case errors.Is(err, fs.ErrNotExist):
			complete = false
		default:
			return Binaries{}, false, fmt.Errorf("%s: %w", EnvAssets, err)
		}
	}
	return found, complete, nil
}

// source is the module that the multi-call binary is built from.
type source struct {
	dir string
	// version is Kubernetes' own, with its v.
	version string
	// digest is of the files that decide what is built, in short.
	digest string
}

const modulePath = "cloop.dev/cloop"

var (
	moduleLine  = regexp.MustCompile(`(?m)^module\s+` + regexp.QuoteMeta(modulePath) + `\s*$`)
	versionLine = regexp.MustCompile(`(?m)^\s*(?:require\s+)?k8s\.io/kubernetes\s+(v\d+\.\d+\.\S+)`)
)

// digestHexDigits keeps the cache's path readable; a user has a handful of
// builds, not billions.
const digestHexDigits = 12

// findSource looks for the repository above the working directory and above
// this program's own file.
func findSource() (source, error) {
	var starts []string
	if dir, err := os.Getwd(); err == nil {
		starts = append(starts, dir)
	}
	if file, err := os.Executable(); err == nil {
		starts = append(starts, filepath.Dir(file))
	}
	for _, dir := range starts {
		for ; ; dir = filepath.Dir(dir) {
			if data, err := os.ReadFile(filepath.Join(dir, "go.mod")); err == nil && moduleLine.Match(data) {
				return readSource(filepath.Join(dir, "e2e", "cluster", "kubernetes"))
			}
			if dir == filepath.Dir(dir) {
				break
			}
		}
	}
	return source{}, fmt.Errorf("run this once inside a checkout of %s", modulePath)
}

// sourceName is written by cmd/docgen: the version and the digest of the sources
// beside this package, which no program can embed, as they are another module.
//
//go:embed kubernetes.version
var sourceName string

// builtWith is the source that this program was built beside. Only its name is
// known, so nothing can be built from it.
func builtWith() source {
	version, digest, _ := cutLast(strings.TrimSpace(sourceName), "-")
	return source{version: version, digest: digest}
}

func cutLast(text, separator string) (before, after string, found bool) {
	at := strings.LastIndex(text, separator)
	if at < 0 {
		return text, "", false
	}
	return text[:at], text[at+len(separator):], true
}

// SourceName names the sources of the multi-call binary in a repository by
// version and digest, as the cache does.
func SourceName(repository string) (string, error) {
	s, err := readSource(filepath.Join(repository, "e2e", "cluster", "kubernetes"))
	if err != nil {
		return "", err
	}
	return s.name(), nil
}

func (s source) name() string { return s.version + "-" + s.digest }

func readSource(dir string) (source, error) {
	digest := sha256.New()
	found := source{dir: dir}
	for _, name := range []string{"go.mod", "go.sum", "main.go"} {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return source{}, fmt.Errorf("read the module that builds Kubernetes: %w", err)
		}
		fmt.Fprintf(digest, "%s %d\n", name, len(data))
		digest.Write(data)
		if match := versionLine.FindSubmatch(data); name == "go.mod" && match != nil {
			found.version = string(match[1])
		}
	}
	if found.version == "" {
		return source{}, fmt.Errorf("%s names no version of k8s.io/kubernetes", filepath.Join(dir, "go.mod"))
	}
	found.digest = hex.EncodeToString(digest.Sum(nil))[:digestHexDigits]
	return found, nil
}

// cached is where the binary of exactly these sources is kept.
func (s source) cached() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory for the Kubernetes binary (set HOME, or %s): %w", EnvKubernetes, err)
	}
	return filepath.Join(cache, "cloop", "kubernetes", s.name(), "kubernetes"), nil
}

// program is the multi-call binary.
func (s source) program() gobuild.Program {
	return gobuild.Program{
		Name: "Kubernetes " + s.version, Dir: s.dir, Package: ".", Takes: "about ten minutes",
		Tags: "grpcnotrace,nokmem", LinkerFlags: s.linkerFlags(),
	}
}

// linkerFlags give the binary the version that it reports and that clients
// compare theirs with. It is stamped by hand because the module is not
// Kubernetes' own repository.
func (s source) linkerFlags() string {
	major, rest, _ := strings.Cut(strings.TrimPrefix(s.version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	flags := []string{"-s", "-w"}
	for _, variable := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X", variable+".gitVersion="+s.version, "-X", variable+".gitMajor="+major,
			"-X", variable+".gitMinor="+minor, "-X", variable+".gitTreeState=clean")
	}
	return strings.Join(flags, " ")
}
