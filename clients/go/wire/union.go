package wire

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
)

// unmarshalOne decodes JSON into the first of several pointers whose required fields are all present.
func unmarshalOne(text []byte, targets ...any) error {
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(text, &keys); err != nil {
		return err
	}
	for _, target := range targets {
		slot := reflect.ValueOf(target).Elem()
		made := reflect.New(slot.Type().Elem())
		if hasFields(keys, made.Elem().Type()) {
			slot.Set(made)
			return json.Unmarshal(text, made.Interface())
		}
	}
	return errors.New("none of the types that are known here")
}

// hasFields reports whether all required fields are present.
func hasFields(keys map[string]json.RawMessage, of reflect.Type) bool {
	for at := 0; at < of.NumField(); at++ {
		name, options, _ := strings.Cut(of.Field(at).Tag.Get("json"), ",")
		if _, there := keys[name]; !there && options == "" {
			return false
		}
	}
	return true
}

// marshalOne encodes the value that is set.
func marshalOne(values ...any) ([]byte, error) {
	for _, value := range values {
		if !reflect.ValueOf(value).IsNil() {
			return json.Marshal(value)
		}
	}
	return []byte("null"), nil
}
