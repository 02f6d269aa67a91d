package forge

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"cloop.dev/cloop/internal/printable"
)

// Refusal is a forge's answer other than done.
type Refusal struct {
	// Status is the HTTP status.
	Status int
	// Message is the forge's own, one line, at most maxMessage characters,
	// without the token.
	Message string
	// Remedy is what a person can do; empty where only waiting helps.
	Remedy string
	// Passes says that the same request may be answered otherwise later.
	Passes bool
	// Until is when the forge takes requests again; zero where it does not say.
	Until time.Time
}

// maxMessage bounds what is quoted of a forge's answer, in characters.
const maxMessage = 300

// Error is status, message and remedy in one line.
func (r *Refusal) Error() string {
	text := fmt.Sprintf("the forge answers %d %s", r.Status, http.StatusText(r.Status))
	if r.Message != "" {
		text += " (" + r.Message + ")"
	}
	if !r.Until.IsZero() {
		text += ", no requests before " + r.Until.UTC().Format(time.RFC3339)
	}
	if r.Remedy != "" {
		text += ": " + r.Remedy
	}
	return text
}

func (c *Client) refusal(response *http.Response, body []byte) *Refusal {
	now := c.options.Clock.Now()
	r := &Refusal{Status: response.StatusCode, Message: c.message(body)}
	repository := c.options.Repository
	limited := response.StatusCode == http.StatusTooManyRequests
	if response.StatusCode == http.StatusForbidden {
		limited = spent(response.Header) || response.Header.Get("Retry-After") != "" || strings.Contains(strings.ToLower(r.Message), "rate limit")
	}
	switch {
	case response.StatusCode < 300:
		r.Message, r.Remedy = "", c.notTheAPI()
	case limited:
		r.Passes, r.Until = true, again(response.Header, now)
		if r.Until.IsZero() {
			// GitHub asks for a minute where it does not say more.
			r.Until = now.Add(time.Minute)
		}
	case response.StatusCode == http.StatusBadRequest && strings.Contains(r.Message, "Cannot transition status"):
		// Somebody else has changed the status since GitLab was asked for it.
		r.Passes = true
	case response.StatusCode == http.StatusUnauthorized:
		r.Remedy = "the token is not accepted: put a live one into its file"
	case response.StatusCode == http.StatusForbidden:
		r.Remedy = "give the token's owner the right to write commit statuses of " + repository.Path + ": " + rights[repository.Kind]
	case response.StatusCode == http.StatusNotFound:
		r.Remedy = "check that " + repository.API + " has the repository " + repository.Path + " and that the token may see it: " + rights[repository.Kind]
	case response.StatusCode == http.StatusUnprocessableEntity || response.StatusCode == http.StatusBadRequest:
		r.Remedy = "check that the commit is pushed to " + repository.Web
	case response.StatusCode == http.StatusRequestTimeout || response.StatusCode == http.StatusConflict || response.StatusCode >= 500:
		// GitLab answers 409 while another request holds its lock.
		r.Passes, r.Until = true, again(response.Header, now)
	}
	return r
}

// notTheAPI is what to do about an answer that says done and is none of the
// forge's.
func (c *Client) notTheAPI() string {
	repository := c.options.Repository
	return "but not as " + string(repository.Kind) + "'s API does: " + repository.API + " is probably not its address, or a proxy before it asks for a login: check the address of its API"
}

// errOther is an answer without what the forge's has.
var errOther = errors.New("the answer lacks what the forge's has")

// rights name what each forge asks of a token.
var rights = map[Kind]string{
	GitHub: "`Commit statuses: write` of a fine-grained token, `repo:status` of a classic one, `statuses: write` of a workflow's",
	GitLab: "the scope `api` and the role Developer, or Maintainer where the branch is protected",
	Gitea:  "the scope `write:repository`",
}

// spent says whether a primary limit is used up.
func spent(h http.Header) bool {
	return h.Get("X-RateLimit-Remaining") == "0" || h.Get("RateLimit-Remaining") == "0"
}

// longestWait bounds what a forge may ask for: GitHub's limits are by the hour.
const longestWait = 2 * time.Hour

// again is when the forge takes requests again, by its headers; zero where they
// do not say.
func again(h http.Header, now time.Time) time.Time {
	var at time.Time
	if after := h.Get("Retry-After"); after != "" {
		if seconds, err := strconv.ParseInt(after, 10, 32); err == nil && seconds >= 0 {
			at = now.Add(time.Duration(seconds) * time.Second)
		} else if date, err := http.ParseTime(after); err == nil {
			at = date
		}
	}
	for _, name := range []string{"X-RateLimit-Reset", "RateLimit-Reset"} {
		if !at.IsZero() || !spent(h) {
			break
		}
		if seconds, err := strconv.ParseInt(h.Get(name), 10, 64); err == nil && seconds > 0 {
			at = time.Unix(seconds, 0)
		}
	}
	if at.IsZero() || at.After(now.Add(longestWait)) {
		if !at.IsZero() {
			at = now.Add(longestWait)
		}
		return at
	}
	// A clock behind the forge's would ask again too early, one ahead at once.
	if at.Before(now) {
		at = now
	}
	return at
}

// message is what a forge's body says, in one line.
func (c *Client) message(body []byte) string {
	var answer struct {
		Message json.RawMessage `json:"message"`
		Error   json.RawMessage `json:"error"`
		Errors  []struct {
			Message string `json:"message"`
		} `json:"errors"`
	}
	if json.Unmarshal(body, &answer) != nil {
		// A proxy's page says nothing that the status does not.
		return ""
	}
	text := words(answer.Message)
	if text == "" {
		text = words(answer.Error)
	}
	for _, each := range answer.Errors {
		if each.Message != "" && !strings.Contains(text, each.Message) {
			text += "; " + each.Message
		}
	}
	// A forge, or who poses as one, may answer with what it was sent.
	text = c.sent.Redact(text)
	return shorten(printable.Line(strings.Join(strings.Fields(text), " ")), maxMessage)
}

// words is the text of a message, which GitLab also sends as an object.
func words(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// decodeCombined reads the latest status of each context, as GitHub and Gitea
// give it; they differ in what they call its state. With nothing, no answer at all
// is one: Gitea gives that where a commit has no status.
func decodeCombined(state string, nothing bool) func([]byte) ([]shown, error) {
	return func(body []byte) ([]shown, error) {
		if nothing && len(bytes.TrimSpace(body)) == 0 {
			return nil, nil
		}
		var answer struct {
			Statuses json.RawMessage `json:"statuses"`
		}
		var statuses []map[string]json.RawMessage
		if err := json.Unmarshal(body, &answer); err != nil {
			return nil, err
		}
		if answer.Statuses == nil {
			return nil, errOther
		}
		if err := json.Unmarshal(answer.Statuses, &statuses); err != nil {
			return nil, err
		}
		return each(statuses, "context", state), nil
	}
}

// decodeList reads GitLab's list of a commit's statuses.
func decodeList(body []byte) ([]shown, error) {
	var answer []map[string]json.RawMessage
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, err
	}
	if answer == nil {
		return nil, errOther
	}
	return each(answer, "name", "status"), nil
}

// each reads statuses, whose fields the forges name differently.
func each(statuses []map[string]json.RawMessage, context, state string) []shown {
	out := make([]shown, 0, len(statuses))
	for _, s := range statuses {
		out = append(out, shown{
			context: field(s, context), state: field(s, state),
			description: field(s, "description"), link: field(s, "target_url"),
		})
	}
	return out
}

// decodeOne reads the status that the forge has made.
func decodeOne(context, state string) func([]byte) (shown, error) {
	return func(body []byte) (shown, error) {
		var answer map[string]json.RawMessage
		if err := json.Unmarshal(body, &answer); err != nil {
			return shown{}, err
		}
		made := each([]map[string]json.RawMessage{answer}, context, state)[0]
		if made.context == "" || made.state == "" {
			return made, errOther
		}
		return made, nil
	}
}

// field is a text of a status; empty where it is null or something else.
func field(s map[string]json.RawMessage, name string) string {
	var text string
	if json.Unmarshal(s[name], &text) != nil {
		return ""
	}
	return text
}
