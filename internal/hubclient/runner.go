package hubclient

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	"cloop.dev/cloop/apis/hubv1"
)

// Enroll redeems a runner token. It needs no client token; go on with
// WithToken and the session of the answer.
func (c *Client) Enroll(ctx context.Context, request hubv1.EnrollRequest) (hubv1.EnrollResponse, error) {
	return post[hubv1.EnrollResponse](ctx, c, "/runner/v1/enroll", request)
}

// RunnerWatch yields what the session's runner needs to know, at once and
// whenever it changes. While it is open the hub may hand the runner a run.
func (c *Client) RunnerWatch(ctx context.Context) iter.Seq2[hubv1.RunnerSnapshot, error] {
	return watch[hubv1.RunnerSnapshot](ctx, c, "/runner/v1/watch", nil)
}

// Heartbeat renews the runner's lease.
func (c *Client) Heartbeat(ctx context.Context) (hubv1.HeartbeatResponse, error) {
	return repeat[hubv1.HeartbeatResponse](ctx, c, "/runner/v1/heartbeat", nil)
}

// RunStarted says that the run's command has started.
func (c *Client) RunStarted(ctx context.Context, run string, request hubv1.StartedRequest) error {
	return c.do(ctx, call{
		method: http.MethodPost, path: "/runner/v1/runs/" + segment(run) + "/started", body: request, repeatable: true,
	}, nil)
}

// AppendLog appends at most 1 MiB of log at the offset and returns the offset
// to go on from. A problem with hubv1.CodeLogOffset carries the offset that the
// hub expects instead.
func (c *Client) AppendLog(ctx context.Context, run string, offset int64, data []byte) (int64, error) {
	if data == nil {
		data = []byte{}
	}
	var out hubv1.LogResponse
	err := c.do(ctx, call{
		method: http.MethodPost, path: "/runner/v1/runs/" + segment(run) + "/logs",
		query: url.Values{"offset": {number(offset)}}, raw: data, repeatable: true,
	}, &out)
	return out.Offset, err
}

// RunResult settles the run.
func (c *Client) RunResult(ctx context.Context, run string, request hubv1.ResultRequest) error {
	return c.do(ctx, call{
		method: http.MethodPost, path: "/runner/v1/runs/" + segment(run) + "/result", body: request, repeatable: true,
	}, nil)
}

// Bye is the runner's last word: its session ends.
func (c *Client) Bye(ctx context.Context, reason string) error {
	return c.do(ctx, call{method: http.MethodPost, path: "/runner/v1/bye", body: hubv1.ByeRequest{Reason: reason}, repeatable: true}, nil)
}
