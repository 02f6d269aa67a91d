package forge

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
)

// Kind is the software that a repository lies on.
type Kind string

// Kinds of forges.
const (
	GitHub Kind = "github"
	GitLab Kind = "gitlab"
	// Gitea stands for Forgejo too.
	Gitea Kind = "gitea"
)

// Kinds lists the kinds, for usage texts.
func Kinds() []string { return []string{string(GitHub), string(GitLab), string(Gitea)} }

// ErrUnknownForge says that a remote's host does not tell which software it is.
var ErrUnknownForge = errors.New("its host does not say which forge it is: name it, one of github, gitlab and gitea")

// Repository is where statuses of a repository's commits go.
type Repository struct {
	Kind Kind
	// API is the base of the forge's API: https, no slash at its end.
	API string
	// Web is the address of the repository for people: https, without .git.
	Web string
	// Path names the repository on its forge: owner/name, or more of it where
	// GitLab has groups in groups.
	Path string
}

// Locate finds the repository of a Git remote, which is an https, http or ssh
// URL or git@HOST:PATH. Where kind is empty, the host has to tell it. Where api
// is empty, it is where the forge has it on the remote's host.
func Locate(remote string, kind Kind, api string) (Repository, error) {
	host, name, err := split(remote)
	if err != nil {
		return Repository{}, err
	}
	if kind == "" {
		if kind = kindOf(host); kind == "" {
			return Repository{}, fmt.Errorf("the repository lies on %s: %w", host, ErrUnknownForge)
		}
	}
	if err := checkPath(kind, name); err != nil {
		return Repository{}, err
	}
	r := Repository{Kind: kind, Web: "https://" + host + "/" + name, Path: name}
	switch kind {
	case GitHub:
		r.API = githubAPI(host)
	case GitLab:
		r.API = "https://" + host + "/api/v4"
	case Gitea:
		r.API = "https://" + host + "/api/v1"
	default:
		return Repository{}, fmt.Errorf("there is no forge %q: use github, gitlab or gitea", kind)
	}
	if api != "" {
		base, err := url.Parse(api)
		if err != nil || base.Scheme != "https" || base.Host == "" || base.User != nil || base.RawQuery != "" || base.Fragment != "" {
			return Repository{}, errors.New("the address of the forge's API must be an https URL without user information, query or fragment, such as https://git.example.com/api/v4")
		}
		r.API = strings.TrimRight(api, "/")
	}
	return r, nil
}

// Tree is the address at which people see a folder at a revision.
func (r Repository) Tree(revision, folder string) string {
	middle := map[Kind]string{GitHub: "/tree/", GitLab: "/-/tree/", Gitea: "/src/commit/"}[r.Kind]
	link := r.Web + middle + revision
	if folder = path.Clean("/" + folder); folder != "/" {
		link += (&url.URL{Path: folder}).EscapedPath()
	}
	return link
}

// Same says whether two remotes are one repository, by https here and by ssh
// there. What is no remote of a forge is the same as nothing.
func Same(one, other string) bool {
	oneHost, oneName, err := split(one)
	if err != nil {
		return false
	}
	otherHost, otherName, err := split(other)
	if err != nil {
		return false
	}
	oneHost, onePort, _ := strings.Cut(oneHost, ":")
	otherHost, otherPort, _ := strings.Cut(otherHost, ":")
	return oneHost == otherHost && (onePort == otherPort || onePort == "" || otherPort == "") && strings.EqualFold(oneName, otherName)
}

// split takes a remote apart. Its error never quotes the remote, which may hold
// a password.
func split(remote string) (host, name string, err error) {
	if user, rest, scp := strings.Cut(remote, "@"); scp && !strings.Contains(user, "/") && !strings.Contains(rest, "://") {
		host, name, _ = strings.Cut(rest, ":")
	} else if u, err := url.Parse(remote); err == nil && u.Host != "" {
		switch u.Scheme {
		case "https", "http":
			host = u.Host
		case "ssh", "git+ssh":
			// The port of SSH is not that of HTTPS.
			host = u.Hostname()
		}
		name = u.Path
	}
	name = strings.TrimSuffix(strings.Trim(name, "/"), ".git")
	if host == "" || name == "" || strings.ContainsAny(host, "/@ ") {
		return "", "", errors.New("the remote is no https or ssh URL of a repository")
	}
	return strings.ToLower(host), name, nil
}

// checkPath refuses names that would change which path of the API is asked.
func checkPath(kind Kind, name string) error {
	parts := strings.Split(name, "/")
	for _, part := range parts {
		if part == "" || part == "." || part == ".." {
			return fmt.Errorf("%q names no repository", name)
		}
	}
	if len(parts) < 2 || kind != GitLab && len(parts) != 2 {
		return fmt.Errorf("%q names no repository of %s: it is owner/name, as in the URL https://HOST/owner/name", name, kind)
	}
	return nil
}

// kindOf tells the software from a host: the public forges by their names,
// others where the first part of the name is the software's.
func kindOf(host string) Kind {
	host, _, _ = strings.Cut(host, ":")
	switch {
	case host == "github.com", strings.HasSuffix(host, ".ghe.com"):
		return GitHub
	case host == "gitlab.com":
		return GitLab
	case host == "codeberg.org", host == "gitea.com":
		return Gitea
	}
	first, _, more := strings.Cut(host, ".")
	if !more {
		return ""
	}
	switch first {
	case "github":
		return GitHub
	case "gitlab":
		return GitLab
	case "gitea", "forgejo":
		return Gitea
	}
	return ""
}

// githubAPI is where GitHub has its API: apart from the site on its own hosts,
// below it on an Enterprise Server.
func githubAPI(host string) string {
	if host == "github.com" || strings.HasSuffix(host, ".ghe.com") {
		return "https://api." + host
	}
	return "https://" + host + "/api/v3"
}
