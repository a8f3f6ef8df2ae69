package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"example.com/ctrlz/clients/go/wire"
)

// Place is a work tree, where its snapshots lie, and who is asked. It has every method of the server;
// where snapshots are switched off, those that record answer ErrDisabled.
type Place struct {
	wire.Place
	// Client is asked. Default: Shared.
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

// merge writes two structs as one object.
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

// pages calls until the last page of a long answer. ask is given an offset and gives the next one.
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
