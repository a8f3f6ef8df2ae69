// Package snapshot records the state of a directory and brings it back: Ctrl-Z for coding agents.
//
// It is a thin client over one `ctrlz rpc`, which it starts when it is first needed. The functions that
// take a Config are made for agents that must go on whatever happens: Enabled=false gives empty hashes
// and no error, and reading degrades to nothing. The …Context functions give every error, typed.
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

// Patch is a snapshot, and the files that changed since.
type Patch struct {
	Hash string `json:"hash"`
	// Files are absolute paths.
	Files []string `json:"files"`
}

// FileDiff is one changed file with both its texts; both are empty for binary files.
type FileDiff struct {
	// File is relative to the work tree.
	File      string `json:"file"`
	Before    string `json:"before"`
	After     string `json:"after"`
	Additions int    `json:"additions"`
	Deletions int    `json:"deletions"`
}

// Config says what is protected, and where snapshots lie.
type Config struct {
	// Enabled switches snapshots on. The zero Config does nothing.
	Enabled bool
	// WorkDir is the directory to protect.
	WorkDir string
	// DataDir holds the store, in snapshot/<hash of WorkDir>. Default: the user's own store, which the
	// command line sees, too.
	DataDir string

	// Options are for every call, over the user's configuration: exclude patterns, limits and so on.
	Options *wire.CallOptions
	// Client is asked. Default: Shared.
	Client *Client
	// OnError is told of failures that a function does not return.
	OnError func(operation string, err error)
}

// Place gives every method of the server for this configuration.
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

// Track records the work tree and gives the hash; "" where snapshots are switched off.
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

// GetPatch gives the files that changed since a snapshot. A failure is an empty patch; OnError hears of it.
func GetPatch(cfg Config, hash string) (Patch, error) {
	patch, err := GetPatchContext(context.Background(), cfg, hash)
	cfg.report("patch", err)
	return patch, nil
}

// GetPatchContext is GetPatch with a context, and gives every error.
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

// Restore brings files back to a snapshot, and keeps those created since.
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

// Revert takes single files back, each to the first patch that names it. What a snapshot proves not to
// have existed is removed.
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
		// Made while snapshots were switched off, it says nothing.
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

// Diff gives what differs from a snapshot, as text that `git apply` accepts. A failure is an empty text;
// OnError hears of it.
func Diff(cfg Config, hash string) (string, error) {
	text, err := DiffContext(context.Background(), cfg, hash)
	cfg.report("diff", err)
	return text, nil
}

// DiffContext is Diff with a context, and gives every error.
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
		// Always about the same two snapshots, also if files change meanwhile.
		to = page.To
		return page.Next, nil
	})
	return text.String(), err
}

// DiffFull gives every file that differs between two snapshots, with both its texts.
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

// reading gives the place for a hash; an empty one comes from where snapshots are switched off.
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

// wirePatch is a Patch whose paths survive JSON also where they are not UTF-8.
type wirePatch struct {
	Hash  string      `json:"hash"`
	Files []wire.Path `json:"files"`
}

// MarshalJSON keeps names that are not UTF-8.
func (p Patch) MarshalJSON() ([]byte, error) {
	kept := wirePatch{Hash: p.Hash}
	for _, file := range p.Files {
		kept.Files = append(kept.Files, wire.Path(file))
	}
	return json.Marshal(kept)
}

// UnmarshalJSON reads what MarshalJSON wrote, and any list of texts.
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
