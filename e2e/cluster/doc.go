// Package cluster runs a real Kubernetes control plane as ordinary processes:
// etcd, kube-apiserver, kube-controller-manager and kube-scheduler. The tests
// and cloop dev stand on it.
//
// In go a directory and the programs (FindBinaries finds or builds them); out
// come a kubeconfig and processes that outlive the caller until Down. Nothing
// needs root, everything listens on 127.0.0.1, and every listener asks for a
// certificate. Processes, the table of detached processes that it is built
// on, is exported for whoever has more to start.
//
// It never signals a process that it did not start, never touches a directory
// that Up did not make, and is no place to keep data: etcd runs without fsync.
package cluster
