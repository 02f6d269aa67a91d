// Package access decides who may do what at the hub.
//
// In go the roles that a user has, the scopes of the token that it uses and the
// ceiling of that token; out comes whether a permission holds, for the whole hub
// or for one project, and which fields of a pool's definition go beyond a
// ceiling. The same judgement bounds tokens and Git syncs. The package knows the
// permissions and the built-in roles; it reads no database and does no I/O.
package access
