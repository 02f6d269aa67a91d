// Package doctor judges how a hub and its pools are.
//
// In goes a Snapshot, which whoever runs the hub has read from the database, the
// disk, the certificate and the syncs; out come findings, each with its stable
// id, what it means, what was found, and what to do about it. It is pure: it
// reads nothing, has no clock, and changes nothing. A finding never holds a
// credential.
package doctor
