// Package hook takes push events of GitHub, GitLab and Gitea and proves them.
//
// In go a request and the secret that the forge was given; out come whether it is
// genuine, what was pushed to, and what tells it from others. It keeps nothing, acts on
// nothing, and shows no secret.
package hook
