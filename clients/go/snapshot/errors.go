package snapshot

import (
	"errors"
	"fmt"
	"strings"

	"example.com/ctrlz/clients/go/wire"
)

// ErrDisabled means that snapshots are disabled, by Config or by the user.
var ErrDisabled = errors.New("snapshots are disabled")

// ErrClosed means that the client is closed.
var ErrClosed = errors.New("the client is closed")

// Outcome tells whether a call that was not answered was executed.
type Outcome string

const (
	// NotDone means that nothing was recorded and no file changed.
	NotDone Outcome = "not done"
	// Unknown means that it may have been executed. Check before repeating it.
	Unknown Outcome = "unknown"
)

// Error is an error that the server answered with.
type Error struct {
	// Method is the name of the method.
	Method string
	// Code is the error code of JSON-RPC.
	Code int
	// Failure is the error of the server: its kind, fault, message, hint and path.
	Failure wire.Error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Method, e.Failure.Message) }

// Kind returns the kind of an error of the server, and "" for any other error.
func Kind(err error) string {
	var failure *Error
	if errors.As(err, &failure) {
		return failure.Failure.Kind
	}
	return ""
}

// NotFoundError means that the program ctrlz was not found.
type NotFoundError struct {
	// Tried is the name or path that was tried.
	Tried string
	cause error
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("cannot start %s: program not found; install ctrlz, or set Client.Binary or CTRLZ_BINARY", e.Tried)
}

func (e *NotFoundError) Unwrap() error { return e.cause }

// ProtocolError means that the program uses another version of the protocol, or is not ctrlz.
type ProtocolError struct{ Binary, Why string }

func (e *ProtocolError) Error() string { return fmt.Sprintf("%s cannot be used: %s", e.Binary, e.Why) }

// EndedError means that the server ended before it answered. The next call starts another server.
type EndedError struct {
	Method string
	// Status is the exit status.
	Status string
	// Stderr is the last output on standard error.
	Stderr string
}

func (e *EndedError) Error() string {
	text := fmt.Sprintf("ctrlz ended (%s) before it answered %s", e.Status, e.Method)
	if said := strings.TrimSpace(e.Stderr); said != "" {
		text += ": " + said
	}
	return text
}

// Outcome is unknown: the call was sent and may have been executed. A call that only reads was tried twice.
func (e *EndedError) Outcome() Outcome { return Unknown }

// CancelledError means that the context or the time limit of a call ended before it was answered.
type CancelledError struct {
	Method  string
	Outcome Outcome
	cause   error
}

func (e *CancelledError) Error() string {
	return fmt.Sprintf("no answer to %s: %v (outcome: %s)", e.Method, e.cause, e.Outcome)
}

// Unwrap returns the error of the context.
func (e *CancelledError) Unwrap() error { return e.cause }
