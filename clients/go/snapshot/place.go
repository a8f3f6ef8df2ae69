package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"example.com/ctrlz/clients/go/wire"
)

// Place is a work tree with the location of its store and the client to use. It has all methods of the
// server. If snapshots are disabled, methods that record return ErrDisabled.
type Place struct {
	wire.Place
	// Client is the client to use. Default: Shared.
	Client *Client
}

func (p Place) client() *Client {
	if p.Client == nil {
		return Shared
	}
	return p.Client
}

func call[T any](ctx context.Context, p Place, method string, params any) (*T, error) {
	merged, err := merge(p.Place, params)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	return decode[T](p.client().Call(ctx, method, merged))
}

// merge encodes two structs as one JSON object.
func merge(parts ...any) (json.RawMessage, error) {
	merged := []byte{'{'}
	for _, part := range parts {
		text, err := json.Marshal(part)
		if err != nil {
			return nil, err
		}
		fields := bytes.TrimSuffix(bytes.TrimPrefix(text, []byte{'{'}), []byte{'}'})
		if len(fields) > 0 && len(merged) > 1 {
			merged = append(merged, ',')
		}
		merged = append(merged, fields...)
	}
	return append(merged, '}'), nil
}

// pages requests all pages of a result. ask receives an offset and returns the next one.
func pages(ask func(offset int64) (next *int64, err error)) error {
	var offset int64
	for {
		next, err := ask(offset)
		if err != nil || next == nil {
			return err
		}
		offset = *next
	}
}
