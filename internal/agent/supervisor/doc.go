// Package supervisor runs one command so that nothing of it is left when it is
// over, whoever dies first.
//
// The agent starts itself again as a small process, ahead of time, and later
// sends it the command over a socket. That process is the subreaper of
// everything the command starts: it starts the command in a session of its own,
// waits for all of its descendants, passes signals on, and on request, or when
// the socket ends because the agent died, kills whatever is left. Standard
// output and error share one pipe, so their order is exact.
//
// In go an argument vector, a directory and an environment; out come when it
// started, how it ended and the pipe. The package never interprets output, never
// keeps a file and never holds a credential: the supervising process gets the
// environment it is started with and nothing else of the agent.
package supervisor
