// Package require contains the assertions of the tests, named as in testify. A failed assertion ends the
// test.
package require

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

// NoError checks that the error is nil.
func NoError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

// NotEmpty checks that a string is not empty.
func NotEmpty(t testing.TB, text string) {
	t.Helper()
	if text == "" {
		t.Fatal("unexpectedly empty")
	}
}

// Len checks the length of a slice.
func Len(t testing.TB, list any, length int) {
	t.Helper()
	if found := reflect.ValueOf(list).Len(); found != length {
		t.Fatalf("%d items instead of %d: %v", found, length, list)
	}
}

// Contains checks that a string contains a substring.
func Contains(t testing.TB, text, part string) {
	t.Helper()
	if !strings.Contains(text, part) {
		t.Fatalf("%q does not contain %q", text, part)
	}
}

// Equal checks that two values are deeply equal.
func Equal(t testing.TB, wanted, found any) {
	t.Helper()
	if !reflect.DeepEqual(wanted, found) {
		t.Fatalf("found\n%#v\ninstead of\n%#v", found, wanted)
	}
}

// ErrorAs checks the type of an error, like errors.As.
func ErrorAs(t testing.TB, err error, target any) {
	t.Helper()
	if !errors.As(err, target) {
		t.Fatalf("%T (%v) instead of %T", err, err, target)
	}
}

// ErrorIs checks the identity of an error, like errors.Is.
func ErrorIs(t testing.TB, err, wanted error) {
	t.Helper()
	if !errors.Is(err, wanted) {
		t.Fatalf("%v instead of %v", err, wanted)
	}
}
