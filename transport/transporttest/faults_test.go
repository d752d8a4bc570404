package transporttest_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	. "github.com/watertight-go/watertight/transport/transporttest"
)

// set fails the test if the injections are refused.
func set(t *testing.T, f *Faults, host string, injections ...Injection) {
	t.Helper()
	if err := f.Set(host, injections...); err != nil {
		t.Fatal(err)
	}
}

// always is a Step that every request takes.
func always(s Step) Injection { return Injection{Share: 1, Step: s} }

func TestFaultsHandOnWhatNothingIsInjectedInto(t *testing.T) {
	b := NewBase(Step{Body: "true"})
	f := &Faults{Base: b}
	c := &http.Client{Transport: f}
	set(t, f, "other.test", always(Step{Status: 500}))
	if resp, body, err := get(c, "http://a.test/"); err != nil || resp.StatusCode != 200 || body != "true" {
		t.Error(resp, body, err)
	}
	if resp, _, err := get(c, "http://other.test/"); err != nil || resp.StatusCode != 500 || len(b.Hits()) != 1 {
		t.Error(resp, err, b.Hits())
	}
}

func TestFaultsSpoilTheTrueAnswer(t *testing.T) {
	const body = "abcdefghij"
	for _, test := range []struct {
		name  string
		step  Step
		body  string
		err   error
		after time.Duration
	}{
		{"late", Step{Delay: 3 * time.Second}, body, nil, 3 * time.Second},
		{"cut after the headers", Step{Fault: Cut, At: HeadersOnly}, "", io.ErrUnexpectedEOF, 0},
		{"cut", Step{Fault: Cut, At: 4}, "abcd", io.ErrUnexpectedEOF, 0},
		{"late and cut", Step{Delay: time.Second, Fault: Cut, At: 4}, "abcd", io.ErrUnexpectedEOF, time.Second},
		{"reset", Step{Fault: Reset, At: 9}, "abcdefghi", syscall.ECONNRESET, 0},
		{"hung", Step{Fault: Hang, At: 4}, "abcd", context.DeadlineExceeded, time.Minute},
		{"hung after the headers", Step{Fault: Hang, At: HeadersOnly}, "", context.DeadlineExceeded, time.Minute},
		{"too short to be cut", Step{Fault: Cut, At: 11}, body, nil, 0},
		{"slow", Step{Chunk: 3, Pause: time.Second}, body, nil, 4 * time.Second},
		{"slow to begin", Step{Pause: time.Second}, body, nil, time.Second},
		{"slow and cut", Step{Chunk: 3, Pause: time.Second, Fault: Cut, At: 4}, "abcd", io.ErrUnexpectedEOF, 2 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBase(Step{Body: body, Header: http.Header{"X-True": {"1"}}})
				f := &Faults{Base: b}
				set(t, f, "a.test", always(test.step))
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				req, _ := http.NewRequestWithContext(ctx, "POST", "http://a.test/", strings.NewReader("question"))
				start := time.Now()
				resp, err := f.RoundTrip(req)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(resp.Body)
				if string(got) != test.body || !errors.Is(err, test.err) || time.Since(start) != test.after {
					t.Errorf("%q, %v, after %v; want %q, %v, after %v", got, err, time.Since(start), test.body, test.err, test.after)
				}
				if resp.ContentLength != int64(len(body)) || resp.Header.Get("X-True") == "" {
					t.Errorf("not the true answer: %+v", resp)
				}
				if _, err := resp.Body.Read(make([]byte, 1)); err == nil || test.err != nil && !errors.Is(err, test.err) {
					t.Errorf("read on: %v", err)
				}
				if now, _ := b.InFlight(); now != 0 || string(b.Hits()[0].Body) != "question" { // before Close: its connection is gone
					t.Errorf("%d open, %+v", now, b.Hits())
				}
				resp.Body.Close()
			})
		})
	}
}

func TestFaultsAnswerInPlaceOfTheBase(t *testing.T) {
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	broken := errors.New("broken")
	for _, test := range []struct {
		name  string
		step  Step
		want  int
		body  string
		err   error
		after time.Duration
		hooks string
	}{
		{"status", Step{Status: 503, Header: http.Header{"retry-after": {"1"}}, Body: "no", Delay: time.Second}, 503, "no", nil, time.Second, "get got wrote first"},
		{"status without reading", Step{Status: 413, Unread: true}, 413, "", nil, 0, "get got wrote first"},
		{"status and cut", Step{Status: 200, Body: "abc", Fault: Cut, At: 2}, 200, "ab", io.ErrUnexpectedEOF, 0, "get got wrote first"},
		{"reset", Step{Fault: Reset, Delay: time.Second}, 0, "", syscall.ECONNRESET, time.Second, "get got wrote"},
		{"cut", Step{Fault: Cut}, 0, "", io.EOF, 0, "get got wrote"},
		{"hang", Step{Fault: Hang}, 0, "", context.DeadlineExceeded, time.Minute, "get got wrote"},
		{"error", Step{Err: broken, Delay: time.Second}, 0, "", broken, time.Second, "get got wrote"},
		{"refused", Step{Err: refused, Delay: time.Second}, 0, "", syscall.ECONNREFUSED, time.Second, "get"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBase()
				f := &Faults{Base: b}
				set(t, f, "a.test", always(test.step))
				var hooks []string
				ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
					GetConn: func(addr string) { hooks = append(hooks, "get"); equal(t, addr, "a.test:443") },
					GotConn: func(i httptrace.GotConnInfo) {
						hooks = append(hooks, "got")
						equal(t, i.Conn.RemoteAddr() != nil && !i.Reused, true)
					},
					WroteRequest:         func(httptrace.WroteRequestInfo) { hooks = append(hooks, "wrote") },
					GotFirstResponseByte: func() { hooks = append(hooks, "first") },
				})
				ctx, cancel := context.WithTimeout(ctx, time.Minute)
				defer cancel()
				question := &closing{Reader: strings.NewReader("question")}
				req, _ := http.NewRequestWithContext(ctx, "POST", "https://a.test/", question)
				start := time.Now()
				status, got := 0, []byte(nil)
				resp, err := f.RoundTrip(req)
				if err == nil {
					status = resp.StatusCode
					equal(t, resp.Request, req)
					got, err = io.ReadAll(resp.Body)
					resp.Body.Close()
				}
				if status != test.want || string(got) != test.body || !errors.Is(err, test.err) || time.Since(start) != test.after {
					t.Errorf("%d %q, %v, after %v", status, got, err, time.Since(start))
				}
				synctest.Wait()
				left := question.Len()
				if wantLeft := test.step.Unread || test.name == "refused"; !question.closed || (left > 0) != wantLeft {
					t.Errorf("request body: closed %v, %d bytes left", question.closed, left)
				}
				equal(t, strings.Join(hooks, " "), test.hooks)
				equal(t, len(b.Hits()), 0)
				if test.want == 503 {
					equal(t, resp.Header.Get("Retry-After"), "1")
				}
			})
		})
	}
}

// closing is a request body in memory that tells whether it was closed.
type closing struct {
	*strings.Reader
	closed bool
}

func (c *closing) Close() error { c.closed = true; return nil }

func equal[T comparable](t *testing.T, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestFaultsEndWithTheRequest(t *testing.T) {
	for _, step := range []Step{
		{Fault: Hang}, {Delay: time.Hour}, {Fault: Hang, At: 2}, {Chunk: 1, Pause: time.Hour}, {Status: 500, Delay: time.Hour},
		{Err: &net.OpError{Op: "dial", Err: syscall.ETIMEDOUT}, Delay: time.Hour},
	} {
		for _, how := range []string{"context", "Request.Cancel"} {
			t.Run(fmt.Sprintf("%+v by %s", step, how), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := NewBase(Step{Body: "abcd"})
					f := &Faults{Base: b}
					set(t, f, "a.test", always(step))
					ctx, cancel := context.WithCancelCause(t.Context())
					mine := errors.New("mine")
					legacy := make(chan struct{})
					req, _ := http.NewRequestWithContext(ctx, "GET", "http://a.test/", nil)
					if how == "context" {
						time.AfterFunc(time.Second, func() { cancel(mine) })
					} else {
						req.Cancel = legacy
						time.AfterFunc(time.Second, func() { close(legacy) })
					}
					start := time.Now()
					resp, err := f.RoundTrip(req)
					if err == nil {
						_, err = io.ReadAll(resp.Body)
						resp.Body.Close()
					}
					if err == nil || how == "context" && !errors.Is(err, mine) || time.Since(start) != time.Second {
						t.Error(err, time.Since(start))
					}
					now, _ := b.InFlight()
					equal(t, now, 0)
					cancel(nil)
				})
			})
		}
	}
}

func TestFaultsDoNotWaitForARequestBodyThatBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &Faults{Base: NewBase()}
		set(t, f, "a.test", always(Step{Status: 500}))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		body, w := io.Pipe()
		req, _ := http.NewRequestWithContext(ctx, "POST", "http://a.test/", body)
		if _, err := f.RoundTrip(req); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if _, err := w.Write([]byte("x")); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("not closed: %v", err)
		}
	})
}

func TestFaultsPassOnThePanicOfARequestBody(t *testing.T) {
	f := &Faults{Base: NewBase()}
	set(t, f, "a.test", always(Step{Status: 500}))
	req, _ := http.NewRequest("POST", "http://a.test/", panicking{})
	defer func() { equal(t, recover(), any("body")) }()
	resp, err := f.RoundTrip(req)
	t.Error(resp, err)
}

type panicking struct{}

func (panicking) Read([]byte) (int, error) { panic("body") }
func (panicking) Close() error             { return nil }

func TestClosingASpoiltBodyEndsItsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBase(Step{Body: "abcd"})
		f := &Faults{Base: b}
		set(t, f, "a.test", always(Step{Fault: Hang, At: 1}))
		req, _ := http.NewRequest("GET", "http://a.test/", nil)
		resp, err := f.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := io.ReadAll(resp.Body)
			done <- err
		}()
		synctest.Wait()
		resp.Body.Close()
		if err := <-done; err == nil {
			t.Error("no error")
		}
		now, _ := b.InFlight()
		equal(t, now, 0)
	})
}

func TestTheMostSpecificPatternDecides(t *testing.T) {
	f := &Faults{Base: NewBase(Step{Status: 200})}
	c := &http.Client{Transport: f}
	patterns := []string{EveryHost, "*.test", "*.a.test", "b.a.test", "b.a.test:8080", "Bücher.Example", "[::1]:80", "b.a.test:443"}
	for i, pattern := range patterns {
		set(t, f, pattern, always(Step{Status: 501 + i}))
	}
	for i, pattern := range slices.Backward(patterns) { // whatever was set last
		set(t, f, pattern, always(Step{Status: 501 + i}))
	}
	set(t, f, "*.safe.test")
	status := func(url string) int {
		t.Helper()
		resp, _, err := get(c, url)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode
	}
	for url, want := range map[string]int{
		"http://elsewhere.example/": 501, "http://x.test/": 502, "http://test/": 501, "http://x.a.test": 503, "http://B.A.test.": 504, "https://b.a.test": 508,
		"http://b.a.test:8080": 505, "http://b.a.test:8081": 504, "http://xn--bcher-kva.example/": 506, "http://bücher.example/": 506,
		"http://[::1]/": 507, "http://[::1]:81/": 501, "http://x.safe.test": 200,
	} {
		equal(t, status(url), want)
	}
	err := f.Clear("b.a.test:8080", "b.a.test", "not-set.test", "not a pattern/")
	if err == nil || strings.Contains(err.Error(), "b.a.test") || !strings.Contains(err.Error(), `"not-set.test"`) || !strings.Contains(err.Error(), `"not a pattern/"`) {
		t.Error(err)
	}
	equal(t, status("http://b.a.test:8080"), 503)
	equal(t, f.Injected("b.a.test:8080").Requests, 1)
	set(t, f, "*.a.test", always(Step{Status: 599}))
	equal(t, status("http://b.a.test:8080"), 599)
	equal(t, f.Clear(), nil)
	equal(t, f.Clear("b.a.test"), nil) // again
	equal(t, status("http://b.a.test:8080"), 200)
	equal(t, status("http://elsewhere.example/"), 200)
	equal(t, f.Injected(EveryHost).Hits[0], 3)
	equal(t, f.Injected("never.test").Requests, 0)
}

func TestASeedRepeatsARun(t *testing.T) {
	run := func(seed uint64, others bool) (fates []int, f *Faults) {
		f = &Faults{Base: NewBase(), Seed: seed}
		set(t, f, "other.test", Injection{Share: 0.5, Step: Step{Status: 500}})
		set(t, f, "a.test", Injection{Share: 0.3, Step: Step{Status: 503}}, Injection{Share: 0.1, Step: Step{Status: 502}})
		for range 1000 {
			if others {
				get(&http.Client{Transport: f}, "http://other.test/")
			}
			resp, _, err := get(&http.Client{Transport: f}, "http://a.test/")
			if err != nil {
				t.Fatal(err)
			}
			fates = append(fates, resp.StatusCode)
		}
		return fates, f
	}
	first, f := run(1, false)
	again, _ := run(1, true)
	other, _ := run(2, false)
	if !slices.Equal(first, again) || slices.Equal(first, other) {
		t.Error("the same fates must come from the same seed, whatever other hosts are asked")
	}
	in := f.Injected("a.test")
	count := map[int]int64{}
	for _, s := range first {
		count[s]++
	}
	if in.Requests != 1000 || in.Hits[0] != count[503] || in.Hits[1] != count[502] {
		t.Errorf("%+v, have %v", in, count)
	}
	if in.Hits[0] < 250 || in.Hits[0] > 350 || in.Hits[1] < 70 || in.Hits[1] > 130 {
		t.Errorf("%+v of 1000, want about 300 and 100", in)
	}
	set(t, f, "a.test", Injection{Share: 0.3, Step: Step{Status: 503}})
	if in := f.Injected("a.test"); in.Requests != 0 || len(in.Hits) != 1 || in.Hits[0] != 0 {
		t.Errorf("Set begins anew: %+v", in)
	}
}

func TestFaultsRefuseWhatCannotBeMeant(t *testing.T) {
	f := &Faults{}
	for _, test := range []struct {
		host string
		in   []Injection
		want []string // paths of all problems
	}{
		{"a.test", []Injection{always(Step{Fault: Hang}), always(Step{Fault: Hang})}, []string{`Faults["a.test"]: all Shares together: 2`}},
		{"a.test", []Injection{{Step: Step{Fault: Hang}}}, []string{`Faults["a.test"][0].Share: 0: must be a fraction above 0`}},
		{"a.test", []Injection{{Share: math.NaN(), Step: Step{Fault: Hang}}, {Share: -1, Step: Step{Fault: Hang}}, {Share: 30, Step: Step{Fault: Hang}}},
			[]string{"[0].Share: NaN", "[1].Share: -1", "[2].Share: 30"}},
		{"a.test", []Injection{always(Step{})}, []string{`Faults["a.test"][0].Step.Status: 0: must be set, or one of`}},
		{"a.test", []Injection{always(Step{Delay: -1, Pause: -1, Chunk: -1, Size: -1, Status: 101, Fault: GoAway, At: -2})},
			[]string{"Delay: -1ns", "Pause: -1ns", "Chunk: -1", "Size: -1", "Status: 101", "Fault: GoAway: must be Hang, Cut or Reset", "At: -2"}},
		{"a.test", []Injection{always(Step{Delay: 1, At: 3})}, []string{"At: 3"}},
		{"a.test", []Injection{always(Step{Status: 500, Err: io.EOF})}, []string{"Err: EOF"}},
		{"a.test", []Injection{always(Step{Fault: Cut, Err: io.EOF})}, []string{"Err: EOF"}},
		{"a.test", []Injection{always(Step{Delay: 1, Raw: "x", Handler: http.NotFoundHandler()})}, []string{"Raw: x", "Handler: set"}},
		{"a.test", []Injection{always(Step{Delay: 1, Header: http.Header{"A": nil}, Body: "b", Size: 1, Framing: Chunked, Trailer: http.Header{"A": nil}, Interim: []Step{{Status: 103}}, Unread: true})},
			[]string{"Header: map", "Body: b", "Size: 1", "Framing: 1", "Trailer: map", "Interim: 1", "Unread: true"}},
		{"a.test", []Injection{always(Step{Status: 500, Interim: []Step{{Status: 103}, {Status: 101}, {Status: 200}}})}, []string{"Interim[1].Status: 101", "Interim[2].Status: 200"}},
		{"http://user:secret@a.test", nil, []string{"has a scheme"}},
		{"u:secret@a.test", []Injection{always(Step{})}, []string{"host pattern", `Faults["?"][0].Step.Status`}},
	} {
		err := f.Set(test.host, test.in...)
		if err == nil {
			t.Errorf("%s %+v: no error, want %q", test.host, test.in, test.want)
			continue
		}
		problems := strings.Split(err.Error(), "\n")
		if len(problems) != len(test.want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q, want %q", problems, test.want)
			continue
		}
		for i, want := range test.want {
			if !strings.Contains(problems[i], want) {
				t.Errorf("%q, want %q", problems[i], want)
			}
		}
		var field *policy.FieldError
		if !errors.As(err, &field) && !strings.Contains(err.Error(), "pattern") {
			t.Errorf("%T", err)
		}
	}
	equal(t, f.Injected("a.test").Requests, 0)
	set(t, f, "a.test", Injection{Share: 0.7, Step: Step{Fault: Hang}}, Injection{Share: 0.1, Step: Step{Fault: Cut}},
		Injection{Share: 0.1, Step: Step{Fault: Reset}}, Injection{Share: 0.1, Step: Step{Delay: 1}})
}

// closer counts CloseIdleConnections.
type closer struct {
	http.RoundTripper
	n int
}

func (c *closer) CloseIdleConnections() { c.n++ }

func TestFaultsCloseTheIdleConnectionsOfTheirBase(t *testing.T) {
	base := &closer{RoundTripper: NewBase()}
	(&http.Client{Transport: &Faults{Base: base}}).CloseIdleConnections()
	equal(t, base.n, 1)
	(&Faults{Base: NewBase()}).CloseIdleConnections()
	(&Faults{}).CloseIdleConnections()
}

func TestTheZeroFaultsHaveConnectionsOfTheirOwn(t *testing.T) {
	o := NewOrigin(t)
	o.Script(Step{Body: "hello"})
	old := http.DefaultTransport
	http.DefaultTransport = nil // where the stack may be installed, above the Faults
	defer func() { http.DefaultTransport = old }()
	f := &Faults{}
	c := &http.Client{Transport: f}
	for range 2 {
		if _, body, err := get(c, o.URL); err != nil || body != "hello" {
			t.Fatal(body, err)
		}
	}
	opened, _ := o.Connections()
	equal(t, opened, 1)
	f.CloseIdleConnections()
	o.WaitOpen(0)
}

func TestSpoiltAnswersKeepTrailersAndUpgrades(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := NewNet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Upgrade") == "" {
				w.Header().Set("Trailer", "X-Sum")
				io.WriteString(w, "body")
				w.Header().Set("X-Sum", "1")
				return
			}
			w.Header().Set("Upgrade", "echo")
			w.Header().Set("Connection", "upgrade")
			w.WriteHeader(101)
			conn, rw, err := w.(http.Hijacker).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close()
			line, _ := rw.ReadString('\n')
			io.WriteString(conn, line)
		}))
		f := &Faults{Base: o.Base()}
		set(t, f, EveryHost, always(Step{Delay: time.Second, Pause: time.Second, Chunk: 3}))
		resp, body, err := get(&http.Client{Transport: f}, "http://a.test/")
		if err != nil || body != "body" || resp.Trailer.Get("X-Sum") != "1" {
			t.Error(resp, body, err)
		}
		req, _ := http.NewRequest("GET", "http://a.test/", nil)
		req.Header = http.Header{"Connection": {"upgrade"}, "Upgrade": {"echo"}}
		resp, err = f.RoundTrip(req)
		if err != nil || resp.StatusCode != 101 {
			t.Fatal(resp, err)
		}
		w, ok := resp.Body.(io.ReadWriteCloser)
		if !ok {
			t.Fatalf("%T cannot be written to", resp.Body)
		}
		io.WriteString(w, "echo\n")
		line, err := io.ReadAll(w)
		equal(t, string(line), "echo\n")
		equal(t, err, nil)
		w.Close()
		f.CloseIdleConnections()
	})
}

func TestFaultsFindAHostHoweverItIsWritten(t *testing.T) {
	for pattern, targets := range map[string][]string{
		"pay.internal:80":   {"http://pay.internal:080/", "http://PAY.internal./", "http://pay.internal"},
		"Bücher.test":       {"https://xn--bcher-kva.test/", "http://bücher.test:8080/"},
		"My_Host":           {"http://my_host/"},
		"[0:0:0:0:0:0:0:1]": {"http://[::1]/"},
	} {
		f := &Faults{Base: NewBase()}
		if err := f.Set(pattern, Injection{Share: 1, Step: Step{Status: 418}}); err != nil {
			t.Fatal(err)
		}
		for _, target := range targets {
			req, err := http.NewRequest(http.MethodGet, target, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := f.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			if resp.StatusCode != 418 {
				t.Errorf("%s: %s is not hit", pattern, target)
			}
		}
	}
}
