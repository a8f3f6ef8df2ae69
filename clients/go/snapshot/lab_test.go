package snapshot_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"example.com/ctrlz/clients/go/internal/require"
	"example.com/ctrlz/clients/go/snapshot"
)

// TestMain sets a temporary home, so that the shared client does not use the real one.
func TestMain(m *testing.M) {
	home, err := os.MkdirTemp("", "ctrlz-go-")
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"} {
		os.Unsetenv(name)
	}
	os.Setenv("HOME", home)
	os.Setenv("GIT_CONFIG_GLOBAL", "/dev/null")
	code := m.Run()
	snapshot.Shared.Close()
	os.RemoveAll(home)
	os.Exit(code)
}

// lab returns a work tree, and a client that is closed after the test.
func lab(t *testing.T) snapshot.Config {
	t.Helper()
	client := &snapshot.Client{}
	t.Cleanup(func() { client.Close() })
	return snapshot.Config{Enabled: true, WorkDir: t.TempDir(), DataDir: t.TempDir(), Client: client}
}

// badClient returns a client of a misbehaving server.
func badClient(t *testing.T, env ...string) *snapshot.Client {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	client := &snapshot.Client{
		Binary: filepath.Join(filepath.Dir(here), "../../conformance/bad_server.py"),
		Env:    append([]string{"PATH=" + os.Getenv("PATH")}, env...),
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func write(t *testing.T, cfg snapshot.Config, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(cfg.WorkDir, name), []byte(text), 0o644))
}

func read(t *testing.T, cfg snapshot.Config, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(cfg.WorkDir, name))
	require.NoError(t, err)
	return string(text)
}

func exists(cfg snapshot.Config, name string) bool {
	_, err := os.Lstat(filepath.Join(cfg.WorkDir, name))
	return err == nil
}

func isAlive(pid int) bool { return !errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) }

// until waits until a condition holds. It fails after ten seconds.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for turn := 0; turn < 500; turn++ {
		if holds() {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("not within ten seconds: %s", what)
}
