package cluster

import (
	"slices"
	"strconv"
	"strings"
)

// part is a program of the control plane with its whole command line.
type part struct {
	name string
	argv []string
}

// auditPolicy writes a line when a request is answered, and none when it
// arrives: one request, one line, except that a watch has one when it begins.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
`

// parts returns what the API needs to serve, and what runs against the API.
func (l layout) parts(options Options, settings settings) (first, later []part) {
	first = []part{
		{"etcd", slices.Concat(options.Binaries.Etcd, l.etcdFlags(settings))},
		{"kube-apiserver", slices.Concat(options.Binaries.APIServer, l.apiServerFlags(options, settings))},
	}
	if options.Parts != APIServerOnly {
		later = append(later, part{"kube-controller-manager",
			slices.Concat(options.Binaries.ControllerManager, l.controllerManagerFlags(settings))})
	}
	if options.Parts == Full {
		later = append(later, part{"kube-scheduler",
			slices.Concat(options.Binaries.Scheduler, l.schedulerFlags(settings))})
	}
	return first, later
}

func (l layout) cert(name string) string { return l.path("pki", name+".crt") }
func (l layout) key(name string) string  { return l.path("pki", name+".key") }

func (l layout) etcdFlags(s settings) []string {
	client, peer := "https://"+address(s.Etcd), "https://"+address(s.EtcdPeer)
	return []string{
		"--name=cloop", "--data-dir=" + l.etcd(),
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=cloop=" + peer,
		// Any user of the machine reaches 127.0.0.1, and etcd holds Secrets.
		"--client-cert-auth", "--trusted-ca-file=" + l.cert(etcdCA),
		"--cert-file=" + l.cert("etcd"), "--key-file=" + l.key("etcd"),
		"--peer-client-cert-auth", "--peer-trusted-ca-file=" + l.cert(etcdCA),
		"--peer-cert-file=" + l.cert("etcd"), "--peer-key-file=" + l.key("etcd"),
		// The gateway would dial etcd with the server's certificate, in vain.
		"--enable-grpc-gateway=false",
		"--unsafe-no-fsync", "--auto-compaction-retention=5m", "--log-level=warn",
	}
}

func (l layout) apiServerFlags(options Options, s settings) []string {
	flags := []string{
		"--etcd-servers=https://" + address(s.Etcd), "--etcd-cafile=" + l.cert(etcdCA),
		"--etcd-certfile=" + l.cert("apiserver-etcd"), "--etcd-keyfile=" + l.key("apiserver-etcd"),
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(s.APIServer),
		// A loopback address is no legal endpoint of the Service kubernetes.
		"--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=10.96.0.0/16",
		"--tls-cert-file=" + l.cert("apiserver"), "--tls-private-key-file=" + l.key("apiserver"),
		"--client-ca-file=" + l.cert(clusterCA), "--anonymous-auth=false",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + l.cert("service-account"),
		"--service-account-signing-key-file=" + l.key("service-account"),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true", "--profiling=false",
		"--requestheader-client-ca-file=" + l.cert(frontProxyCA), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + l.cert("front-proxy-client"), "--proxy-client-key-file=" + l.key("front-proxy-client"),
	}
	if options.AuditLog != "" {
		flags = append(flags, "--audit-policy-file="+l.audit(), "--audit-log-path="+options.AuditLog,
			"--audit-log-mode=blocking-strict")
	}
	return flags
}

// unneeded are controllers for what such a cluster has not: cloud, networks,
// volumes that are attached, certificates on request. Each costs informers.
var unneeded = []string{
	"horizontal-pod-autoscaler-controller", "persistentvolume-attach-detach-controller",
	"persistentvolume-expander-controller", "ephemeral-volume-controller", "resourceclaim-controller",
	"certificatesigningrequest-signing-controller", "certificatesigningrequest-approving-controller",
	"certificatesigningrequest-cleaner-controller", "podcertificaterequest-cleaner-controller",
	"endpointslice-mirroring-controller", "service-cidr-controller", "ttl-controller",
	"device-taint-eviction-controller", "kube-apiserver-serving-clustertrustbundle-publisher-controller",
	"volumeattributesclass-protection-controller", "storageversion-garbage-collector-controller",
	"validatingadmissionpolicy-status-controller", "legacy-serviceaccount-token-cleaner-controller",
	"node-ipam-controller",
}

func (l layout) controllerManagerFlags(s settings) []string {
	return append(l.clientFlags("controller-manager", s.ControllerManager),
		"--service-account-private-key-file="+l.key("service-account"), "--root-ca-file="+l.cert(clusterCA),
		"--use-service-account-credentials=true", "--controllers=*,-"+strings.Join(unneeded, ",-"))
}

func (l layout) schedulerFlags(s settings) []string {
	return l.clientFlags("scheduler", s.Scheduler)
}

// clientFlags are common to what runs against the API server.
func (l layout) clientFlags(name string, port int) []string {
	kubeconfig := l.path("pki", name+".kubeconfig")
	return []string{
		"--kubeconfig=" + kubeconfig, "--authentication-kubeconfig=" + kubeconfig, "--authorization-kubeconfig=" + kubeconfig,
		"--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port),
		"--leader-elect=false", "--profiling=false", "--kube-api-qps=200", "--kube-api-burst=400",
	}
}
