package snapshot_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"example.com/ctrlz/clients/go/internal/require"
	"example.com/ctrlz/clients/go/snapshot"
)

// Code written for the original package works unchanged, except for its imports.
func TestTrackAndPatch(t *testing.T) {
	tmpDir := t.TempDir()
	cfg := snapshot.Config{
		Enabled: true,
		WorkDir: tmpDir,
		DataDir: t.TempDir(),
	}

	os.WriteFile(filepath.Join(tmpDir, "test.txt"), []byte("hello"), 0644)

	hash, err := snapshot.Track(cfg)
	require.NoError(t, err)
	require.NotEmpty(t, hash)

	os.WriteFile(filepath.Join(tmpDir, "test.txt"), []byte("world"), 0644)

	patch, err := snapshot.GetPatch(cfg, hash)
	require.NoError(t, err)
	require.Len(t, patch.Files, 1)
	require.Contains(t, patch.Files[0], "test.txt")
}

func TestTheLocationOfTheStoreIsCompatible(t *testing.T) {
	cfg := lab(t)
	_, err := snapshot.Track(cfg)
	require.NoError(t, err)
	project := sha256.Sum256([]byte(cfg.WorkDir))
	_, err = os.Stat(filepath.Join(cfg.DataDir, "snapshot", hex.EncodeToString(project[:8]), "HEAD"))
	require.NoError(t, err)
}

func TestADisabledConfigReturnsEmptyResultsAndNoError(t *testing.T) {
	// No server is started.
	cfg := snapshot.Config{WorkDir: t.TempDir(), Client: &snapshot.Client{Binary: "/nowhere/ctrlz"}}
	hash, err := snapshot.Track(cfg)
	require.NoError(t, err)
	require.Equal(t, "", hash)
	patch, err := snapshot.GetPatch(cfg, hash)
	require.NoError(t, err)
	require.Len(t, patch.Files, 0)
	text, err := snapshot.Diff(cfg, hash)
	require.NoError(t, err)
	require.Equal(t, "", text)
	diffs, err := snapshot.DiffFull(cfg, hash, hash)
	require.NoError(t, err)
	require.Len(t, diffs, 0)
	require.NoError(t, snapshot.Restore(cfg, hash))
	require.NoError(t, snapshot.Revert(cfg, []snapshot.Patch{patch}))
}

func TestFailedReadsReturnNothingAndCallOnError(t *testing.T) {
	cfg := lab(t)
	var failures []string
	cfg.OnError = func(operation string, err error) {
		failures = append(failures, operation+": "+snapshot.Kind(err))
	}
	unknown := "1111111111111111111111111111111111111111"
	patch, err := snapshot.GetPatch(cfg, unknown)
	require.NoError(t, err)
	require.Equal(t, snapshot.Patch{Hash: unknown}, patch)
	text, err := snapshot.Diff(cfg, "nonsense")
	require.NoError(t, err)
	require.Equal(t, "", text)
	require.Equal(t, []string{"patch: unknown_snapshot", "diff: not_a_hash"}, failures)
}

func TestTypesHaveTheirJSONNames(t *testing.T) {
	text, err := json.Marshal([]any{
		snapshot.Patch{Hash: "h", Files: []string{"/a", "/caf\xe9"}},
		snapshot.FileDiff{File: "a", Before: "b", After: "c", Additions: 1, Deletions: 2},
	})
	require.NoError(t, err)
	require.Equal(t, `[{"hash":"h","files":["/a",{"bytes":[47,99,97,102,233]}]},`+
		`{"file":"a","before":"b","after":"c","additions":1,"deletions":2}]`, string(text))
	var patch snapshot.Patch
	require.NoError(t, json.Unmarshal([]byte(`{"hash":"h","files":["/a",{"bytes":[47,99,97,102,233]}]}`), &patch))
	require.Equal(t, snapshot.Patch{Hash: "h", Files: []string{"/a", "/caf\xe9"}}, patch)
}
