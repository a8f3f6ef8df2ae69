package snapshot_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strconv"
	"strings"
	"testing"

	"example.com/ctrlz/clients/go/internal/require"
	"example.com/ctrlz/clients/go/snapshot"
	"example.com/ctrlz/clients/go/wire"
)

const conformance = "../../conformance"

var madeUp = regexp.MustCompile("^[0-9A-HJKMNP-TV-Z]{26}$")

// The conformance suite of all clients. clients/conformance/README.md describes the vectors.
func TestVectorsReturnTheExpectedResults(t *testing.T) {
	vectors, err := filepath.Glob(filepath.Join(conformance, "vectors/*.json"))
	require.NoError(t, err)
	if len(vectors) == 0 {
		t.Fatal("no vectors found")
	}
	for _, path := range vectors {
		path := path
		t.Run(strings.TrimSuffix(filepath.Base(path), ".json"), func(t *testing.T) { checkVector(t, path) })
	}
}

func checkVector(t *testing.T, path string) {
	var vector struct{ Steps []map[string]any }
	readJSON(t, path, &vector)
	wanted, err := os.ReadFile(strings.TrimSuffix(path, ".json") + ".expected.jsonl")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSuffix(string(wanted), "\n"), "\n")
	found := newRunner(t).run(vector.Steps)
	for at, line := range found {
		if at < len(lines) {
			require.Equal(t, lines[at], line)
		}
	}
	require.Len(t, found, len(lines))
}

func readJSON(t *testing.T, path string, into any) {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, into))
}

type runner struct {
	t        *testing.T
	lab      string
	client   *snapshot.Client
	names    map[string]any
	ids      []string
	volatile []string
}

func newRunner(t *testing.T) *runner {
	lab, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.Mkdir(filepath.Join(lab, "tree"), 0o755))
	r := &runner{t: t, lab: lab, client: &snapshot.Client{}, names: map[string]any{}}
	readJSON(t, filepath.Join(conformance, "volatile.json"), &r.volatile)
	t.Cleanup(func() { r.client.Close() })
	return r
}

func (r *runner) run(steps []map[string]any) []string {
	var lines []string
	for _, step := range steps {
		if line := r.take(step); line != nil {
			lines = append(lines, r.write(r.plain("", line)))
		}
	}
	return lines
}

// write encodes JSON with sorted keys and without unnecessary escapes.
func (r *runner) write(value any) string {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	require.NoError(r.t, encoder.Encode(value))
	return strings.TrimSuffix(text.String(), "\n")
}

func (r *runner) take(step map[string]any) any {
	at := func(kind string) string { return filepath.Join(r.lab, "tree") + "/" + raw(step[kind]) }
	switch {
	case step["write"] != nil:
		require.NoError(r.t, os.MkdirAll(filepath.Dir(at("write")), 0o755))
		require.NoError(r.t, os.WriteFile(at("write"), r.content(step), 0o644))
	case step["remove"] != nil:
		require.NoError(r.t, os.Remove(at("remove")))
	case step["symlink"] != nil:
		require.NoError(r.t, os.Symlink(step["target"].(string), at("symlink")))
	case step["mode"] != nil:
		require.NoError(r.t, os.Chmod(at("mode"), os.FileMode(step["bits"].(float64))))
	case step["read"] != nil:
		content, err := os.ReadFile(at("read"))
		if err != nil {
			return map[string]any{"read": step["read"], "base64": nil}
		}
		return map[string]any{"read": step["read"], "base64": base64.StdEncoding.EncodeToString(content)}
	default:
		return r.call(step)
	}
	return nil
}

func (r *runner) content(step map[string]any) []byte {
	if text, there := step["text"]; there {
		return []byte(text.(string))
	}
	content, err := base64.StdEncoding.DecodeString(step["base64"].(string))
	require.NoError(r.t, err)
	return content
}

func (r *runner) call(step map[string]any) any {
	method := step["call"].(string)
	params := map[string]any{"dir": r.lab + "/tree", "data_dir": r.lab + "/data"}
	for key, value := range r.filled(step["params"]).(map[string]any) {
		params[key] = value
	}
	text, err := json.Marshal(params)
	require.NoError(r.t, err)
	result, err := r.client.Call(context.Background(), method, text)
	var failure *snapshot.Error
	if errors.As(err, &failure) {
		return map[string]any{"call": method, "error": r.throughTypes(failure.Failure)}
	}
	require.NoError(r.t, err)
	typed := wire.NewResult(method)
	if bytes.Contains(result, []byte(`"disabled":true`)) {
		typed = new(wire.Disabled)
	}
	require.NoError(r.t, json.Unmarshal(result, typed))
	value := r.throughTypes(typed)
	if name, there := step["as"]; there {
		r.names[name.(string)] = value
	}
	return map[string]any{"call": method, "result": value}
}

// throughTypes converts a value to the types of this client and back.
func (r *runner) throughTypes(value any) any {
	text, err := json.Marshal(value)
	require.NoError(r.t, err)
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var plain any
	require.NoError(r.t, decoder.Decode(&plain))
	return plain
}

func (r *runner) filled(value any) any {
	switch value := value.(type) {
	case string:
		if strings.HasPrefix(value, "$LAB") {
			return r.lab + strings.TrimPrefix(value, "$LAB")
		}
	case []any:
		items := make([]any, len(value))
		for at, item := range value {
			items[at] = r.filled(item)
		}
		return items
	case map[string]any:
		if reference, there := value["$"]; there {
			return r.referred(reference.(string))
		}
		fields := map[string]any{}
		for key, item := range value {
			fields[key] = r.filled(item)
		}
		return fields
	}
	return value
}

func (r *runner) referred(reference string) any {
	parts := strings.Split(reference, ".")
	found := r.names[parts[0]]
	for _, part := range parts[1:] {
		if list, is := found.([]any); is {
			at, err := strconv.Atoi(part)
			require.NoError(r.t, err)
			found = list[at]
		} else {
			found = found.(map[string]any)[part]
		}
	}
	return found
}

func (r *runner) plain(key string, value any) any {
	for _, volatile := range r.volatile {
		if key == volatile && value != nil {
			return "*"
		}
	}
	switch value := value.(type) {
	case string:
		if madeUp.MatchString(value) {
			return r.number(value)
		}
		return strings.ReplaceAll(value, r.lab, "$LAB")
	case []any:
		// A copy, because later steps refer to the original result.
		items := make([]any, len(value))
		for at, item := range value {
			items[at] = r.plain("", item)
		}
		return items
	case map[string]any:
		keys := make([]string, 0, len(value))
		for key := range value {
			keys = append(keys, key)
		}
		sort.Strings(keys)
		fields := map[string]any{}
		for _, key := range keys {
			fields[key] = r.plain(key, value[key])
		}
		return fields
	}
	return value
}

func (r *runner) number(id string) string {
	for at, known := range r.ids {
		if known == id {
			return fmt.Sprintf("<id %d>", at+1)
		}
	}
	r.ids = append(r.ids, id)
	return fmt.Sprintf("<id %d>", len(r.ids))
}

func raw(path any) string {
	if text, is := path.(string); is {
		return text
	}
	var name []byte
	for _, value := range path.(map[string]any)["bytes"].([]any) {
		name = append(name, byte(value.(float64)))
	}
	return string(name)
}
