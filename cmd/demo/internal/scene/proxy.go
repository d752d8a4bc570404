package scene

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-cleanhttp"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
)

const proxyUsage = `Put the stack in front of any HTTP service, to try it on real traffic.

  demo proxy -listen 127.0.0.1:8080 -target http://127.0.0.1:3000 [flags]

  -listen ADDR    where to serve (loopback, unless -expose is given)
  -target URL     the service; what is asked of the proxy is asked of it
  -expose         let -listen be where others can reach it
  -keep-host      send the client's Host, not the target's
  -fresh          serve what is fresh without asking, as RFC 9111 has it
  -one-user       with -fresh: all credentials are those of one user
  -shared         with -fresh: by the rules for caches that users share
  -grace 10s      how long calls may go on when interrupted
  -policy NAME    what the flags below start from: default, which is what it is
                  when left out, or service
  -shadow LAYERS  only report what these layers would do: all, or some of
                  timeout,bulkhead,breaker,retry,fallback

Breaker transitions are logged as they happen, and the counts of all calls when
it is interrupted. There is no status endpoint.

`

// proxyConfig is what the command line of the proxy says.
type proxyConfig struct {
	listen   string
	target   *url.URL
	keepHost bool
	grace    time.Duration
	policy   policy.Policy
}

// proxyFlags reads the command line of the proxy; what is wrong with it is in the
// flags' problems.
func proxyFlags(args []string) (proxyConfig, *flags, error) {
	c := proxyConfig{grace: 10 * time.Second}
	f := newFlags("demo proxy")
	var exposed bool
	target := ""
	f.value("listen", "", func(s string) bool { c.listen = s; return true })
	f.value("target", "", func(s string) bool { target = s; return true })
	f.boolean("expose", &exposed)
	f.boolean("keep-host", &c.keepHost)
	fresh := false
	oneUser := false
	f.boolean("fresh", &fresh)
	shared := false
	f.boolean("one-user", &oneUser)
	f.boolean("shared", &shared)
	f.variable("grace", &c.grace)
	settings := policyFlags(f)
	if err := f.parse(args); err != nil {
		return c, f, err
	}
	if _, given := f.given["listen"]; !given {
		f.problems = append(f.problems, "-listen: is missing: must be host:port, such as 127.0.0.1:8080")
	} else {
		f.address("listen", c.listen, exposed)
	}
	if _, given := f.given["target"]; !given {
		f.problems = append(f.problems, "-target: is missing: must be a URL, such as http://127.0.0.1:3000")
	} else if c.target = targetOf(target); c.target == nil {
		f.problem("target", redacted(target), "http:// or https://, a host, and at most a path, such as http://127.0.0.1:3000")
	}
	if c.grace < 0 {
		f.problem("grace", f.given["grace"], "0 or a positive duration")
	}
	c.policy = settings()
	c.policy.Cache.Fresh, c.policy.Cache.Shared = fresh, shared
	if oneUser {
		c.policy.Cache.Partition = func(*http.Request) (string, bool) { return "", true }
	}
	f.validate(c.policy)
	return c, f, nil
}

// targetOf is the URL of a target, or nil if it is none.
func targetOf(s string) *url.URL {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil
	}
	if _, err := policy.ParseHostPattern(u.Host); err != nil {
		return nil
	}
	return u
}

// redacted keeps the password of a URL out of an error.
func redacted(s string) string {
	if at := strings.LastIndexByte(s, '@'); at >= 0 {
		return "REDACTED" + s[at:]
	}
	return s
}

// runProxy is the command proxy: it serves until ctx ends.
func runProxy(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c, f, err := proxyFlags(args)
	if err != nil {
		fmt.Fprint(stdout, proxyUsage)
		writeKnobs(stdout)
		return exitOK
	}
	if len(f.problems) > 0 {
		return f.report(stderr)
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	p, err := newProxy(c, log)
	if err == nil {
		err = p.serve(ctx)
	}
	if err != nil {
		fmt.Fprintln(stderr, "demo proxy:", err)
		return exitFailed
	}
	return exitOK
}

// proxy is a reverse proxy over the stack.
type proxy struct {
	config   proxyConfig
	log      *slog.Logger
	stack    *transport.Transport
	listener net.Listener
	reverse  *httputil.ReverseProxy
	calls    atomic.Int64 // in flight, tunnels included
}

func newProxy(c proxyConfig, log *slog.Logger) (*proxy, error) {
	base := cleanhttp.DefaultPooledTransport()
	base.DisableCompression = true // the client's Accept-Encoding is the client's
	stack, err := transport.New(transport.Config{
		Hosts:  map[string]policy.Policy{c.target.Host: c.policy},
		Base:   base,
		Logger: log,
	})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", c.listen)
	if err != nil {
		return nil, fmt.Errorf("-listen %s: %w", c.listen, err)
	}
	if l.Addr().String() == c.target.Host {
		_ = l.Close()
		return nil, fmt.Errorf("-target %s: is the proxy itself", c.target)
	}
	p := &proxy{config: c, log: log, stack: stack, listener: l}
	p.reverse = &httputil.ReverseProxy{
		Rewrite:       p.rewrite,
		Transport:     stack,
		FlushInterval: -1, // a stream is passed on as it comes
		ErrorHandler:  p.failed,
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	return p, nil
}

// serve serves until ctx ends, then for as long as the grace allows.
func (p *proxy) serve(ctx context.Context) error {
	calls, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	s := &http.Server{
		Handler:           p,
		BaseContext:       func(net.Listener) context.Context { return calls },
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		ErrorLog:          slog.NewLogLogger(p.log.Handler(), slog.LevelDebug),
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve(p.listener) }()
	p.log.Info("proxy started", "listen", p.listener.Addr().String(), "target", p.config.target.Redacted())
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	p.stop(s, cut)
	<-served
	for _, h := range p.stack.Snapshot() {
		n := h.Counts
		p.log.Info("proxy stopped", "host", h.Host, "breaker", h.State.String(), "calls", n.Calls, "attempts", n.Attempts,
			"failures", n.Failure, "retries", n.Retries, "refused", n.RefusedOpen+n.RefusedHalfOpen, "rejected", n.Rejected,
			"stale", n.Stale, "hits", n.Hits, "collapsed", n.Collapsed, "validated", n.Validated, "refreshes", n.Refreshes, "leaked", n.Leaked)
	}
	return p.stack.Close()
}

// stop takes no more calls, lets those in flight end, and cuts what is left after
// the grace.
func (p *proxy) stop(s *http.Server, cut context.CancelFunc) {
	grace, cancel := context.WithTimeout(context.Background(), p.config.grace)
	defer cancel()
	_ = s.Shutdown(grace) // does not wait for tunnels
	p.drain(grace)
	cut()
	_ = s.Close()
	cutting, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	p.drain(cutting)
}

// drain waits until nothing is in flight.
func (p *proxy) drain(ctx context.Context) {
	for p.calls.Load() > 0 && ctx.Err() == nil {
		sleep(ctx, 10*time.Millisecond)
	}
}

func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p.calls.Add(1)
	defer p.calls.Add(-1)
	p.reverse.ServeHTTP(w, r)
}

// rewrite makes a client's request one to the target.
func (p *proxy) rewrite(r *httputil.ProxyRequest) {
	r.SetURL(p.config.target)
	r.Out.URL.RawQuery = r.In.URL.RawQuery // as it came, parseable or not
	r.SetXForwarded()
	if p.config.keepHost {
		r.Out.Host = r.In.Host
	}
	r.Out.Trailer = r.In.Trailer // filled in when the body has ended
}

// failed answers a call that got no response: in one line, why.
func (p *proxy) failed(w http.ResponseWriter, _ *http.Request, err error) {
	status, after := failure(err)
	w.Header().Set("Retry-After", strconv.Itoa(after))
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, p.sentence(err), status)
}

// failure is the status for an error, and the seconds after which to try again.
func failure(err error) (status, after int) {
	var e *transport.Error
	if !errors.As(err, &e) {
		return http.StatusBadGateway, 1
	}
	after = max(int(math.Ceil(e.RetryIn.Seconds())), 1)
	switch {
	case errors.Is(err, transport.ErrBreakerOpen), errors.Is(err, transport.ErrBulkheadFull), errors.Is(err, transport.ErrClosed):
		return http.StatusServiceUnavailable, after
	case e.Timeout():
		return http.StatusGatewayTimeout, after
	}
	return http.StatusBadGateway, after
}

// sentence is an error in one line.
func (p *proxy) sentence(err error) string {
	s := strings.Join(strings.Fields(err.Error()), " ")
	if !strings.HasPrefix(s, "watertight: ") {
		s = "watertight: " + p.config.target.Host + ": " + s
	}
	return s
}
