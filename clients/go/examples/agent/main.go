package main

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"example.com/ctrlz/clients/go/snapshot"
	"example.com/ctrlz/clients/go/wire"
)

func main() {
	ctx, notes := context.Background(), filepath.Join(os.Args[1], "notes.txt")
	session := snapshot.NewSession(snapshot.Config{Enabled: true, WorkDir: os.Args[1]}, "session-1")
	for message, text := range []string{"a plan\n", "oops\n"} {
		about := snapshot.About{MessageID: fmt.Sprint("m", message), Tool: "write"}
		work := func(context.Context) error { return os.WriteFile(notes, []byte(text), 0o644) }
		if err := session.Do(ctx, about, work); err != nil { // recorded before and after, even if it fails
			log.Fatal(err)
		}
	}
	report, err := session.Undo(ctx, wire.UndoParams{}) // undoes only the last turn; later changes by others stay
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("undone:", report.Done[0].Action, report.Done[0].Path)
}
