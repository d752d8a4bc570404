package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// browser is a headless Chromium with one page, driven over a pair of pipes by the
// DevTools protocol: messages in JSON, each ended by a zero byte. It takes one command
// at a time.
type browser struct {
	to      *os.File
	from    *bufio.Reader
	session string
	last    int
}

// startBrowser starts Chromium on a page; it ends with the fleet.
func startBrowser(f *fleet, url string) (*browser, error) {
	fromUs, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	from, toUs, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	home := filepath.Join(f.dir, "chromium")
	if err := os.MkdirAll(home, 0o700); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(f.ctx, "chromium", "--headless=new", "--remote-debugging-pipe", "--no-sandbox", "--disable-gpu",
		"--disable-dev-shm-usage", "--no-first-run", "--disable-extensions", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--no-proxy-server", "--window-size=1280,900", "--user-data-dir="+home, "about:blank")
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_CONFIG_HOME="+home, "XDG_CACHE_HOME="+home)
	cmd.ExtraFiles = []*os.File{fromUs, toUs} // 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // with those it has started
	cmd.WaitDelay = stopping
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	f.all.Go(func() {
		_ = cmd.Wait()
		_ = to.Close()
		_ = from.Close() // ends what waits for an answer
	})
	_ = fromUs.Close()
	_ = toUs.Close()
	b := &browser{to: to, from: bufio.NewReader(from)}
	late := time.AfterFunc(40*time.Second, func() { _ = cmd.Cancel() }) // of a start
	defer late.Stop()
	var target struct {
		ID string `json:"targetId"`
	}
	if err := b.do("Target.createTarget", map[string]any{"url": url}, &target); err != nil {
		return nil, err
	}
	var attached struct {
		ID string `json:"sessionId"`
	}
	if err := b.do("Target.attachToTarget", map[string]any{"targetId": target.ID, "flatten": true}, &attached); err != nil {
		return nil, err
	}
	b.session = attached.ID
	return b, nil
}

// do sends a command and waits for its result.
func (b *browser) do(method string, params, result any) error {
	b.last++
	command, err := json.Marshal(map[string]any{"id": b.last, "method": method, "params": params, "sessionId": b.session})
	if b.session == "" {
		command, err = json.Marshal(map[string]any{"id": b.last, "method": method, "params": params})
	}
	if err != nil {
		return err
	}
	if _, err := b.to.Write(append(command, 0)); err != nil {
		return fmt.Errorf("chromium: %s: %w", method, err)
	}
	for {
		text, err := b.from.ReadBytes(0)
		if err != nil {
			return fmt.Errorf("chromium: %s: %w", method, err)
		}
		var reply struct {
			ID     int             `json:"id"`
			Result json.RawMessage `json:"result"`
			Error  *struct {
				Message string `json:"message"`
			} `json:"error"`
		}
		switch err := json.Unmarshal(text[:len(text)-1], &reply); {
		case err != nil:
			return fmt.Errorf("chromium: %s: %w", method, err)
		case reply.ID != b.last: // an event
		case reply.Error != nil:
			return errors.New("chromium: " + method + ": " + reply.Error.Message)
		case result != nil:
			return json.Unmarshal(reply.Result, result)
		default:
			return nil
		}
	}
}

// eval is the value of an expression in the page, as a string.
func (b *browser) eval(expression string) (string, error) {
	var r struct {
		Result struct {
			Value any `json:"value"`
		} `json:"result"`
	}
	err := b.do("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &r)
	return fmt.Sprint(r.Result.Value), err
}

// picture writes what the page looks like into a file.
func (b *browser) picture(file string) error {
	var shot struct {
		Data []byte `json:"data"`
	}
	if err := b.do("Page.captureScreenshot", map[string]any{"format": "png"}, &shot); err != nil {
		return err
	}
	return os.WriteFile(file, shot.Data, 0o644)
}

// shows waits until an expression in the page is true, and returns how long that
// took.
func (b *browser) shows(ctx context.Context, most time.Duration, expression string) (time.Duration, error) {
	start := time.Now()
	err := eventually(ctx, most, func() (bool, error) {
		is, err := b.eval("String(!!(" + expression + "))")
		return is == "true", err
	})
	return time.Since(start), err
}
