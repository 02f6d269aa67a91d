package forge_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	testclock "k8s.io/utils/clock/testing"

	"cloop.dev/cloop/internal/forge"
	"cloop.dev/cloop/internal/forge/forgetest"
	"cloop.dev/cloop/internal/secret"
)

const commit = "0123456789abcdef0123456789abcdef01234567"

var kinds = []forge.Kind{forge.GitHub, forge.GitLab, forge.Gitea}

func client(t *testing.T, f *forgetest.Forge, change func(*forge.Options)) *forge.Client {
	t.Helper()
	repository, err := forge.Locate(f.Remote(), f.Kind, "")
	if err != nil {
		t.Fatal(err)
	}
	o := forge.Options{Repository: repository, Token: secret.New(forgetest.Token), CABundle: f.CABundle(), UserAgent: "cloop/test"}
	if change != nil {
		change(&o)
	}
	c, err := forge.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func status(state forge.State, description string) forge.Status {
	return forge.Status{Revision: commit, Context: "cloop/eu", State: state, Description: description, Link: "https://ci.example.com/1", Branch: "main"}
}

func publish(t *testing.T, c *forge.Client, s forge.Status) bool {
	t.Helper()
	posted, err := c.Publish(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return posted
}

func each(t *testing.T, test func(*testing.T, *forgetest.Forge)) {
	for _, kind := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			f := forgetest.Serve(t, kind)
			test(t, f)
			if malformed := f.Malformed(); len(malformed) > 0 {
				t.Errorf("malformed requests: %s", strings.Join(malformed, "\n"))
			}
		})
	}
}

func TestAStatusIsPostedOnlyWhenItChanges(t *testing.T) {
	each(t, func(t *testing.T, f *forgetest.Forge) {
		c := client(t, f, nil)
		for i, want := range []struct {
			s      forge.Status
			posted bool
		}{
			{status(forge.Pending, "waits"), true},
			{status(forge.Pending, "waits"), false},
			{status(forge.Success, "applied"), true},
			{status(forge.Success, "applied"), false},
			{status(forge.Failure, "does not build"), true},
			{status(forge.Error, "Git is away"), true},
		} {
			if posted := publish(t, c, want.s); posted != want.posted {
				t.Errorf("step %d: posted is %t", i, posted)
			}
		}
		posted := f.Posted()
		states := map[forge.Kind]string{forge.GitLab: "pending success failed failed"}[f.Kind]
		if states == "" {
			states = "pending success failure error"
		}
		var got []string
		for _, p := range posted {
			got = append(got, p.State)
			if p.Revision != commit || p.Context != "cloop/eu" || p.Link != "https://ci.example.com/1" {
				t.Errorf("posted %+v", p)
			}
		}
		if strings.Join(got, " ") != states {
			t.Errorf("posted %v, want %s", got, states)
		}
		if f.Kind == forge.GitLab && posted[0].Branch != "main" {
			t.Error("the status is not filed under its branch")
		}

		// Another process knows from the forge what is posted.
		before := f.Requests()
		if publish(t, client(t, f, nil), status(forge.Error, "Git is away")) {
			t.Error("a restart posts again")
		}
		if f.Requests() != before+1 {
			t.Errorf("a restart took %d requests, not one", f.Requests()-before)
		}
	})
}

func TestWhatIsPostedFitsTheForge(t *testing.T) {
	each(t, func(t *testing.T, f *forgetest.Forge) {
		c := client(t, f, nil)
		s := status(forge.Success, strings.Repeat("größer ", 60)+"\x1b[31m\n")
		s.Link = "https://ci.example.com/" + strings.Repeat("a", 300)
		s.Context = "cloop/" + strings.Repeat("ü", 300)
		publish(t, c, s)
		got := f.Posted()[0]
		limit := map[forge.Kind]int{forge.GitHub: 140, forge.GitLab: 255, forge.Gitea: 255}[f.Kind]
		if n := len([]rune(got.Description)); n > limit || n < limit-2 || !strings.HasSuffix(got.Description, "…") || strings.ContainsAny(got.Description, "\x1b\n") {
			t.Errorf("the description of %d characters is %q", n, got.Description)
		}
		if got.Link != "" || len([]rune(got.Context)) != 255 {
			t.Errorf("posted link %q and a context of %d characters", got.Link, len([]rune(got.Context)))
		}
		// What was cut is recognised.
		if publish(t, client(t, f, nil), s) {
			t.Error("the same is posted again")
		}
	})
}

func TestAStatusIsFoundAmongMany(t *testing.T) {
	each(t, func(t *testing.T, f *forgetest.Forge) {
		for i := range 120 {
			f.Show(forgetest.Posted{Revision: commit, Context: fmt.Sprintf("other/%d", i), State: "success", Branch: "main"})
		}
		if f.Kind == forge.GitHub {
			// It tells contexts by their letters alone.
			f.Show(forgetest.Posted{Revision: commit, Context: "Cloop/EU", State: "success", Description: "applied", Link: "https://ci.example.com/1"})
		} else {
			f.Show(forgetest.Posted{Revision: commit, Context: "cloop/eu", State: "success", Description: "applied", Link: "https://ci.example.com/1", Branch: "main"})
		}
		f.PerPage(20)
		if publish(t, client(t, f, nil), status(forge.Success, "applied")) {
			t.Error("the status was not found")
		}
	})
}

func TestAnothersWordsOfTheSameStateStay(t *testing.T) {
	each(t, func(t *testing.T, f *forgetest.Forge) {
		publish(t, client(t, f, nil), status(forge.Success, "said the hub"))
		s := status(forge.Success, "said the job")
		s.StateOnly = true
		if publish(t, client(t, f, nil), s) {
			t.Error("the same state is posted again")
		}
		s.State = forge.Failure
		if !publish(t, client(t, f, nil), s) {
			t.Error("another state is not posted")
		}
	})
}

func TestGitLabStaysPending(t *testing.T) {
	f := forgetest.Serve(t, forge.GitLab)
	c := client(t, f, nil)
	publish(t, c, status(forge.Pending, "waits"))
	if publish(t, c, status(forge.Pending, "still waits")) {
		t.Error("pending was posted over pending, which GitLab refuses")
	}
	if len(f.Malformed()) > 0 {
		t.Error(f.Malformed())
	}
}

func TestSomebodyElseWasFasterAtGitLab(t *testing.T) {
	f := forgetest.Serve(t, forge.GitLab)
	clock := testclock.NewFakeClock(time.Unix(1_700_000_000, 0))
	c := client(t, f, func(o *forge.Options) { o.Clock, o.Patience = clock, time.Minute })
	f.Answer(nil, func(w http.ResponseWriter, r *http.Request) {
		f.Show(forgetest.Posted{Revision: commit, Context: "cloop/eu", State: "pending", Branch: "main"})
		forgetest.With(http.StatusBadRequest, `{"message":"Cannot transition status via :enqueue from :pending (Reason(s): …)"}`)(w, r)
	})
	posted, err := stepping(t, clock, func() (bool, error) { return c.Publish(t.Context(), status(forge.Pending, "waits")) })
	if err != nil {
		t.Errorf("posted %t: %v", posted, err)
	}
}

// stepping carries a call out while the clock goes on whenever it waits.
func stepping(t *testing.T, clock *testclock.FakeClock, call func() (bool, error)) (bool, error) {
	t.Helper()
	type result struct {
		posted bool
		err    error
	}
	done := make(chan result, 1)
	go func() {
		posted, err := call()
		done <- result{posted, err}
	}()
	poll := time.NewTicker(time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case r := <-done:
			return r.posted, r.err
		case <-poll.C:
			if clock.HasWaiters() {
				clock.Step(10 * time.Second)
			}
		}
	}
}

func TestFailuresThatPassAreTriedAgain(t *testing.T) {
	each(t, func(t *testing.T, f *forgetest.Forge) {
		start := time.Unix(1_700_000_000, 0)
		clock := testclock.NewFakeClock(start)
		c := client(t, f, func(o *forge.Options) { o.Clock, o.Patience = clock, 30*time.Minute })
		f.Answer(
			forgetest.With(http.StatusBadGateway, "<html>"),
			forgetest.With(http.StatusTooManyRequests, `{"message":"slow down"}`, "Retry-After: 90"),
			forgetest.With(http.StatusForbidden, `{"message":"API rate limit exceeded"}`, "X-RateLimit-Remaining: 0",
				"X-RateLimit-Reset: "+strconv.FormatInt(start.Add(10*time.Minute).Unix(), 10)),
			nil, // the statuses are shown
			forgetest.With(http.StatusServiceUnavailable, "", "Retry-After: "+start.Add(15*time.Minute).UTC().Format(http.TimeFormat)),
			func(w http.ResponseWriter, _ *http.Request) { panic(http.ErrAbortHandler) },
		)
		posted, err := stepping(t, clock, func() (bool, error) { return c.Publish(t.Context(), status(forge.Success, "applied")) })
		if err != nil || !posted || len(f.Posted()) != 1 {
			t.Fatalf("posted %t, %d times: %v", posted, len(f.Posted()), err)
		}
		if waited := clock.Since(start); waited < 15*time.Minute || waited > 20*time.Minute {
			t.Errorf("it waited %s, not what the forge asked for", waited)
		}
	})
}

func TestAWaitBeyondThePatienceIsSaid(t *testing.T) {
	f := forgetest.Serve(t, forge.GitHub)
	clock := testclock.NewFakeClock(time.Unix(1_700_000_000, 0))
	c := client(t, f, func(o *forge.Options) { o.Clock, o.Patience = clock, time.Minute })
	f.Answer(forgetest.With(http.StatusForbidden, `{"message":"You have exceeded a secondary rate limit"}`, "Retry-After: 3600"))
	_, err := c.Publish(t.Context(), status(forge.Success, "applied"))
	if err == nil || !strings.Contains(err.Error(), "no requests before 2023-11-14T23:13:20Z") || f.Requests() != 1 {
		t.Errorf("after %d requests: %v", f.Requests(), err)
	}
}

func TestRefusalsSayWhatToDo(t *testing.T) {
	each(t, func(t *testing.T, f *forgetest.Forge) {
		for _, refused := range []struct {
			status int
			body   string
			says   string
		}{
			{http.StatusUnauthorized, `{"message":"Bad credentials ` + forgetest.Token + `"}`, "put a live one into its file"},
			{http.StatusForbidden, `{"message":"Resource not accessible"}`, "the right to write commit statuses of platform/fleet"},
			{http.StatusNotFound, `{"message":"404 Project Not Found"}`, "has the repository platform/fleet"},
			{http.StatusUnprocessableEntity, `{"message":"Validation Failed","errors":[{"message":"No commit found for SHA"}]}`, "No commit found for SHA"},
			{http.StatusBadRequest, `{"message":{"name":["is too long"]}}`, "is too long"},
		} {
			before := f.Requests()
			f.Answer(forgetest.With(refused.status, refused.body))
			_, err := client(t, f, func(o *forge.Options) { o.Patience = time.Hour }).Publish(t.Context(), status(forge.Success, "applied"))
			var refusal *forge.Refusal
			if !errors.As(err, &refusal) || refusal.Status != refused.status || !strings.Contains(err.Error(), refused.says) {
				t.Errorf("%d: %v", refused.status, err)
			}
			if f.Requests() != before+1 {
				t.Errorf("%d was tried again", refused.status)
			}
			if err != nil && strings.Contains(err.Error(), forgetest.Token) {
				t.Errorf("%d: the token is shown: %v", refused.status, err)
			}
		}
	})
}

func TestACommitThatTheForgeLacks(t *testing.T) {
	each(t, func(t *testing.T, f *forgetest.Forge) {
		f.Lacks(commit)
		_, err := client(t, f, nil).Publish(t.Context(), status(forge.Success, "applied"))
		var refusal *forge.Refusal
		if !errors.As(err, &refusal) || refusal.Remedy == "" {
			t.Errorf("posted: %v", err)
		}
	})
}

func TestTheTokenGoesToNoOtherHost(t *testing.T) {
	var asked []string
	other := httptest.NewTLSServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Authorization"))
	}))
	defer other.Close()
	each(t, func(t *testing.T, f *forgetest.Forge) {
		for _, code := range []int{301, 302, 303, 307, 308} {
			for _, at := range [][]http.HandlerFunc{
				{forgetest.With(code, "", "Location: "+other.URL+"/elsewhere")},
				{nil, forgetest.With(code, "", "Location: "+other.URL+"/elsewhere")},
				{forgetest.With(code, "", "Location: "+strings.Replace(f.URL, "https://", "http://", 1))},
			} {
				f.Answer(at...)
				_, err := client(t, f, func(o *forge.Options) { o.Patience = time.Hour }).Publish(t.Context(), status(forge.Success, "applied"))
				if err == nil || !strings.Contains(err.Error(), "must not go") {
					t.Errorf("%d: %v", code, err)
				}
			}
		}
	})
	if len(asked) > 0 {
		t.Errorf("the other host was asked %d times, with %q", len(asked), asked)
	}
}

func TestARenamedRepositoryIsFollowed(t *testing.T) {
	f := forgetest.Serve(t, forge.GitHub)
	for _, code := range []int{301, 307, 308} {
		f.Answer(
			forgetest.With(code, "", "Location: /api/v3/repos/"+forgetest.RepositoryPath+"/commits/"+commit+"/status"),
			nil,
			forgetest.With(code, "", "Location: "+f.URL+"/api/v3/repos/"+forgetest.RepositoryPath+"/statuses/"+commit),
		)
		publish(t, client(t, f, nil), status(forge.Success, strconv.Itoa(code)))
	}
	if len(f.Posted()) != 3 || len(f.Malformed()) != 0 {
		t.Errorf("posted %v, malformed %v", f.Posted(), f.Malformed())
	}
	around := forgetest.With(302, "", "Location: /api/v3/repos/"+forgetest.RepositoryPath+"/commits/"+commit+"/status")
	f.Answer(around, around, around, around)
	if _, err := client(t, f, nil).Publish(t.Context(), status(forge.Pending, "")); err == nil || !strings.Contains(err.Error(), "one address to the next") {
		t.Errorf("in a circle: %v", err)
	}
}

func TestAHostThatIsNotTrusted(t *testing.T) {
	f := forgetest.Serve(t, forge.Gitea)
	_, err := client(t, f, func(o *forge.Options) { o.CABundle, o.Patience = nil, time.Hour }).Publish(t.Context(), status(forge.Success, "applied"))
	if err == nil || !strings.Contains(err.Error(), "certificate") || f.Requests() != 0 {
		t.Errorf("posted: %v", err)
	}
}

// What says done without being the forge's answer is no success, asked or posted.
func TestAnAnswerOfSomethingElse(t *testing.T) {
	each(t, func(t *testing.T, f *forgetest.Forge) {
		for _, body := range []string{"<html>Sign in</html>", "", "{}", "[]", "null", `"ok"`, `{"ok":true}`, `{"statuses":{}}`, `{"status":"success","state":"success","name":"other","context":"other"}`} {
			for _, answer := range []struct {
				to       string
				status   int
				handlers []http.HandlerFunc
				fine     bool
			}{
				{"the question", http.StatusOK, []http.HandlerFunc{forgetest.With(http.StatusOK, body)}, body == "[]" && f.Kind == forge.GitLab || body == "" && f.Kind == forge.Gitea},
				{"the post", http.StatusOK, []http.HandlerFunc{nil, forgetest.With(http.StatusOK, body)}, false},
				{"the post, as made", http.StatusCreated, []http.HandlerFunc{nil, forgetest.With(http.StatusCreated, body)}, false},
				{"the post, taken", http.StatusAccepted, []http.HandlerFunc{nil, forgetest.With(http.StatusAccepted, body)}, false},
			} {
				f.Answer(answer.handlers...)
				s := status(forge.Success, "applied")
				s.Context = "cloop/" + strings.ReplaceAll(answer.to, " ", "-")
				posted, err := client(t, f, func(o *forge.Options) { o.Patience = time.Hour }).Publish(t.Context(), s)
				var refusal *forge.Refusal
				switch {
				case answer.fine:
				case !errors.As(err, &refusal) || posted || refusal.Passes || refusal.Status != answer.status || !strings.Contains(err.Error(), "check the address of its API"):
					t.Errorf("%q to %s: posted %t: %v", body, answer.to, posted, err)
				}
			}
		}
	})
}

func TestStatusesThatNameNoCommit(t *testing.T) {
	f := forgetest.Serve(t, forge.GitHub)
	for _, revision := range []string{"", "main", "0123456", strings.ToUpper(commit), commit + "/../x"} {
		s := status(forge.Success, "")
		s.Revision = revision
		if _, err := client(t, f, nil).Publish(context.Background(), s); err == nil {
			t.Errorf("%q is taken for a commit", revision)
		}
	}
	if f.Requests() != 0 {
		t.Error("it was asked for")
	}
}
