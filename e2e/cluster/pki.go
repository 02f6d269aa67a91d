package cluster

import (
	"fmt"
	"os"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"cloop.dev/cloop/internal/atomicfile"
	"cloop.dev/cloop/internal/pki"
)

// Certificate authorities. etcd has one of its own: whoever gets a Kubernetes
// user certificate must not be able to read etcd with it.
const (
	clusterCA    = "ca"
	etcdCA       = "etcd-ca"
	frontProxyCA = "front-proxy-ca"
)

// keepPKI makes certificates and kubeconfigs where they are missing.
func (l layout) keepPKI(s settings, now time.Time) error {
	authority := func(name string) (*pki.CA, error) {
		pair, err := pki.Keep(l.pki(), name, func() (pki.Pair, error) {
			ca, err := pki.NewCA("cloop-"+name, now)
			if err != nil {
				return pki.Pair{}, err
			}
			return ca.Pair, nil
		})
		if err != nil {
			return nil, err
		}
		return pki.ParseCA(pair)
	}
	authorities := map[string]*pki.CA{}
	// The service accounts' key needs no authority above it.
	for _, name := range []string{clusterCA, etcdCA, frontProxyCA, "service-account"} {
		ca, err := authority(name)
		if err != nil {
			return err
		}
		authorities[name] = ca
	}
	for _, leaf := range leaves {
		pair, err := pki.Keep(l.pki(), leaf.name, func() (pki.Pair, error) {
			if leaf.hosts != nil {
				return authorities[leaf.ca].Server(now, leaf.hosts...)
			}
			return authorities[leaf.ca].Client(now, leaf.user, leaf.groups...)
		})
		if err != nil {
			return fmt.Errorf("certificate %s: %w", leaf.name, err)
		}
		if leaf.kubeconfig {
			file := l.path("pki", leaf.name+".kubeconfig")
			if leaf.name == "admin" {
				file = l.kubeconfig()
			}
			if err := l.writeKubeconfig(file, s, authorities[clusterCA].Certificate, pair); err != nil {
				return fmt.Errorf("kubeconfig %s: %w", leaf.name, err)
			}
		}
	}
	return nil
}

type leaf struct {
	name, ca string
	// hosts make it a server's certificate, else it is a client's.
	hosts      []string
	user       string
	groups     []string
	kubeconfig bool
}

var leaves = []leaf{
	{name: "etcd", ca: etcdCA, hosts: []string{"127.0.0.1", "localhost"}},
	{name: "apiserver-etcd", ca: etcdCA, user: "kube-apiserver"},
	{name: "apiserver", ca: clusterCA, hosts: []string{"127.0.0.1", "localhost", "10.96.0.1", "kubernetes",
		"kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"}},
	{name: "front-proxy-client", ca: frontProxyCA, user: "front-proxy-client"},
	{name: "controller-manager", ca: clusterCA, user: "system:kube-controller-manager", kubeconfig: true},
	{name: "scheduler", ca: clusterCA, user: "system:kube-scheduler", kubeconfig: true},
	{name: "admin", ca: clusterCA, user: "cloop-admin", groups: []string{"system:masters"}, kubeconfig: true},
}

func (l layout) writeKubeconfig(file string, s settings, ca []byte, client pki.Pair) error {
	if _, err := os.Stat(file); err == nil {
		return nil
	}
	const name = "cloop"
	config := clientcmdapi.NewConfig()
	config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + address(s.APIServer), CertificateAuthorityData: ca}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: client.Certificate, ClientKeyData: client.Key}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return atomicfile.Write(file, data, 0o600)
}
