// Package processnode is a Kubernetes node without containers: it runs runner
// Pods as processes of the user who started it. The tests and cloop dev use
// it where no container runtime may be had.
//
// In go Pods that the scheduler bound to the node; out come processes, and
// Pod statuses as a kubelet would write them. It honours what a runner Pod is
// made of: init containers, Secrets, emptyDirs and claims as directories,
// environment, arguments, termination message, grace period, deadline, exit
// codes. A container has no filesystem of its own, so every path that lies
// below one of its mounts is replaced in its environment and arguments by the
// directory that stands for the mount. Its image is not pulled: the program
// "cloop" is Options.Executable.
//
// Nothing is isolated: see unenforced for what a Pod asks for in vain. It must
// run only Pods labelled as runners, which it makes sure of: others stay Pending
// and are told what to do. It must never be used for code that its user does not trust. The kubelet's own API (logs,
// exec, port-forward) is not served; output is in Dir/pods.
package processnode
