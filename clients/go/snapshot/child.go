package snapshot

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os/exec"
	"sync"
	"time"
)

// stderrBytes is the size of the end of standard error that is kept.
const stderrBytes = 4096

// A child is a process `ctrlz rpc`: one request and one answer per line. Restarts and timeouts are up to
// the caller.
type child struct {
	command *exec.Cmd
	// Closed once the process has ended, is reaped, and its output has been read.
	ended chan struct{}

	writing sync.Mutex
	stdin   io.WriteCloser

	mutex   sync.Mutex
	waiting map[int64]chan answer
	// Requests that are being written. If the process ends, the writing goroutine reports their outcome.
	sending map[int64]bool
	nextID  int64
	over    bool
	deaf    bool
	status  string
	stderr  tail
}

// An answer is the outcome of a request: a result, an error, or the end of the process.
type answer struct {
	result json.RawMessage
	err    *rpcError
	ended  bool
	// Whether the process cannot have read the whole request, so that nothing was done.
	unread bool
}

type rpcError struct {
	Code int             `json:"code"`
	Data json.RawMessage `json:"data"`
}

type message struct {
	ID     *int64          `json:"id"`
	Method string          `json:"method"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
}

func startChild(binary string, words, env []string) (*child, error) {
	command := exec.Command(binary, words...)
	command.Env = env
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", binary, err)
	}
	stdout, err := command.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start %s: %w", binary, err)
	}
	c := &child{
		command: command,
		stdin:   stdin,
		ended:   make(chan struct{}),
		waiting: map[int64]chan answer{},
		sending: map[int64]bool{},
	}
	command.Stderr = &c.stderr
	if err := command.Start(); err != nil {
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil, &NotFoundError{Tried: binary, cause: err}
		}
		return nil, fmt.Errorf("cannot start %s: %w", binary, err)
	}
	go c.read(stdout)
	return c, nil
}

func (c *child) pid() int { return c.command.Process.Pid }

func (c *child) hasEnded() bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.over || c.deaf
}

// ask sends a request. The channel always receives an answer, at the latest when the process ends.
func (c *child) ask(method string, params json.RawMessage) (int64, <-chan answer) {
	given := make(chan answer, 1)
	c.mutex.Lock()
	c.nextID++
	id, over := c.nextID, c.over
	c.waiting[id] = given
	c.sending[id] = true
	c.mutex.Unlock()
	sent := !over && c.write(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.sending, id)
	// A failed write means that the process is dead, even if it is not reaped yet.
	c.deaf = c.deaf || !sent
	if _, waits := c.waiting[id]; waits && (c.over || !sent) {
		delete(c.waiting, id)
		given <- answer{ended: true, unread: !sent}
	}
	return id, given
}

func (c *child) cancel(id int64) {
	c.write(map[string]any{"jsonrpc": "2.0", "method": "cancel", "params": map[string]any{"id": id}})
}

// write returns whether the whole line was written. If not, the process cannot have read it.
func (c *child) write(message any) bool {
	line, err := json.Marshal(message)
	if err != nil {
		// Unreachable: the parameters are valid JSON, and the other values are plain.
		panic(err)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_, err = c.stdin.Write(append(line, '\n'))
	return err == nil
}

// end ends the process: by end of input, then by SIGKILL. Afterwards it is reaped.
func (c *child) end(grace time.Duration) {
	c.writing.Lock()
	_ = c.stdin.Close()
	c.writing.Unlock()
	select {
	case <-c.ended:
	case <-time.After(grace):
		c.kill()
		<-c.ended
	}
}

func (c *child) kill() {
	// Kill fails only if the process has already ended.
	_ = c.command.Process.Kill()
}

func (c *child) read(stdout io.Reader) {
	lines := bufio.NewReaderSize(stdout, 1<<16)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		if err := c.receive(line); err != nil {
			fmt.Fprintf(&c.stderr, "it printed %.100q, which is not a message", line)
			c.kill()
			break
		}
	}
	err := c.command.Wait()
	c.mutex.Lock()
	c.over = true
	c.status = "exit status 0"
	if err != nil {
		c.status = err.Error()
	}
	for id, given := range c.waiting {
		if !c.sending[id] {
			delete(c.waiting, id)
			given <- answer{ended: true}
		}
	}
	c.mutex.Unlock()
	close(c.ended)
}

func (c *child) receive(line []byte) error {
	var received message
	if err := json.Unmarshal(line, &received); err != nil {
		return err
	}
	if received.Method != "" {
		return nil
	}
	for _, given := range c.take(received.ID) {
		given <- answer{result: received.Result, err: received.Error}
	}
	return nil
}

// take removes and returns the pending request with this id. An answer without an id means that a request
// could not be parsed. It does not say which one, so all of them fail.
func (c *child) take(id *int64) []chan answer {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var taken []chan answer
	for known, given := range c.waiting {
		if id == nil || *id == known {
			taken = append(taken, given)
			delete(c.waiting, known)
		}
	}
	return taken
}

// A tail is a writer that keeps only the end of its input.
type tail struct {
	mutex sync.Mutex
	text  []byte
}

func (t *tail) Write(text []byte) (int, error) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.text = append(t.text, text...)
	if len(t.text) > stderrBytes {
		t.text = append([]byte(nil), t.text[len(t.text)-stderrBytes:]...)
	}
	return len(text), nil
}

func (t *tail) String() string {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return string(t.text)
}
