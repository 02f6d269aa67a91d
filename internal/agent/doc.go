// Package agent is the runner: what a runner Pod executes.
//
// In go the Pod's environment (options.go) and a token that works once; out come
// the log and the result of at most one run, and a one-line report for
// Kubernetes. The parts, in the order of a runner's life:
//
//	enroll.go     redeems the token for a session, which stays in memory
//	contact.go    heartbeats, and the fence: no contact, no run
//	runner.go     the one loop that decides; everything else reports to it
//	workspace.go  directories and processes made ready before a run arrives
//	fetch.go      one commit over HTTPS with few round trips; gitcli.go where
//	              the server does not speak that protocol
//	job.go        one run from assignment to verdict
//	execute.go    the command, through package supervisor
//	spool.go      log bytes between command and hub, bounded; mask.go hides
//	              credentials in them; logs.go appends them at the hub
//	report.go     the termination report
//
// It talks to the hub and to the project's Git server, and to nothing else. It
// never writes a credential to a file, an argument or a child's environment,
// never takes a second run, and never lets a run live past the point where the
// hub may give it to somebody else.
package agent
