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

// No longer line is read by the server.
const maxLineBytes = 64 << 20

// Client makes calls over one `ctrlz rpc`, which it starts when it is first needed and again after it
// ended. Any number of goroutines may use it at the same time. The zero value is ready.
//
// If the server ends while it works on a call, a call that only reads is made once more; any other one
// fails with an *EndedError, because nobody can tell whether it was done. One that the server had no time
// to read is made once more in any case.
type Client struct {
	// Binary is the program. Default: CTRLZ_BINARY, else ctrlz on the PATH.
	Binary string
	// Args are words before `rpc`, such as --data-dir DIR.
	Args []string
	// Env is the environment of the program. Default: that of this one.
	Env []string
	// Timeout limits calls whose context has no deadline. Default: two minutes.
	Timeout time.Duration
	// Grace is how long a cancelled call, or a client that is closed, may take to end. Default: 5 s.
	Grace time.Duration

	mutex  sync.Mutex
	child  *child
	closed bool
}

// Shared is the client that everybody in this process shares who brings none of their own.
var Shared = &Client{}

// Server tells what the server is; starts it if it does not run.
func (c *Client) Server(ctx context.Context) (*wire.Initialized, error) {
	return decode[wire.Initialized](c.Call(ctx, "initialize", json.RawMessage("{}")))
}

// Call calls any method. Parameters and result are JSON.
//
// When the context ends, the call is cancelled in the server, which then has changed nothing. One that
// was done nevertheless gives its result.
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

// Close ends the server, after it has answered everything. No call can be made after this.
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

// probe ends a server that does not even say who it is, so that the next call finds a live one.
func (c *Client) probe(server *child) {
	_, alive := server.ask("initialize", json.RawMessage("{}"))
	select {
	case <-alive:
	case <-time.After(c.grace()):
		server.kill()
	}
}

// running gives the server, started if it does not run. Of several who find it gone, one starts it.
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
	why := "it did not say who it is"
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
		return "it does not say who it is"
	}
	if found.Protocol != wire.Protocol {
		return fmt.Sprintf("it speaks version %d of the protocol and this client version %d; update the older one", found.Protocol, wire.Protocol)
	}
	return ""
}

// onlyReads tells whether a call may be repeated without anybody noticing.
func onlyReads(method string, params json.RawMessage) bool {
	switch wire.Access(method) {
	case "reads":
		return true
	case "records":
		// Comparing two snapshots that are recorded already records nothing.
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

// decode reads a result. That snapshots are switched off is an error of its own.
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
		return nil, fmt.Errorf("an answer that is not as the schema says: %w", err)
	}
	return found, nil
}

func min(a, b int) int {
	if a < b {
		return a
	}
	return b
}
