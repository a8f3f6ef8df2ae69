package snapshot_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"example.com/ctrlz/clients/go/internal/require"
	"example.com/ctrlz/clients/go/snapshot"
	"example.com/ctrlz/clients/go/wire"
)

// ask calls a misbehaving server. `how` selects the behaviour.
func ask(ctx context.Context, client *snapshot.Client, method, how string) error {
	params := json.RawMessage(fmt.Sprintf(`{"dir":%q}`, how))
	_, err := client.Call(ctx, method, params)
	return err
}

func limited(t *testing.T, limit time.Duration) context.Context {
	ctx, stop := context.WithTimeout(context.Background(), limit)
	t.Cleanup(stop)
	return ctx
}

func pidOf(t *testing.T, client *snapshot.Client) int {
	t.Helper()
	server, err := client.Server(context.Background())
	require.NoError(t, err)
	return int(server.PID)
}

func TestAMissingProgramIsReportedWithItsPathAndAHint(t *testing.T) {
	cfg := snapshot.Config{Enabled: true, WorkDir: t.TempDir(), Client: &snapshot.Client{Binary: "/nowhere/ctrlz"}}
	_, err := snapshot.Track(cfg)
	var missing *snapshot.NotFoundError
	require.ErrorAs(t, err, &missing)
	require.Contains(t, err.Error(), "/nowhere/ctrlz")
	require.Contains(t, err.Error(), "CTRLZ_BINARY")
}

func TestAProgramThatIsNotCtrlzIsRefused(t *testing.T) {
	for _, binary := range []string{"/bin/false", "/bin/echo"} {
		err := ask(context.Background(), &snapshot.Client{Binary: binary}, "track", "")
		var refused *snapshot.ProtocolError
		require.ErrorAs(t, err, &refused)
	}
}

func TestAnotherProtocolVersionIsRefused(t *testing.T) {
	err := ask(context.Background(), badClient(t, "BAD_PROTOCOL=99"), "track", "fine")
	require.Contains(t, err.Error(), "version 99")
}

func TestACallThatWritesIsNotRepeatedWhenTheServerDies(t *testing.T) {
	client := badClient(t)
	err := ask(context.Background(), client, "restore", "die")
	var ended *snapshot.EndedError
	require.ErrorAs(t, err, &ended)
	require.Equal(t, "restore", ended.Method)
	require.Equal(t, "signal: killed", ended.Status)
	require.Equal(t, snapshot.Unknown, ended.Outcome())
	require.Contains(t, err.Error(), "the disk caught fire")
	require.NoError(t, ask(context.Background(), client, "restore", "fine"))
}

func TestACallThatOnlyReadsIsRepeatedExactlyOnce(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "marker")
	client := badClient(t, "BAD_MARKER="+marker)
	require.NoError(t, ask(context.Background(), client, "status", "die-once"))
	_, err := os.Stat(marker)
	require.NoError(t, err)
	for _, method := range []string{"status", "track"} {
		var ended *snapshot.EndedError
		require.ErrorAs(t, ask(context.Background(), client, method, "die"), &ended)
	}
}

func TestAllPendingCallsFailWhenTheServerDies(t *testing.T) {
	client := badClient(t)
	failures := make(chan error, 8)
	for at := 0; at < 8; at++ {
		go func() { failures <- ask(context.Background(), client, "track", "hang") }()
	}
	time.Sleep(200 * time.Millisecond)
	require.NoError(t, syscall.Kill(pidOf(t, client), syscall.SIGKILL))
	for at := 0; at < 8; at++ {
		var ended *snapshot.EndedError
		require.ErrorAs(t, <-failures, &ended)
	}
}

func TestAnInvalidAnswerKillsTheServerButNotTheProgram(t *testing.T) {
	client := badClient(t)
	require.Contains(t, ask(context.Background(), client, "track", "garbage").Error(), "which is not a message")
	require.NoError(t, ask(context.Background(), client, "track", "fine"))
}

func TestTheNextCallReplacesAKilledServer(t *testing.T) {
	cfg := lab(t)
	write(t, cfg, "a", "a")
	hash, pid := track(t, cfg), pidOf(t, cfg.Client)
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	until(t, "the server is gone and reaped", func() bool { return !isAlive(pid) })
	require.Equal(t, hash, track(t, cfg))
	if pidOf(t, cfg.Client) == pid {
		t.Fatal("the server was not replaced")
	}
}

func TestACallThatADeadServerCannotHaveReadIsRepeated(t *testing.T) {
	cfg := lab(t)
	hash := track(t, cfg)
	for turn := 0; turn < 10; turn++ {
		pid := pidOf(t, cfg.Client)
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		// All threads of the server are dead, but the client may not have noticed yet.
		until(t, "it is dead", func() bool {
			threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || len(threads) == 1 && strings.Contains(string(stat), ") Z ")
		})
		require.NoError(t, snapshot.Restore(cfg, hash))
	}
}

func TestATimeoutCancelsTheCallAndReportsThatItWasNotDone(t *testing.T) {
	client := badClient(t)
	pidOf(t, client)
	err := ask(limited(t, 100*time.Millisecond), client, "track", "hang")
	var cancelled *snapshot.CancelledError
	require.ErrorAs(t, err, &cancelled)
	require.Equal(t, snapshot.NotDone, cancelled.Outcome)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	client.Timeout = 100 * time.Millisecond
	require.ErrorIs(t, ask(context.Background(), client, "track", "hang"), context.DeadlineExceeded)
}

func TestACancelledContextCancelsTheCall(t *testing.T) {
	client := badClient(t)
	pidOf(t, client)
	ctx, stop := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, stop)
	require.ErrorIs(t, ask(ctx, client, "track", "hang"), context.Canceled)
	require.ErrorIs(t, ask(ctx, client, "track", "fine"), context.Canceled)
}

func TestACallThatFinishesDespiteItsCancellationReturnsItsResult(t *testing.T) {
	client := badClient(t)
	pidOf(t, client)
	require.NoError(t, ask(limited(t, 100*time.Millisecond), client, "track", "late"))
}

func TestAnUnansweredCallHasAnUnknownOutcomeAndTheServerKeepsRunning(t *testing.T) {
	client := badClient(t)
	client.Grace = 200 * time.Millisecond
	pid := pidOf(t, client)
	var cancelled *snapshot.CancelledError
	require.ErrorAs(t, ask(limited(t, 50*time.Millisecond), client, "track", "deaf"), &cancelled)
	require.Equal(t, snapshot.Unknown, cancelled.Outcome)
	time.Sleep(300 * time.Millisecond)
	require.Equal(t, pid, pidOf(t, client))
}

func TestAFrozenServerIsReplaced(t *testing.T) {
	client := badClient(t)
	client.Grace = 200 * time.Millisecond
	pid := pidOf(t, client)
	require.ErrorIs(t, ask(limited(t, 50*time.Millisecond), client, "track", "stop"), context.DeadlineExceeded)
	until(t, "the frozen server is gone", func() bool { return !isAlive(pid) })
	require.NoError(t, ask(context.Background(), client, "track", "fine"))
}

func TestConcurrentGoroutinesShareOneServer(t *testing.T) {
	cfg := lab(t)
	write(t, cfg, "a", "a")
	hash := track(t, cfg)
	pid := pidOf(t, cfg.Client)
	place, err := cfg.Place()
	require.NoError(t, err)
	var group sync.WaitGroup
	wrong := make(chan string, 200)
	for at := 0; at < 200; at++ {
		group.Add(1)
		go func(at int) {
			defer group.Done()
			if at%4 == 0 {
				if found, err := snapshot.Track(cfg); err != nil || found != hash {
					wrong <- fmt.Sprint(found, err)
				}
				return
			}
			found, err := place.FileExistsAt(context.Background(), wire.ExistsParams{Hash: hash, Path: wire.Path([]string{"b", "a"}[at%2])})
			if err != nil || found.Exists != (at%2 == 1) {
				wrong <- fmt.Sprint(found, err)
			}
		}(at)
	}
	group.Wait()
	close(wrong)
	for problem := range wrong {
		t.Error(problem)
	}
	require.Equal(t, pid, pidOf(t, cfg.Client))
}

func TestConcurrentFirstCallsStartOneServer(t *testing.T) {
	cfg := lab(t)
	pids := make(chan int64, 32)
	for at := 0; at < 32; at++ {
		go func() {
			server, err := cfg.Client.Server(context.Background())
			if err != nil {
				pids <- 0
				return
			}
			pids <- server.PID
		}()
	}
	first := <-pids
	for at := 1; at < 32; at++ {
		require.Equal(t, first, <-pids)
	}
}

func TestCloseEndsTheServerAndIsFinal(t *testing.T) {
	cfg := lab(t)
	pid := pidOf(t, cfg.Client)
	require.NoError(t, cfg.Client.Close())
	require.Equal(t, false, isAlive(pid))
	_, err := snapshot.Track(cfg)
	require.ErrorIs(t, err, snapshot.ErrClosed)
	require.NoError(t, cfg.Client.Close())
}

func TestCloseKillsAFrozenServer(t *testing.T) {
	client := badClient(t)
	client.Grace = 100 * time.Millisecond
	pid := pidOf(t, client)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	require.NoError(t, client.Close())
	require.Equal(t, false, isAlive(pid))
}

func TestAProgramWithoutCloseLeavesNoServer(t *testing.T) {
	if os.Getenv("FORGETFUL") != "" {
		fmt.Printf("server=%d\n", pidOf(t, snapshot.Shared))
		os.Exit(0)
	}
	command := exec.Command(os.Args[0], "-test.run", t.Name())
	command.Env = append(os.Environ(), "FORGETFUL=1")
	printed, err := command.Output()
	require.NoError(t, err)
	_, after, _ := strings.Cut(string(printed), "server=")
	pid, err := strconv.Atoi(strings.Fields(after)[0])
	require.NoError(t, err)
	until(t, "its server is gone", func() bool { return !isAlive(pid) })
}

func TestParametersThatExceedTheLineLimitAreRefusedBeforeTheyAreSent(t *testing.T) {
	client := badClient(t)
	large := json.RawMessage(`{"paths":["` + strings.Repeat("x", 65<<20) + `"]}`)
	_, err := client.Call(context.Background(), "track", large)
	require.Equal(t, "too_large", snapshot.Kind(err))
	require.NoError(t, ask(context.Background(), client, "track", "fine"))
	if errors.Is(err, snapshot.ErrClosed) {
		t.Fatal("the client must keep working")
	}
}
