// Package podspec turns a pool and a runner into the objects that run it.
//
// In: an ExecutorPool, the hub's id and mint key of a runner, and its token.
// Out: a Pod, the Secret that carries the token, and the anchor that keeps
// busy Pods alive while the pool is deleted; their names and labels; and
// whether a pool's template may be run at all.
//
// Every Pod meets the restricted Pod Security Standard whatever the template
// says. A credential goes into the Secret only, never into a Pod object.
// Nothing here does I/O.
package podspec
