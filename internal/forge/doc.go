// Package forge posts commit statuses to GitHub, GitLab and Gitea, and tells
// which of a repository's addresses is which.
//
// In go a remote URL, a token and what is to be said of a commit; out go
// requests to that forge's API and to no other host, a status only where the
// forge does not show it yet, and errors that say what to do next. It reads no
// file and no environment, knows nothing of pools, and never puts the token
// into an error or sends it where a redirect leads.
//
// Three requests of JSON each way are all that is needed, so it is net/http and
// not a client library for each forge.
package forge
