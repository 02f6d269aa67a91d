package controllers

import (
	"time"

	"k8s.io/client-go/rest"
)

// Options are the settings of a controller process.
type Options struct {
	// Controllers to run: executorpool, or poolsync, hubpool or both.
	Controllers []string
	// Namespace to look after.
	Namespace string
	// RESTConfig reaches the API server.
	RESTConfig *rest.Config
	// MetricsAddr and HealthAddr are HOST:PORT; "0" serves nothing.
	MetricsAddr, HealthAddr string
	// WebhookAddr is HOST:PORT where forges tell of pushes; "0" or empty: nowhere.
	WebhookAddr string
	// EventsAddr is a URL that Events are posted to, as Flux's notification-controller
	// takes them; empty: nowhere.
	EventsAddr string
	// LeaderElect has the process act only while it holds its Lease.
	LeaderElect bool
	// AllowedHubs are URLs or hosts that a pool may name; empty: any https hub.
	AllowedHubs []string
	// RunnerImage is run by pools whose template names no image.
	RunnerImage string
	// CacheDir holds clones of fleet repositories.
	CacheDir string
	// ClusterName is what hubs know the cluster by whose HubPools define pools there;
	// empty: the UID of its namespace kube-system. With another name the cluster is
	// another owner.
	ClusterName string
	// Build and Instance introduce the process to hubs: its version, and what
	// tells it from other replicas.
	Build, Instance string

	// fence is Run's; nil lets everything through.
	fence *fence
	// hubPatience is how long tests wait for a hub's answer; zero: as long as a client
	// does.
	hubPatience time.Duration
}
