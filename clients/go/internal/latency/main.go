// Command latency measures calls of the Go client: it reads `CALL COUNT` lines and prints microseconds as
// JSON lists.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"example.com/ctrlz/clients/go/snapshot"
	"example.com/ctrlz/clients/go/wire"
)

func main() {
	ctx, dir := context.Background(), os.Args[1]
	place := snapshot.Place{Place: wire.Place{Dir: wire.Path(dir), Store: ".agent/snapshots", WorkTree: wire.WorkTreeDir}}
	known, err := place.Track(ctx, wire.TrackParams{})
	if err != nil {
		log.Fatal(err)
	}
	calls := map[string]func() error{
		"initialize": func() error {
			_, err := snapshot.Shared.Server(ctx)
			return err
		},
		"file_exists_at": func() error {
			_, err := place.FileExistsAt(ctx, wire.ExistsParams{Hash: known.Hash, Path: "f0"})
			return err
		},
		"track": func() error {
			_, err := place.Track(ctx, wire.TrackParams{})
			return err
		},
		"step": func() error {
			begun, err := place.BeginStep(ctx, wire.BeginParams{Session: "bench", Message: "m"})
			if err != nil {
				return err
			}
			text := fmt.Sprint(time.Now().UnixNano())
			if err := os.WriteFile(filepath.Join(dir, "changing"), []byte(text), 0o644); err != nil {
				return err
			}
			_, err = place.EndStep(ctx, wire.EndParams{Step: begun.Step})
			return err
		},
	}
	for {
		var name string
		var count int
		if _, err := fmt.Scan(&name, &count); err != nil {
			return
		}
		found := make([]float64, count)
		for turn := range found {
			start := time.Now()
			if err := calls[name](); err != nil {
				log.Fatal(err)
			}
			found[turn] = float64(time.Since(start).Nanoseconds()) / 1000
		}
		if err := json.NewEncoder(os.Stdout).Encode(found); err != nil {
			log.Fatal(err)
		}
	}
}
