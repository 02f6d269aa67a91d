// Package scaffold writes a fleet repository to begin with.
//
// In go the hub's address, the names of the clusters and where the repository
// will be; out come its files, which pass `cloop fleet check` without a warning
// and are what hub and clusters follow. It overwrites nothing, follows no link
// out of the directory, runs no program and writes no credential.
package scaffold
