package snapshot_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"example.com/ctrlz/clients/go/internal/require"
	"example.com/ctrlz/clients/go/snapshot"
	"example.com/ctrlz/clients/go/wire"
)

func track(t *testing.T, cfg snapshot.Config) string {
	t.Helper()
	hash, err := snapshot.Track(cfg)
	require.NoError(t, err)
	return hash
}

func TestFilesAreRevertedAndRestored(t *testing.T) {
	cfg := lab(t)
	write(t, cfg, "a", "one\n")
	before := track(t, cfg)
	write(t, cfg, "a", "two\n")
	write(t, cfg, "new", "new\n")
	patch, err := snapshot.GetPatchContext(context.Background(), cfg, before)
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(cfg.WorkDir, "a"), filepath.Join(cfg.WorkDir, "new")}, patch.Files)
	after := track(t, cfg)

	text, err := snapshot.Diff(cfg, before)
	require.NoError(t, err)
	require.Contains(t, text, "-one\n+two\n")
	diffs, err := snapshot.DiffFull(cfg, before, after)
	require.NoError(t, err)
	require.Equal(t, []snapshot.FileDiff{
		{File: "a", Before: "one\n", After: "two\n", Additions: 1, Deletions: 1},
		{File: "new", Before: "", After: "new\n", Additions: 1},
	}, diffs)

	require.NoError(t, snapshot.Revert(cfg, []snapshot.Patch{patch}))
	require.Equal(t, "one\n", read(t, cfg, "a"))
	require.Equal(t, false, exists(cfg, "new"))
	require.NoError(t, snapshot.Restore(cfg, after))
	require.Equal(t, "two\n", read(t, cfg, "a"))
}

func TestANameThatIsNotUTF8SurvivesTheRoundTrip(t *testing.T) {
	cfg := lab(t)
	write(t, cfg, "caf\xe9", "one")
	before := track(t, cfg)
	write(t, cfg, "caf\xe9", "two")
	patch, err := snapshot.GetPatchContext(context.Background(), cfg, before)
	require.NoError(t, err)
	require.Equal(t, []string{cfg.WorkDir + "/caf\xe9"}, patch.Files)
	require.NoError(t, snapshot.Revert(cfg, []snapshot.Patch{patch}))
	require.Equal(t, "one", read(t, cfg, "caf\xe9"))
}

func TestDiffFullReadsAllPages(t *testing.T) {
	cfg := lab(t)
	before := track(t, cfg)
	// Two of these exceed the limit of 16 MiB per answer.
	text := strings.Repeat(strings.Repeat("x", 1023)+"\n", 9<<10)
	for _, name := range []string{"a", "b", "c"} {
		write(t, cfg, name, text)
	}
	diffs, err := snapshot.DiffFull(cfg, before, track(t, cfg))
	require.NoError(t, err)
	require.Len(t, diffs, 3)
	require.Equal(t, true, diffs[2].After == text)
}

func TestAnErrorHasAKindAndLeavesTheFilesUnchanged(t *testing.T) {
	cfg := lab(t)
	write(t, cfg, "a", "a")
	unknown := "1111111111111111111111111111111111111111"
	var failure *snapshot.Error
	require.ErrorAs(t, snapshot.Restore(cfg, unknown), &failure)
	require.Equal(t, "unknown_snapshot", failure.Failure.Kind)
	require.Equal(t, wire.FaultCaller, failure.Failure.Fault)
	require.Equal(t, unknown, *failure.Failure.Details.Hash)
	require.Equal(t, "a", read(t, cfg, "a"))
}

func TestPlaceHasTheMethodsOfTheServer(t *testing.T) {
	cfg := lab(t)
	write(t, cfg, "blob", "\xff\x00")
	write(t, cfg, "a.log", "noise")
	cfg.Options = &wire.CallOptions{Exclude: []string{"*.log"}}
	hash := track(t, cfg)
	place, err := cfg.Place()
	require.NoError(t, err)
	ctx := context.Background()
	files, err := place.ListFiles(ctx, wire.ListParams{Hash: hash})
	require.NoError(t, err)
	require.Len(t, files.Files, 1)
	content, err := place.GetFileAt(ctx, wire.FileParams{Hash: hash, Path: "blob"})
	require.NoError(t, err)
	require.Equal(t, wire.EncodingBase64, content.File.Encoding)
	shown, err := place.Show(ctx, wire.ShowParams{Hash: hash})
	require.NoError(t, err)
	require.Equal(t, int64(1), shown.SnapshotInfo.Files)
	shown, err = place.Show(ctx, wire.ShowParams{Hash: hash, Path: "blob"})
	require.NoError(t, err)
	require.Equal(t, "/wA=", shown.FileContent.Content)
	off := false
	place.Options = &wire.CallOptions{Enabled: &off}
	_, err = place.Track(ctx, wire.TrackParams{})
	require.ErrorIs(t, err, snapshot.ErrDisabled)
}

func TestASessionCanBeUndoneRevertedAndUnreverted(t *testing.T) {
	cfg := lab(t)
	ctx := context.Background()
	session := snapshot.NewSession(cfg, "s1")
	for _, message := range []string{"m1", "m2", "m3"} {
		message := message
		work := func(context.Context) error {
			return os.WriteFile(filepath.Join(cfg.WorkDir, message), []byte(message), 0o644)
		}
		require.NoError(t, session.Do(ctx, snapshot.About{MessageID: message, Tool: "bash"}, work))
	}
	report, err := session.Undo(ctx, wire.UndoParams{})
	require.NoError(t, err)
	require.Equal(t, []wire.Action{{Action: wire.ActionKindRemove, Path: "m3"}}, report.Done)
	_, err = session.Redo(ctx)
	require.NoError(t, err)
	require.Equal(t, "m3", read(t, cfg, "m3"))

	require.NoError(t, session.Revert("m2", ""))
	require.Equal(t, false, exists(cfg, "m2"))
	state, err := session.RevertState(ctx)
	require.NoError(t, err)
	require.Equal(t, "m2", state.MessageID)
	require.NotEmpty(t, state.Snapshot)
	require.Contains(t, state.Diff, "deleted file mode")
	require.NoError(t, session.Unrevert())
	require.Equal(t, "m3", read(t, cfg, "m3"))
	require.NoError(t, session.Unrevert())
	state, err = session.RevertState(ctx)
	require.NoError(t, err)
	require.Equal(t, (*snapshot.RevertState)(nil), state)

	require.NoError(t, session.Revert("m3", ""))
	final, err := session.CommitRevert(ctx)
	require.NoError(t, err)
	require.Equal(t, []string{"m3"}, final.Messages)
	diffs, err := session.Diff(ctx)
	require.NoError(t, err)
	require.Len(t, diffs, 2)
	steps, err := session.Steps(ctx)
	require.NoError(t, err)
	require.Len(t, steps, 3)
	require.NoError(t, session.Release(ctx))
}

func TestAStepEndsEvenIfItsWorkFails(t *testing.T) {
	cfg := lab(t)
	ctx := context.Background()
	session := snapshot.NewSession(cfg, "s1")
	work := func(context.Context) error {
		write(t, cfg, "half", "done")
		return os.ErrInvalid
	}
	require.ErrorIs(t, session.Do(ctx, snapshot.About{MessageID: "m1"}, work), os.ErrInvalid)
	_, err := session.Undo(ctx, wire.UndoParams{Scope: wire.ScopeMessage("m1")})
	require.NoError(t, err)
	require.Equal(t, false, exists(cfg, "half"))
}

func TestAStepSurvivesTheDeathOfItsServer(t *testing.T) {
	cfg := lab(t)
	ctx := context.Background()
	session := snapshot.NewSession(cfg, "s1")
	write(t, cfg, "a", "before")
	step, err := session.Begin(ctx, snapshot.About{MessageID: "m1"})
	require.NoError(t, err)
	pid := pidOf(t, cfg.Client)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	until(t, "the server is gone", func() bool { return !isAlive(pid) })
	write(t, cfg, "a", "after")
	ended, err := step.End(ctx)
	require.NoError(t, err)
	require.Equal(t, []wire.Path{"a"}, ended.Files)
	_, err = session.Undo(ctx, wire.UndoParams{})
	require.NoError(t, err)
	require.Equal(t, "before", read(t, cfg, "a"))
}

func TestStepsAreNoOpsIfSnapshotsAreDisabled(t *testing.T) {
	cfg := lab(t)
	cfg.Enabled = false
	step, err := snapshot.NewSession(cfg, "s1").Begin(context.Background(), snapshot.About{})
	require.NoError(t, err)
	ended, err := step.End(context.Background())
	require.NoError(t, err)
	require.Equal(t, (*wire.StepEnded)(nil), ended)
}

func TestTheConversionOfBytesToAPathIsLossless(t *testing.T) {
	for _, raw := range [][]byte{{0xff, 0xfe}, []byte("ü🦀"), {0xed, 0xb2, 0x80}, bytes.Repeat([]byte{0x80}, 300)} {
		text, err := wire.Path(raw).MarshalJSON()
		require.NoError(t, err)
		var path wire.Path
		require.NoError(t, path.UnmarshalJSON(text))
		require.Equal(t, string(raw), string(path))
	}
	var path wire.Path
	for _, text := range []string{`1`, `{"bytes":[256]}`, `[]`} {
		if path.UnmarshalJSON([]byte(text)) == nil {
			t.Fatalf("%s is not a path", text)
		}
	}
}
