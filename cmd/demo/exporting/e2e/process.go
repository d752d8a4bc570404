package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// stopping is how long a process has from being asked to end to being killed.
const stopping = 5 * time.Second

// process is a program under way, which ends with its context.
type process struct {
	name string
	log  string // a file
	done chan struct{}
	err  error // once done

	mu    sync.Mutex // guards what follows
	lines []spoken
	more  chan struct{} // closed with the next line
}

// spoken is a line of a program's output, and when it came.
type spoken struct {
	at   time.Time
	text string
}

// fleet is all that was started.
type fleet struct {
	ctx    context.Context // ends it
	cancel context.CancelFunc
	dir    string // of logs
	all    sync.WaitGroup
	late   []func() // closes servers, once the processes have ended
}

func newFleet(ctx context.Context, dir string) *fleet {
	f := &fleet{dir: dir}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f
}

// stop ends everything, and returns when it has ended.
func (f *fleet) stop() {
	f.cancel()
	f.all.Wait()
	for _, end := range f.late {
		end()
	}
}

// serve serves on a free port of loopback.
func (f *fleet) serve(h http.Handler) (url string, err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }()
	f.late = append(f.late, func() { _ = s.Close() })
	return "http://" + l.Addr().String(), nil
}

// run runs a program to its end, and returns what it wrote.
func (f *fleet) run(dir, stdin, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(f.ctx, program, args...)
	cmd.Dir, cmd.Stdin, cmd.WaitDelay = dir, strings.NewReader(stdin), stopping
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", program, err, tail(string(out), 20))
	}
	return strings.TrimSpace(string(out)), err
}

// start starts a program, in a process group of its own, so that a terminal's
// interrupt is for us alone, who then stop it.
func (f *fleet) start(program string, args ...string) (*process, error) {
	name := filepath.Base(program)
	p := &process{name: name, log: filepath.Join(f.dir, name+".log"), done: make(chan struct{}), more: make(chan struct{})}
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	r, w := io.Pipe()
	cmd := exec.CommandContext(f.ctx, program, args...)
	cmd.Dir = f.dir
	cmd.Stdout = io.MultiWriter(log, w)
	cmd.Stderr = cmd.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = stopping
	if err := cmd.Start(); err != nil {
		_ = log.Close()
		return nil, err
	}
	f.all.Add(1)
	go p.listen(r)
	go func() {
		defer f.all.Done()
		defer close(p.done)
		p.err = cmd.Wait()
		_ = w.Close()
		_ = log.Close()
	}()
	return p, nil
}

func (p *process) listen(r io.Reader) {
	for s := bufio.NewScanner(r); s.Scan(); {
		p.mu.Lock()
		p.lines = append(p.lines, spoken{time.Now(), s.Text()})
		close(p.more)
		p.more = make(chan struct{})
		p.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, r) // of a line that was too long
}

// says waits for a line that has a text, at or after a moment.
func (p *process) says(ctx context.Context, most time.Duration, after time.Time, text string) (spoken, error) {
	timer := time.NewTimer(most)
	defer timer.Stop()
	for from := 0; ; {
		p.mu.Lock()
		lines, more := p.lines[from:], p.more
		p.mu.Unlock()
		for _, l := range lines {
			if !l.at.Before(after) && strings.Contains(l.text, text) {
				return l, nil
			}
		}
		from += len(lines)
		select {
		case <-more:
		case <-p.done:
			return spoken{}, fmt.Errorf("%s has ended (%v) and never said %q:\n%s", p.name, p.err, text, p.tail())
		case <-timer.C:
			return spoken{}, fmt.Errorf("%s has not said %q within %s:\n%s", p.name, text, short(most), p.tail())
		case <-ctx.Done():
			return spoken{}, ctx.Err()
		}
	}
}

func (p *process) tail() string {
	b, _ := os.ReadFile(p.log)
	return tail(string(b), 20)
}

// freeAddress is one on loopback that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String(), nil
}

// eventually asks every 50 ms until something is so, and reports how it ended.
func eventually(ctx context.Context, most time.Duration, so func() (bool, error)) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(most); ; {
		ok, err := so()
		if ok {
			return nil
		}
		if time.Now().After(end) {
			if err == nil {
				err = fmt.Errorf("not so within %s", short(most))
			}
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
