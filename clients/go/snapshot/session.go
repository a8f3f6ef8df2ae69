package snapshot

import (
	"context"
	"errors"
	"sync"

	"example.com/ctrlz/clients/go/wire"
)

// RevertState is a revert that can still be taken back.
type RevertState struct {
	MessageID string
	PartID    string
	// Snapshot is the state before the revert.
	Snapshot string
	// Diff shows what was reverted.
	Diff string
}

// Session is what an agent did, in steps, and taking it back.
type Session struct {
	// ID is the session's id, as the agent has it.
	ID     string
	config Config
}

// NewSession gives a session. Nothing is done before the first call.
func NewSession(cfg Config, id string) *Session { return &Session{ID: id, config: cfg} }

// place gives every method of the server. Where snapshots are switched off, what records says so.
func (s *Session) place() (Place, error) {
	place, err := s.config.Place()
	if err == nil && !s.config.Enabled {
		var options wire.CallOptions
		if place.Options != nil {
			options = *place.Options
		}
		options.Enabled = new(bool)
		place.Options = &options
	}
	return place, err
}

// About is what a step is about. Everything is optional.
type About struct {
	MessageID, PartID, Tool, Label string
	// Paths are those that the tool says it will change.
	Paths []string
}

// Step is a step that is open.
type Step struct {
	// Begun is what was recorded at its beginning; nil where snapshots are switched off.
	Begun *wire.StepBegun
	place Place
	once  sync.Once
	ended *wire.StepEnded
	err   error
}

// Begin records the state before a tool runs; from now on changes are the step's.
func (s *Session) Begin(ctx context.Context, about About) (*Step, error) {
	place, err := s.place()
	if err != nil {
		return nil, err
	}
	params := wire.BeginParams{
		Session: s.ID,
		Message: about.MessageID,
		Part:    about.PartID,
		Tool:    about.Tool,
		Label:   about.Label,
	}
	for _, path := range about.Paths {
		params.Paths = append(params.Paths, wire.Path(path))
	}
	begun, err := place.BeginStep(ctx, params)
	if err != nil && !errors.Is(err, ErrDisabled) {
		return nil, err
	}
	return &Step{Begun: begun, place: place}, nil
}

// End records the state after the tool ran, also if it failed. Ends only once. Gives nil where snapshots
// are switched off.
func (s *Step) End(ctx context.Context) (*wire.StepEnded, error) {
	s.once.Do(func() {
		if s.Begun == nil {
			return
		}
		s.ended, s.err = s.place.EndStep(ctx, wire.EndParams{Step: s.Begun.Step})
		s.err = ignoreDisabled(s.err)
	})
	return s.ended, s.err
}

// Do runs work as one step, which ends also if the work fails. The work's error comes first.
func (s *Session) Do(ctx context.Context, about About, work func(context.Context) error) error {
	step, err := s.Begin(ctx, about)
	if err != nil {
		return err
	}
	failed := work(ctx)
	if _, err = step.End(ctx); failed != nil {
		return failed
	}
	return err
}

// PlanUndo tells what Undo would do now, and changes no file.
func (s *Session) PlanUndo(ctx context.Context, params wire.UndoParams) (*wire.UndoReport, error) {
	place, err := s.place()
	if err != nil {
		return nil, err
	}
	params.Session = s.ID
	return place.PlanUndo(ctx, params)
}

// Undo takes steps back, by default the newest turn, and keeps what others did since.
func (s *Session) Undo(ctx context.Context, params wire.UndoParams) (*wire.UndoReport, error) {
	place, err := s.place()
	if err != nil {
		return nil, err
	}
	params.Session = s.ID
	return place.Undo(ctx, params)
}

// Redo brings back what the last undo or revert took back.
func (s *Session) Redo(ctx context.Context) (*wire.UndoReport, error) {
	place, err := s.place()
	if err != nil {
		return nil, err
	}
	return place.Redo(ctx, wire.RedoParams{Session: s.ID})
}

// Revert takes the session back to before a message, or a part of it; not final yet.
func (s *Session) Revert(messageID, partID string) error {
	return s.RevertContext(context.Background(), messageID, partID)
}

// RevertContext is Revert with a context.
func (s *Session) RevertContext(ctx context.Context, messageID, partID string) error {
	place, err := s.place()
	if err != nil {
		return err
	}
	_, err = place.RevertTo(ctx, wire.RevertToParams{Session: s.ID, Message: messageID, Part: partID})
	return err
}

// Unrevert takes the revert back, and keeps what others did since. Without a revert there is nothing to do.
func (s *Session) Unrevert() error { return s.UnrevertContext(context.Background()) }

// UnrevertContext is Unrevert with a context.
func (s *Session) UnrevertContext(ctx context.Context) error {
	place, err := s.place()
	if err != nil {
		return err
	}
	_, err = place.Unrevert(ctx, wire.UnrevertParams{Session: s.ID})
	if Kind(err) == "nothing_reverted" {
		return nil
	}
	return err
}

// CommitRevert makes the revert final, and tells which messages are gone with it.
func (s *Session) CommitRevert(ctx context.Context) (*wire.RevertState, error) {
	place, err := s.place()
	if err != nil {
		return nil, err
	}
	return place.CommitRevert(ctx, wire.CommitParams{Session: s.ID})
}

// RevertState gives the revert, as long as it can be moved or taken back; nil if there is none.
func (s *Session) RevertState(ctx context.Context) (*RevertState, error) {
	place, err := s.place()
	if err != nil {
		return nil, err
	}
	found, err := place.RevertState(ctx, wire.RevertStateParams{Session: s.ID})
	if err != nil || found.Reverted == nil {
		return nil, err
	}
	reverted := found.Reverted
	text, err := diffText(ctx, place, reverted.Before, reverted.After)
	if err != nil {
		return nil, err
	}
	state := &RevertState{MessageID: reverted.Boundary.Message, Snapshot: reverted.Before, Diff: text}
	if reverted.Boundary.Part != nil {
		state.PartID = *reverted.Boundary.Part
	}
	return state, nil
}

// Diff gives every file the session changed, unless that is taken back, with both its texts.
func (s *Session) Diff(ctx context.Context) ([]FileDiff, error) {
	place, err := s.place()
	if err != nil {
		return nil, err
	}
	var diffs []FileDiff
	err = pages(func(offset int64) (*int64, error) {
		page, err := place.DeedsFull(ctx, wire.DeedsParams{Of: wire.WhoseSession(s.ID), Offset: offset})
		if err != nil {
			return nil, err
		}
		diffs = append(diffs, fileDiffs(page.Files)...)
		return page.Next, nil
	})
	return diffs, err
}

// Steps lists the steps, oldest first.
func (s *Session) Steps(ctx context.Context) ([]wire.StepRecord, error) {
	place, err := s.place()
	if err != nil {
		return nil, err
	}
	var steps []wire.StepRecord
	err = pages(func(offset int64) (*int64, error) {
		page, err := place.Steps(ctx, wire.StepsParams{Session: s.ID, Offset: offset})
		if err != nil {
			return nil, err
		}
		steps = append(steps, page.Steps...)
		return page.Next, nil
	})
	return steps, err
}

// Release lets go of the session: what only it did need not be kept any longer.
func (s *Session) Release(ctx context.Context) error {
	place, err := s.place()
	if err != nil {
		return err
	}
	_, err = place.ReleaseSession(ctx, wire.ReleaseParams{Session: s.ID})
	return err
}
