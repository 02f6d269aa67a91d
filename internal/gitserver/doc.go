// Package gitserver serves bare Git repositories over smart HTTP for local
// systems and tests.
//
// In goes a directory of bare repositories; out comes an http.Handler that runs
// git's own http-backend. Whoever reaches the handler may fetch and push: it
// must never be served beyond the machine without a handler in front of it that
// says who is asking.
package gitserver
