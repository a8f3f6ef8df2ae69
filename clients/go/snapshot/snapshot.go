// Package snapshot records the state of a directory and restores it: Ctrl-Z for coding agents.
//
// It is a thin client of one `ctrlz rpc` process, which the first call starts. The functions that take a
// Config are for agents that must continue after any failure: with Enabled=false hashes are empty and
// there is no error, and functions that read return nothing on failure. The …Context functions return
// every error, typed.
package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"

	"example.com/ctrlz/clients/go/wire"
)

// Patch lists the files that changed since a snapshot.
type Patch struct {
	Hash string `json:"hash"`
	// Files are absolute paths.
	Files []string `json:"files"`
}

// FileDiff is a changed file with both texts, which are empty for binary files.
type FileDiff struct {
	// File is relative to the work tree.
	File      string `json:"file"`
	Before    string `json:"before"`
	After     string `json:"after"`
	Additions int    `json:"additions"`
	Deletions int    `json:"deletions"`
}

// Config is the configuration of a protected directory.
type Config struct {
	// Enabled enables snapshots. The zero Config does nothing.
	Enabled bool
	// WorkDir is the protected directory.
	WorkDir string
	// DataDir contains the store, in snapshot/<hash of WorkDir>. Default: the store of the user, which the
	// command line uses, too.
	DataDir string

	// Options override the user's configuration in every call: exclude patterns, limits and so on.
	Options *wire.CallOptions
	// Client is the client to use. Default: Shared.
	Client *Client
	// OnError receives errors that a function does not return.
	OnError func(operation string, err error)
}

// Place returns all methods of the server for this configuration.
func (cfg Config) Place() (Place, error) {
	dir, err := filepath.Abs(cfg.WorkDir)
	if err != nil {
		return Place{}, err
	}
	place := Place{Client: cfg.Client}
	place.Dir = wire.Path(dir)
	place.WorkTree = wire.WorkTreeDir
	place.Options = cfg.Options
	if cfg.DataDir != "" {
		data, err := filepath.Abs(cfg.DataDir)
		if err != nil {
			return Place{}, err
		}
		project := sha256.Sum256([]byte(dir))
		place.Store = wire.Path(filepath.Join(data, "snapshot", hex.EncodeToString(project[:8])))
	}
	return place, nil
}

// Track records the work tree and returns the hash; "" if snapshots are disabled.
func Track(cfg Config) (string, error) { return TrackContext(context.Background(), cfg) }

// TrackContext is Track with a context.
func TrackContext(ctx context.Context, cfg Config) (string, error) {
	if !cfg.Enabled {
		return "", nil
	}
	place, err := cfg.Place()
	if err != nil {
		return "", err
	}
	recorded, err := place.Track(ctx, wire.TrackParams{})
	if errors.Is(err, ErrDisabled) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return recorded.Hash, nil
}

// GetPatch returns the files that changed since a snapshot. On failure it returns an empty patch and calls
// OnError.
func GetPatch(cfg Config, hash string) (Patch, error) {
	patch, err := GetPatchContext(context.Background(), cfg, hash)
	cfg.report("patch", err)
	return patch, nil
}

// GetPatchContext is GetPatch with a context, and returns every error.
func GetPatchContext(ctx context.Context, cfg Config, hash string) (Patch, error) {
	patch := Patch{Hash: hash}
	place, err := cfg.reading(hash)
	if err != nil {
		return patch, ignoreDisabled(err)
	}
	found, err := place.Patch(ctx, wire.PatchParams{Hash: hash, Relative: true})
	if err != nil {
		return patch, ignoreDisabled(err)
	}
	for _, file := range found.Files {
		patch.Files = append(patch.Files, filepath.Join(cfg.WorkDir, string(file)))
	}
	return patch, nil
}

// Restore restores the files of a snapshot, and keeps files created since.
func Restore(cfg Config, hash string) error { return RestoreContext(context.Background(), cfg, hash) }

// RestoreContext is Restore with a context.
func RestoreContext(ctx context.Context, cfg Config, hash string) error {
	place, err := cfg.reading(hash)
	if err != nil {
		return ignoreDisabled(err)
	}
	_, err = place.Restore(ctx, wire.RestoreParams{Hash: hash})
	return ignoreDisabled(err)
}

// Revert restores single files, each to the hash of the first patch that lists it. Files that did not
// exist in the snapshot are removed.
func Revert(cfg Config, patches []Patch) error {
	return RevertContext(context.Background(), cfg, patches)
}

// RevertContext is Revert with a context.
func RevertContext(ctx context.Context, cfg Config, patches []Patch) error {
	place, err := cfg.Place()
	if err != nil {
		return err
	}
	params := wire.RevertParams{Patches: []wire.PatchParam{}}
	for _, patch := range patches {
		// A patch without a hash was made while snapshots were disabled.
		if patch.Hash == "" {
			continue
		}
		files := make([]wire.Path, len(patch.Files))
		for at, file := range patch.Files {
			files[at] = wire.Path(file)
		}
		params.Patches = append(params.Patches, wire.PatchParam{Hash: patch.Hash, Files: files})
	}
	if len(params.Patches) == 0 {
		return nil
	}
	_, err = place.Revert(ctx, params)
	return err
}

// Diff returns the difference from a snapshot as a patch that `git apply` accepts. On failure it returns ""
// and calls OnError.
func Diff(cfg Config, hash string) (string, error) {
	text, err := DiffContext(context.Background(), cfg, hash)
	cfg.report("diff", err)
	return text, nil
}

// DiffContext is Diff with a context, and returns every error.
func DiffContext(ctx context.Context, cfg Config, hash string) (string, error) {
	place, err := cfg.reading(hash)
	if err != nil {
		return "", ignoreDisabled(err)
	}
	text, err := diffText(ctx, place, hash, "")
	return text, ignoreDisabled(err)
}

func diffText(ctx context.Context, place Place, from, to string) (string, error) {
	var text strings.Builder
	err := pages(func(offset int64) (*int64, error) {
		page, err := place.Diff(ctx, wire.CompareParams{From: from, To: to, Offset: offset})
		if err != nil {
			return nil, err
		}
		text.WriteString(page.Text)
		// All pages compare the same two snapshots, even if files change meanwhile.
		to = page.To
		return page.Next, nil
	})
	return text.String(), err
}

// DiffFull returns every file that differs between two snapshots, with both texts.
func DiffFull(cfg Config, from, to string) ([]FileDiff, error) {
	return DiffFullContext(context.Background(), cfg, from, to)
}

// DiffFullContext is DiffFull with a context.
func DiffFullContext(ctx context.Context, cfg Config, from, to string) ([]FileDiff, error) {
	place, err := cfg.reading(from)
	if err != nil {
		return nil, ignoreDisabled(err)
	}
	var diffs []FileDiff
	err = pages(func(offset int64) (*int64, error) {
		page, err := place.DiffFull(ctx, wire.CompareParams{From: from, To: to, Offset: offset})
		if err != nil {
			return nil, err
		}
		diffs = append(diffs, fileDiffs(page.Files)...)
		to = page.To
		return page.Next, nil
	})
	return diffs, ignoreDisabled(err)
}

func fileDiffs(files []wire.FileDiff) []FileDiff {
	diffs := make([]FileDiff, len(files))
	for at, file := range files {
		diffs[at] = FileDiff{
			File:      string(file.File),
			Before:    file.Before,
			After:     file.After,
			Additions: int(file.Additions),
			Deletions: int(file.Deletions),
		}
	}
	return diffs
}

// reading returns the place for a hash. An empty hash means that snapshots are disabled.
func (cfg Config) reading(hash string) (Place, error) {
	if hash == "" {
		return Place{}, ErrDisabled
	}
	return cfg.Place()
}

func (cfg Config) report(operation string, err error) {
	if err != nil && cfg.OnError != nil {
		cfg.OnError(operation, err)
	}
}

func ignoreDisabled(err error) error {
	if errors.Is(err, ErrDisabled) {
		return nil
	}
	return err
}

// wirePatch is a Patch whose paths survive JSON even if they are not UTF-8.
type wirePatch struct {
	Hash  string      `json:"hash"`
	Files []wire.Path `json:"files"`
}

// MarshalJSON preserves names that are not UTF-8.
func (p Patch) MarshalJSON() ([]byte, error) {
	kept := wirePatch{Hash: p.Hash}
	for _, file := range p.Files {
		kept.Files = append(kept.Files, wire.Path(file))
	}
	return json.Marshal(kept)
}

// UnmarshalJSON reads the output of MarshalJSON, and any list of strings.
func (p *Patch) UnmarshalJSON(text []byte) error {
	var kept wirePatch
	if err := json.Unmarshal(text, &kept); err != nil {
		return err
	}
	*p = Patch{Hash: kept.Hash}
	for _, file := range kept.Files {
		p.Files = append(p.Files, string(file))
	}
	return nil
}
