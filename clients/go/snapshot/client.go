package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"example.com/ctrlz/clients/go/wire"
)

// maxLineBytes is the maximum length of a line that the server reads.
const maxLineBytes = 64 << 20

// Client makes calls over one `ctrlz rpc` process, which the first call starts, and which is restarted
// after it ended. Any number of goroutines may use it concurrently. The zero value is ready to use.
//
// If the server dies, a call that only reads is repeated once. Any other call fails with an *EndedError,
// because it is unknown whether it was executed, unless the server cannot have read the request: then it
// is repeated once, too.
type Client struct {
	// Binary is the path of the program. Default: CTRLZ_BINARY, else ctrlz on the PATH.
	Binary string
	// Args are arguments before `rpc`, such as --data-dir DIR.
	Args []string
	// Env is the environment of the program. Default: that of this process.
	Env []string
	// Timeout limits calls whose context has no deadline. Default: two minutes.
	Timeout time.Duration
	// Grace limits the time for a cancelled call to end, and for Close. Default: 5 s.
	Grace time.Duration

	mutex  sync.Mutex
	child  *child
	closed bool
}

// Shared is the client that is used where no other one is given.
var Shared = &Client{}

// Server returns information about the server, and starts it if necessary.
func (c *Client) Server(ctx context.Context) (*wire.Initialized, error) {
	return decode[wire.Initialized](c.Call(ctx, "initialize", json.RawMessage("{}")))
}

// Call calls a method by its name. Parameters and result are JSON.
//
// When the context ends, the call is cancelled in the server, which then has changed nothing. If the call
// finishes anyway, its result is returned.
func (c *Client) Call(ctx context.Context, method string, params json.RawMessage) (json.RawMessage, error) {
	if len(params) > maxLineBytes-1024 {
		message := fmt.Sprintf("the parameters have more than %d bytes", maxLineBytes)
		failure := wire.Error{Kind: "too_large", Fault: wire.FaultProtocol, Message: message}
		return nil, &Error{Method: method, Code: -32700, Failure: failure}
	}
	if _, limited := ctx.Deadline(); !limited {
		limit := c.Timeout
		if limit == 0 {
			limit = 2 * time.Minute
		}
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, limit)
		defer stop()
	}
	given, server, err := c.ask(ctx, method, params)
	if err == nil && given.ended && (given.unread || onlyReads(method, params)) {
		given, server, err = c.ask(ctx, method, params)
	}
	switch {
	case err != nil:
		return nil, err
	case given.ended:
		return nil, &EndedError{Method: method, Status: server.status, Stderr: server.stderr.String()}
	case given.err != nil:
		return nil, failure(method, given.err)
	}
	return given.result, nil
}

// Close ends the server after it has answered all pending calls. Later calls fail.
func (c *Client) Close() error {
	c.mutex.Lock()
	c.closed = true
	server := c.child
	c.mutex.Unlock()
	if server != nil {
		server.end(c.grace())
	}
	return nil
}

func (c *Client) grace() time.Duration {
	if c.Grace == 0 {
		return 5 * time.Second
	}
	return c.Grace
}

func (c *Client) ask(ctx context.Context, method string, params json.RawMessage) (answer, *child, error) {
	if err := ctx.Err(); err != nil {
		return answer{}, nil, &CancelledError{Method: method, Outcome: NotDone, cause: err}
	}
	server, err := c.running()
	if err != nil {
		return answer{}, nil, err
	}
	id, given := server.ask(method, params)
	select {
	case found := <-given:
		return found, server, nil
	case <-ctx.Done():
	}
	server.cancel(id)
	outcome := Unknown
	select {
	case found := <-given:
		if found.err == nil || Kind(failure(method, found.err)) != "cancelled" {
			return found, server, nil
		}
		outcome = NotDone
	case <-time.After(c.grace()):
		go c.probe(server)
	}
	return answer{}, nil, &CancelledError{Method: method, Outcome: outcome, cause: ctx.Err()}
}

// probe kills the server if it does not answer `initialize`, so that the next call starts another one.
func (c *Client) probe(server *child) {
	_, alive := server.ask("initialize", json.RawMessage("{}"))
	select {
	case <-alive:
	case <-time.After(c.grace()):
		server.kill()
	}
}

// running returns the running server. Of several concurrent callers, only one starts it.
func (c *Client) running() (*child, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	if c.child != nil && !c.child.hasEnded() {
		return c.child, nil
	}
	started, err := c.start()
	if err != nil {
		return nil, err
	}
	c.child = started
	return started, nil
}

func (c *Client) start() (*child, error) {
	binary := c.Binary
	if binary == "" {
		binary = os.Getenv("CTRLZ_BINARY")
	}
	if binary == "" {
		binary = "ctrlz"
	}
	server, err := startChild(binary, append(append([]string(nil), c.Args...), "rpc"), c.Env)
	if err != nil {
		return nil, err
	}
	_, given := server.ask("initialize", json.RawMessage(`{"client":"ctrlz (Go)"}`))
	why := "it did not answer `initialize`"
	select {
	case first := <-given:
		why = whyUnusable(first, server)
	case <-time.After(30 * time.Second):
	}
	if why == "" {
		return server, nil
	}
	server.kill()
	<-server.ended
	return nil, &ProtocolError{Binary: binary, Why: why}
}

func whyUnusable(first answer, server *child) string {
	if first.ended {
		return fmt.Sprintf("it ended (%s): %s", server.status, bytes.TrimSpace([]byte(server.stderr.String())))
	}
	var found wire.Initialized
	if err := json.Unmarshal(first.result, &found); err != nil {
		return "its answer to `initialize` is invalid"
	}
	if found.Protocol != wire.Protocol {
		return fmt.Sprintf("it uses version %d of the protocol and this client version %d; update the older one", found.Protocol, wire.Protocol)
	}
	return ""
}

// onlyReads reports whether repeating the call has no side effect.
func onlyReads(method string, params json.RawMessage) bool {
	switch wire.Access(method) {
	case "reads":
		return true
	case "records":
		// With `to`, two existing snapshots are compared and nothing is recorded.
		var hint struct{ To *string }
		return json.Unmarshal(params, &hint) == nil && hint.To != nil
	}
	return method == "initialize"
}

func failure(method string, err *rpcError) error {
	found := &Error{Method: method, Code: err.Code}
	if problem := json.Unmarshal(err.Data, &found.Failure); problem != nil {
		found.Failure = wire.Error{Kind: "unknown", Fault: wire.FaultMachine, Message: string(err.Data)}
	}
	return found
}

// decode reads a result. It returns ErrDisabled if snapshots are disabled.
func decode[T any](result json.RawMessage, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	var disabled wire.Disabled
	if bytes.Contains(result[:min(len(result), 64)], []byte(`"disabled":true`)) {
		if json.Unmarshal(result, &disabled) == nil && disabled.Disabled {
			return nil, ErrDisabled
		}
	}
	found := new(T)
	if err := json.Unmarshal(result, found); err != nil {
		return nil, fmt.Errorf("the answer does not match the schema: %w", err)
	}
	return found, nil
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}
