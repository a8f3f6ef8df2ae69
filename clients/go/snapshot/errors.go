package snapshot

import (
	"errors"
	"fmt"
	"strings"

	"example.com/ctrlz/clients/go/wire"
)

// ErrDisabled says that snapshots are switched off, by Config or by the user.
var ErrDisabled = errors.New("snapshots are switched off")

// ErrClosed says that the client was closed.
var ErrClosed = errors.New("the client is closed")

// Outcome is what is known about a call that was not answered.
type Outcome string

const (
	// NotDone means that nothing was recorded and no file changed.
	NotDone Outcome = "not done"
	// Unknown means that it may have been done. Look before you repeat it.
	Unknown Outcome = "unknown"
)

// Error is a failure that the server answered with.
type Error struct {
	// Method is the method that was called.
	Method string
	// Code is the number that JSON-RPC wants.
	Code int
	// Failure is what the server says about it: a kind to act on, a fault, a hint, a path.
	Failure wire.Error
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s", e.Method, e.Failure.Message) }

// Kind gives the kind of a failure of the server, and "" for any other error.
func Kind(err error) string {
	var failure *Error
	if errors.As(err, &failure) {
		return failure.Failure.Kind
	}
	return ""
}

// NotFoundError says that there is no ctrlz to start.
type NotFoundError struct {
	// Tried is where it was looked for.
	Tried string
	cause error
}

func (e *NotFoundError) Error() string {
	return fmt.Sprintf("cannot start %s: no such program; install ctrlz, or name it in Client.Binary or CTRLZ_BINARY", e.Tried)
}

func (e *NotFoundError) Unwrap() error { return e.cause }

// ProtocolError says that the program that was started speaks another version of the protocol, or is not
// ctrlz.
type ProtocolError struct{ Binary, Why string }

func (e *ProtocolError) Error() string { return fmt.Sprintf("%s cannot be used: %s", e.Binary, e.Why) }

// EndedError says that the server ended before it answered. The next call starts another one.
type EndedError struct {
	Method string
	// Status is how it ended.
	Status string
	// Stderr is what it said last.
	Stderr string
}

func (e *EndedError) Error() string {
	text := fmt.Sprintf("ctrlz ended (%s) before it answered %s", e.Status, e.Method)
	if said := strings.TrimSpace(e.Stderr); said != "" {
		text += ": " + said
	}
	return text
}

// Outcome is unknown: the call was sent and cannot be taken back. One that only reads was tried twice.
func (e *EndedError) Outcome() Outcome { return Unknown }

// CancelledError says that the context of a call ended, or its time was over, before the answer came.
type CancelledError struct {
	Method  string
	Outcome Outcome
	cause   error
}

func (e *CancelledError) Error() string {
	return fmt.Sprintf("no answer to %s: %v (outcome: %s)", e.Method, e.cause, e.Outcome)
}

// Unwrap gives the error of the context.
func (e *CancelledError) Unwrap() error { return e.cause }
