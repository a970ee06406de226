package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"syscall"

	"example.com/weir/internal/status"
)

// ErrNotRunning reports that no job runs over the checkpoints. The error is a NotRunningError.
var ErrNotRunning = errors.New("no job is running here")

// ErrGone reports that a job that was reached ended before it had answered.
var ErrGone = errors.New("the job's process has ended")

// NotRunningError says who ran there last, if somebody did not clean up.
type NotRunningError struct{ Last *Info }

// Error names the last process, if it left something.
func (e *NotRunningError) Error() string {
	if e.Last == nil {
		return ErrNotRunning.Error()
	}
	return fmt.Sprintf("%v (last: %s)", ErrNotRunning, e.Last)
}

// Is reports that the error is ErrNotRunning.
func (e *NotRunningError) Is(target error) bool { return target == ErrNotRunning }

// Client asks a running job.
type Client struct {
	info Info
	http *http.Client
}

// Find finds the job that runs over the checkpoints in a directory. That it once ran there does not
// say that it still does: the first question does.
func Find(dir string) (*Client, error) {
	info, err := readInfo(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &NotRunningError{}
	}
	if err != nil {
		return nil, err
	}
	return &Client{info: info, http: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}, nil
}

// Info is what control.json said.
func (c *Client) Info() Info { return c.info }

// Status asks what the job is doing.
func (c *Client) Status(ctx context.Context) (s status.Status, err error) {
	return s, c.ask(ctx, http.MethodGet, "status", nil, &s)
}

// Stop asks the job to end. It does not wait for it.
func (c *Client) Stop(ctx context.Context, drain bool) error {
	return c.ask(ctx, http.MethodPost, "stop", stopRequest{Drain: drain}, nil)
}

// StopAndWait asks the job to end, and returns how it did once another process may run it. ErrGone
// says that its process ended without an answer.
func (c *Client) StopAndWait(ctx context.Context, drain bool) (o Outcome, err error) {
	return o, c.ask(ctx, http.MethodPost, "stop", stopRequest{Drain: drain, Wait: true}, &o)
}

// Savepoint takes a savepoint, and returns once it is durable.
func (c *Client) Savepoint(ctx context.Context, name string) (s Savepoint, err error) {
	return s, c.ask(ctx, http.MethodPost, "savepoint", savepointRequest{Name: name}, &s)
}

// DeleteSavepoint deletes one.
func (c *Client) DeleteSavepoint(ctx context.Context, name string) error {
	return c.ask(ctx, http.MethodDelete, "savepoint/"+url.PathEscape(name), nil, nil)
}

func (c *Client) ask(ctx context.Context, method, what string, question, into any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+c.info.Address+"/control/"+what, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+c.info.Token)
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unanswered(ctx, err)
	}
	defer resp.Body.Close()
	return c.judge(ctx, resp, into)
}

// unanswered says why nothing came back.
func (c *Client) unanswered(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case errors.Is(err, syscall.ECONNREFUSED):
		return &NotRunningError{Last: &c.info}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		return fmt.Errorf("%w: %s", ErrGone, c.info)
	}
	return fmt.Errorf("job %s (%s): %w", c.info.Job, c.info, err)
}

// longestAnswer bounds what is read of an answer, in bytes.
const longestAnswer = 64 << 20

// judge reads an answer. What comes from somebody else, who has been given the port since, says that
// the job is gone (C4); so does one that does not know the token.
func (c *Client) judge(ctx context.Context, resp *http.Response, into any) error {
	if resp.Header.Get(jobHeader) != c.info.Job || resp.StatusCode == http.StatusUnauthorized {
		return &NotRunningError{Last: &c.info}
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, longestAnswer))
	if err != nil {
		return c.unanswered(ctx, err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		var f failure
		if json.Unmarshal(data, &f) != nil || f.Error == "" {
			f.Error = resp.Status
		}
		return fmt.Errorf("job %s: %s", c.info.Job, f.Error)
	}
	if len(data) == 0 { // the server was closed while the question waited
		return fmt.Errorf("%w: %s", ErrGone, c.info)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(data, into)
}
