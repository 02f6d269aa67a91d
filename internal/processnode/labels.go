package processnode

import "cloop.dev/cloop/apis/v1alpha1"

// Pods with this label are runners, the only ones that the node runs.
const (
	labelAppName  = v1alpha1.LabelAppName
	runnerAppName = v1alpha1.RunnerAppName
)

// nodeIP is the address of the node and of its Pods, which have no network of
// their own. Nothing listens on it for the node.
const nodeIP = "127.0.0.1"
