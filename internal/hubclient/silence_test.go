package hubclient

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// roundTrip is a connection to a hub.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func hubOf(t *testing.T, f roundTrip) *Client {
	t.Helper()
	c, err := New(Options{URL: "https://hub.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	c.http.Transport = f
	return c
}

// streaming is an answer whose body the test writes, and that breaks with the request.
func streaming(r *http.Request) (*http.Response, *io.PipeWriter) {
	body, w := io.Pipe()
	context.AfterFunc(r.Context(), func() { _ = w.CloseWithError(r.Context().Err()) })
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: body}, w
}

// A hub, or what stands before it, that takes the request and never answers ends the
// watch: nothing else would.
func TestAWatchThatIsNeverAnsweredEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hubOf(t, func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		began := time.Now()
		var last error
		for _, err := range c.PoolWatch(t.Context(), Hello{}) {
			last = err
		}
		if !errors.Is(last, ErrUnavailable) || !strings.Contains(last.Error(), "the hub did not answer in time") {
			t.Errorf("it ended with %v", last)
		}
		if took := time.Since(began); took != defaultTimeout {
			t.Errorf("it ended after %s", took)
		}
	})
}

func TestAWatchThatFallsSilentEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hubOf(t, func(r *http.Request) (*http.Response, error) {
			response, w := streaming(r)
			go func() {
				_, _ = io.WriteString(w, "data: {\"queued\": 3}\n\n")
				for range 20 {
					time.Sleep(15 * time.Second)
					_, _ = io.WriteString(w, ": keep-alive\n\n")
				}
			}()
			return response, nil
		})
		began := time.Now()
		var last error
		snapshots := 0
		for snapshot, err := range c.PoolWatch(t.Context(), Hello{}) {
			if last = err; err != nil {
				continue
			}
			snapshots++
			if snapshot.Queued != 3 {
				t.Errorf("the snapshot is %+v", snapshot)
			}
			// Who is slow to take a snapshot is no silent hub.
			time.Sleep(2 * silence)
		}
		if snapshots != 1 || !errors.Is(last, ErrUnavailable) || !strings.Contains(last.Error(), "nothing has come for 45s") {
			t.Errorf("after %d snapshots it ended with %v", snapshots, last)
		}
		// The comments of five minutes kept it open; they wait in the pipe until the
		// snapshot is taken.
		if took := time.Since(began); took < 5*time.Minute+silence {
			t.Errorf("it ended after %s", took)
		}
	})
}

// A watch that its owner ends says so, and of no hub that is silent.
func TestASilentWatchThatIsEndedSaysThat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := hubOf(t, func(r *http.Request) (*http.Response, error) {
			response, _ := streaming(r)
			return response, nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		for _, err := range c.PoolWatch(ctx, Hello{}) {
			if errors.Is(err, ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it ended with %v", err)
			}
		}
	})
}
