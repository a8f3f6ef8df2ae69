package snapshot

import (
	"context"
	"errors"
	"sync"

	"example.com/ctrlz/clients/go/wire"
)

// RevertState is a revert that is not final yet.
type RevertState struct {
	MessageID string
	PartID    string
	// Snapshot is the snapshot before the revert.
	Snapshot string
	// Diff contains the changes made by the revert.
	Diff string
}

// Session records the tool calls of an agent as steps, and undoes them.
type Session struct {
	// ID is the id of the session, chosen by the agent.
	ID     string
	config Config
}

// NewSession returns a session. Nothing is recorded before the first call.
func NewSession(cfg Config, id string) *Session { return &Session{ID: id, config: cfg} }

// place returns all methods of the server. If snapshots are disabled, methods that record return ErrDisabled.
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

// About describes a step. All fields are optional.
type About struct {
	MessageID, PartID, Tool, Label string
	// Paths are the paths that the tool will change.
	Paths []string
}

// Step is an open step.
type Step struct {
	// Begun is the result of `begin_step`; nil if snapshots are disabled.
	Begun *wire.StepBegun
	place Place
	once  sync.Once
	ended *wire.StepEnded
	err   error
}

// Begin begins a step: it records the state before a tool runs.
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

// End ends the step: it records the state after the tool. It is idempotent, and returns nil if snapshots
// are disabled.
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

// Do runs work as one step, which also ends if the work fails. The error of the work takes precedence.
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

// PlanUndo returns what Undo would do now, without changing any file.
func (s *Session) PlanUndo(ctx context.Context, params wire.UndoParams) (*wire.UndoReport, error) {
	place, err := s.place()
	if err != nil {
		return nil, err
	}
	params.Session = s.ID
	return place.PlanUndo(ctx, params)
}

// Undo undoes steps, by default the newest turn, and keeps later changes by others.
func (s *Session) Undo(ctx context.Context, params wire.UndoParams) (*wire.UndoReport, error) {
	place, err := s.place()
	if err != nil {
		return nil, err
	}
	params.Session = s.ID
	return place.Undo(ctx, params)
}

// Redo reverses the last undo or revert.
func (s *Session) Redo(ctx context.Context) (*wire.UndoReport, error) {
	place, err := s.place()
	if err != nil {
		return nil, err
	}
	return place.Redo(ctx, wire.RedoParams{Session: s.ID})
}

// Revert reverts the session to before a message, or a part of it, until it is committed.
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

// Unrevert reverses the revert and keeps later changes by others. Without a revert it does nothing.
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

// CommitRevert makes the revert final, and returns the messages that it removed.
func (s *Session) CommitRevert(ctx context.Context) (*wire.RevertState, error) {
	place, err := s.place()
	if err != nil {
		return nil, err
	}
	return place.CommitRevert(ctx, wire.CommitParams{Session: s.ID})
}

// RevertState returns the revert that is not final yet; nil if there is none.
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

// Diff returns the files that the session changed, with both texts, without undone changes.
func (s *Session) Diff(ctx context.Context) ([]FileDiff, error) {
	place, err := s.place()
	if err != nil {
		return nil, err
	}
	var diffs []FileDiff
	err = pages(func(offset int64) (*int64, error) {
		page, err := place.StepDiffFull(ctx, wire.StepChangesParams{Of: wire.WhoseSession(s.ID), Offset: offset})
		if err != nil {
			return nil, err
		}
		diffs = append(diffs, fileDiffs(page.Files)...)
		return page.Next, nil
	})
	return diffs, err
}

// Steps returns the steps, oldest first.
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

// Release releases the session, so that its snapshots may be dropped.
func (s *Session) Release(ctx context.Context) error {
	place, err := s.place()
	if err != nil {
		return err
	}
	_, err = place.ReleaseSession(ctx, wire.ReleaseParams{Session: s.ID})
	return err
}
