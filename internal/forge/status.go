package forge

import (
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"unicode/utf8"

	"cloop.dev/cloop/internal/printable"
)

// State is what a status says.
type State string

// States of a commit.
const (
	// Pending: it is not known yet.
	Pending State = "pending"
	// Success: the commit is what runs.
	Success State = "success"
	// Failure: the commit is at fault.
	Failure State = "failure"
	// Error: something else keeps it from being known.
	Error State = "error"
)

// Status is what is said of a commit.
type Status struct {
	// Revision is the commit: 40 or 64 hexadecimal digits.
	Revision string
	// Context tells this status from others of the commit, such as cloop/eu.
	Context string
	State   State
	// Description is shortened to what the forge takes.
	Description string
	// Link is where people read more, http or https; none where empty.
	Link string
	// Branch is what the commit was seen on; GitLab files the status under it.
	// None where empty.
	Branch string
	// StateOnly leaves a status of the same state as the forge has it, whatever
	// it says: somebody else posts of the same thing in words of his own.
	StateOnly bool
}

var commitHash = regexp.MustCompile(`^([0-9a-f]{40}|[0-9a-f]{64})$`)

func (s Status) check() error {
	switch {
	case !commitHash.MatchString(s.Revision):
		return fmt.Errorf("%q is no commit: a status needs all of its hexadecimal digits", s.Revision)
	case s.Context == "":
		return fmt.Errorf("the status of commit %s has no context", s.Revision)
	}
	return nil
}

const (
	// maxContext and maxLink are what GitHub, GitLab and Gitea keep of either,
	// in characters.
	maxContext = 255
	maxLink    = 255
)

// maxDescription is what each forge takes, in characters. Gitea has no bound of
// its own; its pages show as much.
func maxDescription(kind Kind) int {
	if kind == GitHub {
		return 140
	}
	return 255
}

// fitted is the status as the forge can take it.
func (s Status) fitted(kind Kind) Status {
	s.Context = shorten(printable.Line(s.Context), maxContext)
	s.Description = shorten(printable.Line(strings.Join(strings.Fields(s.Description), " ")), maxDescription(kind))
	// Half of a link leads nowhere.
	if link, err := url.Parse(s.Link); err != nil || utf8.RuneCountInString(s.Link) > maxLink || link.Host == "" || link.Scheme != "https" && link.Scheme != "http" {
		s.Link = ""
	}
	return s
}

// shorten cuts a text to so many characters; an ellipsis shows it.
func shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	characters := []rune(text)
	return strings.TrimRight(string(characters[:most-1]), " ") + "…"
}

// dialect is how a forge is spoken to.
type dialect struct {
	header func(http.Header)
	// shown asks for the statuses that a commit shows under a context, and
	// further pages of them.
	shown func(r Repository, s Status, page int) string
	// fullPage: a page with fewer statuses is the last.
	fullPage int
	// decode reads an answer to it.
	decode func(body []byte) ([]shown, error)
	// made reads the answer to what was posted.
	made func(body []byte) (shown, error)
	// post is where a status goes and what is sent.
	post func(r Repository, s Status) (address string, body any)
	// states: ours → the forge's.
	states map[State]string
}

// shown is one status that a forge has of a commit.
type shown struct {
	context, state, description, link string
}

// perPage is how many statuses a page has; every forge gives as many.
const perPage = 50

// fewest is what a page of a Gitea has at least before there is another: its
// administrator may have set fewer than were asked for.
const fewest = 10

var dialects = map[Kind]dialect{GitHub: githubDialect, GitLab: gitlabDialect, Gitea: giteaDialect}

// statusBody is what GitHub and Gitea take.
type statusBody struct {
	State       string `json:"state"`
	Context     string `json:"context"`
	Description string `json:"description"`
	TargetURL   string `json:"target_url,omitempty"`
}

var githubDialect = combined("state", "per_page", perPage, false, func(h http.Header) {
	h.Set("Accept", "application/vnd.github+json")
	h.Set("X-GitHub-Api-Version", "2022-11-28")
})

var giteaDialect = combined("status", "limit", fewest, true, acceptJSON)

func acceptJSON(h http.Header) { h.Set("Accept", "application/json") }

// combined is the dialect of GitHub, which Gitea took over but for what it calls
// the state of a status that it shows, and the size of a page, and in that it may
// answer nothing.
func combined(state, size string, fullPage int, nothing bool, header func(http.Header)) dialect {
	return dialect{
		header:   header,
		fullPage: fullPage,
		shown: func(r Repository, s Status, page int) string {
			return fmt.Sprintf("%s/repos/%s/commits/%s/status?%s=%d&page=%d", r.API, escaped(r.Path), s.Revision, size, perPage, page)
		},
		decode: decodeCombined(state, nothing),
		made:   decodeOne("context", state),
		post: func(r Repository, s Status) (string, any) {
			return fmt.Sprintf("%s/repos/%s/statuses/%s", r.API, escaped(r.Path), s.Revision),
				statusBody{State: string(s.State), Context: s.Context, Description: s.Description, TargetURL: s.Link}
		},
		states: map[State]string{Pending: "pending", Success: "success", Failure: "failure", Error: "error"},
	}
}

var gitlabDialect = dialect{
	header:   acceptJSON,
	fullPage: perPage,
	shown: func(r Repository, s Status, page int) string {
		query := url.Values{"name": {s.Context}, "per_page": {fmt.Sprint(perPage)}, "page": {fmt.Sprint(page)}}
		if s.Branch != "" {
			query.Set("ref", s.Branch)
		}
		return fmt.Sprintf("%s/projects/%s/repository/commits/%s/statuses?%s", r.API, url.PathEscape(r.Path), s.Revision, query.Encode())
	},
	decode: decodeList,
	made:   decodeOne("name", "status"),
	post: func(r Repository, s Status) (string, any) {
		return fmt.Sprintf("%s/projects/%s/statuses/%s", r.API, url.PathEscape(r.Path), s.Revision), struct {
			State       string `json:"state"`
			Name        string `json:"name"`
			Description string `json:"description"`
			TargetURL   string `json:"target_url,omitempty"`
			Ref         string `json:"ref,omitempty"`
		}{gitlabStates[s.State], s.Context, s.Description, s.Link, s.Branch}
	},
	states: gitlabStates,
}

// gitlabStates: GitLab tells no fault of the commit from any other.
var gitlabStates = map[State]string{Pending: "pending", Success: "success", Failure: "failed", Error: "failed"}

// escaped keeps the slashes of a path.
func escaped(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = url.PathEscape(part)
	}
	return strings.Join(parts, "/")
}

// says tells whether a forge shows a status already. GitLab refuses to go from
// pending to pending, so its text stays as it is there.
func (d dialect) says(kind Kind, s Status, has shown) bool {
	same := has.state == d.states[s.State]
	if kind == GitLab && s.State == Pending {
		return same || has.state == "running" || has.state == "created"
	}
	if s.StateOnly {
		return same
	}
	return same && has.description == s.Description && has.link == s.Link
}

// same tells whether a status has the context of s; GitHub's have no case.
func (d dialect) same(kind Kind, s Status, has shown) bool {
	if kind == GitHub {
		return strings.EqualFold(has.context, s.Context)
	}
	return has.context == s.Context
}
