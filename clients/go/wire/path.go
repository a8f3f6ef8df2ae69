// Package wire contains the types of all parameters and results. They are generated from the schema of
// the server.
package wire

import (
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// Path is a path, which may contain any bytes. In JSON it is a string if it is UTF-8, and otherwise
// {"bytes": […]}.
type Path string

// MarshalJSON encodes a string, or a list of bytes.
func (p Path) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(p)) {
		return json.Marshal(string(p))
	}
	bytes := make([]int, len(p))
	for at := range bytes {
		bytes[at] = int(p[at])
	}
	return json.Marshal(map[string][]int{"bytes": bytes})
}

// UnmarshalJSON decodes either form.
func (p *Path) UnmarshalJSON(text []byte) error {
	var plain string
	if json.Unmarshal(text, &plain) == nil {
		*p = Path(plain)
		return nil
	}
	var raw struct {
		Bytes []uint16 `json:"bytes"`
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return fmt.Errorf("no path: %w", err)
	}
	bytes := make([]byte, len(raw.Bytes))
	for at, value := range raw.Bytes {
		if value > 255 {
			return fmt.Errorf("no path: %d is no byte", value)
		}
		bytes[at] = byte(value)
	}
	*p = Path(bytes)
	return nil
}

func marshal(value any) ([]byte, error) {
	if value == nil {
		return nil, errors.New("nothing was chosen; use one of the constructors")
	}
	return json.Marshal(value)
}
