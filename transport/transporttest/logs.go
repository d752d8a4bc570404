package transporttest

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// Logs is a [slog.Handler] that keeps all records, for transport.Config.Logger:
//
//	logs := &transporttest.Logs{}
//	config.Logger = slog.New(logs)
//
// The zero Logs is ready for use, and safe for concurrent use.
type Logs struct {
	mu      sync.Mutex // guards records
	records []slog.Record
}

// Records returns the records so far. The attributes of derived loggers are
// among theirs.
func (l *Logs) Records() []slog.Record {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.records)
}

// String is all records as [slog.TextHandler] writes them, a line each.
func (l *Logs) String() string {
	var b strings.Builder
	h := slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.Level(-1 << 10)})
	for _, r := range l.Records() {
		_ = h.Handle(context.Background(), r)
	}
	return b.String()
}

// Enabled is true.
func (l *Logs) Enabled(context.Context, slog.Level) bool { return true }

// Handle keeps r.
func (l *Logs) Handle(_ context.Context, r slog.Record) error {
	l.mu.Lock()
	l.records = append(l.records, r.Clone())
	l.mu.Unlock()
	return nil
}

// WithAttrs returns a handler that adds attrs and hands on to l.
func (l *Logs) WithAttrs(attrs []slog.Attr) slog.Handler { return &derived{l, "", attrs} }

// WithGroup returns a handler that groups attributes and hands on to l.
func (l *Logs) WithGroup(name string) slog.Handler { return &derived{l, name, nil} }

// derived is a handler with attributes, or with a group.
type derived struct {
	slog.Handler
	group string
	attrs []slog.Attr
}

func (d *derived) Handle(ctx context.Context, r slog.Record) error {
	attrs := slices.Clone(d.attrs)
	r.Attrs(func(a slog.Attr) bool {
		attrs = append(attrs, a)
		return true
	})
	if d.group != "" {
		attrs = []slog.Attr{{Key: d.group, Value: slog.GroupValue(attrs...)}}
	}
	out := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	out.AddAttrs(attrs...)
	return d.Handler.Handle(ctx, out)
}

func (d *derived) WithAttrs(attrs []slog.Attr) slog.Handler { return &derived{d, "", attrs} }

func (d *derived) WithGroup(name string) slog.Handler {
	if name == "" {
		return d
	}
	return &derived{d, name, nil}
}
