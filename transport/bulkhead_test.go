package transport_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// bulkheadBase answers from memory, with a body that is open until it is read or
// closed.
type bulkheadBase func(*http.Request) (*http.Response, error)

func (f bulkheadBase) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// bulkheadHello answers every request with a short body.
func bulkheadHello(r *http.Request) (*http.Response, error) {
	return bulkheadAnswer(r, http.StatusOK, strings.NewReader("hello")), nil
}

// bulkheadOnly is a policy of nothing but n permits.
func bulkheadOnly(n int, wait time.Duration) policy.Policy {
	return policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: n, MaxWait: wait}}
}

// bulkheadTry does a GET and gives its permit back.
func bulkheadTry(ctx context.Context, tr *transport.Transport, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// bulkheadWhole fails unless exactly n calls are admitted at once.
func bulkheadWhole(t *testing.T, tr *transport.Transport, url string, n int) {
	t.Helper()
	bulkheadInFlight(t, tr, 0)
	var open []*http.Response
	for i := range n {
		resp, err := tr.RoundTrip(bulkheadRequest(t, t.Context(), http.MethodGet, url))
		if err != nil {
			t.Fatalf("call %d of %d: %v", i+1, n, err)
		}
		open = append(open, resp)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if err := bulkheadTry(ctx, tr, url); err == nil {
		t.Fatalf("more than %d calls were admitted", n)
	}
	for _, resp := range open {
		_ = resp.Body.Close()
	}
	bulkheadInFlight(t, tr, 0)
}

func TestBulkheadRefusesAtOnceWhenFull(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var rec transporttest.Recorder
		var hits atomic.Int64
		tr := bulkheadNew(t, transport.Config{Default: bulkheadOnly(2, 0), Observer: &rec,
			Base: bulkheadBase(func(r *http.Request) (*http.Response, error) { hits.Add(1); return bulkheadHello(r) })})
		a, b := bulkheadGet(t, tr, "http://x.test/"), bulkheadGet(t, tr, "http://x.test/")
		start := time.Now()
		body := &contractBody{Reader: strings.NewReader("sent")}
		req, _ := http.NewRequest(http.MethodPost, "http://x.test/?secret", body)
		_, err := tr.Client().Do(req)
		var e *transport.Error
		if !errors.Is(err, transport.ErrBulkheadFull) || !errors.As(err, &e) {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
		if e.Host != "x.test:80" || e.Layer != transport.LayerBulkhead || e.Knob != "Bulkhead.MaxConcurrent" || e.Timeout() || e.Attempts != 0 {
			t.Errorf("%+v", e)
		}
		if strings.Contains(e.Error(), "secret") {
			t.Errorf("the error tells the query: %v", e)
		}
		if n := body.Closed.Load(); n != 1 {
			t.Errorf("request body closed %d times", n)
		}
		if hits.Load() != 2 {
			t.Errorf("%d requests went out", hits.Load())
		}
		s := tr.Snapshot()[0]
		if s.InFlight != 2 || s.Counts.Rejected != 1 || s.Counts.Attempts != 2 {
			t.Errorf("%+v", s)
		}
		if got := rec.Events(transport.EventRefusal); len(got) != 1 || got[0].Reason != "full" || got[0].Shadow {
			t.Errorf("%+v", got)
		}
		_ = a.Body.Close()
		bulkheadGet(t, tr, "http://x.test/").Body.Close()
		_ = b.Body.Close()
		bulkheadWhole(t, tr, "http://x.test/", 2)
	})
}

func TestBulkheadServesWaitersInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := bulkheadNew(t, transport.Config{Default: bulkheadOnly(1, time.Minute), Base: bulkheadBase(bulkheadHello)})
		first := bulkheadGet(t, tr, "http://x.test/")
		admitted := make(chan int)
		leave := make(chan struct{})
		for i := range 10 {
			go func() {
				resp := bulkheadGet(t, tr, "http://x.test/")
				admitted <- i
				<-leave
				_ = resp.Body.Close()
			}()
			synctest.Wait()
		}
		if s := tr.Snapshot()[0]; s.Waiting != 10 || s.InFlight != 1 {
			t.Fatalf("%d wait, %d in flight", s.Waiting, s.InFlight)
		}
		_ = first.Body.Close()
		for i := range 10 {
			if got := <-admitted; got != i {
				t.Fatalf("admitted number %d before number %d", got, i)
			}
			leave <- struct{}{}
		}
		synctest.Wait()
		bulkheadWhole(t, tr, "http://x.test/", 1)
	})
}

func TestBulkheadWaitEndsAtMaxWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var rec transporttest.Recorder
		tr := bulkheadNew(t, transport.Config{Default: bulkheadOnly(1, 3*time.Second), Base: bulkheadBase(bulkheadHello), Observer: &rec})
		held := bulkheadGet(t, tr, "http://x.test/")
		start := time.Now()
		err := bulkheadTry(t.Context(), tr, "http://x.test/")
		if took := time.Since(start); took != 3*time.Second {
			t.Errorf("took %v", took)
		}
		var e *transport.Error
		if !errors.As(err, &e) || e.Kind != transport.ErrBulkheadFull || e.Limit != 3*time.Second || e.ErrorType() != "bulkhead_wait_timeout" {
			t.Errorf("%#v", err)
		}
		if got := rec.Events(transport.EventRefusal); len(got) != 1 || got[0].Reason != "wait_timeout" {
			t.Errorf("%+v", got)
		}
		if s := tr.Snapshot()[0]; s.Waiting != 0 || s.Counts.Rejected != 1 {
			t.Errorf("%+v", s)
		}
		_ = held.Body.Close()
		bulkheadWhole(t, tr, "http://x.test/", 1)
	})
}

func TestBulkheadWaitEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	cause := errors.New("the user went home")
	closedAfter := func(d time.Duration) <-chan struct{} {
		c := make(chan struct{})
		time.AfterFunc(d, func() { close(c) })
		return c
	}
	for name, row := range map[string]struct {
		change func(*http.Request) *http.Request
		total  time.Duration
		want   func(error) bool
	}{
		"cancelled": {
			change: func(r *http.Request) *http.Request {
				ctx, cancel := context.WithCancel(r.Context())
				time.AfterFunc(time.Second, cancel)
				return r.WithContext(ctx)
			},
			want: func(err error) bool { return err == context.Canceled },
		},
		"cancelled with a cause": {
			change: func(r *http.Request) *http.Request {
				ctx, cancel := context.WithCancelCause(r.Context())
				time.AfterFunc(time.Second, func() { cancel(cause) })
				return r.WithContext(ctx)
			},
			want: func(err error) bool { return err == cause },
		},
		"at its deadline": {
			change: func(r *http.Request) *http.Request {
				ctx, cancel := context.WithTimeout(r.Context(), time.Second)
				context.AfterFunc(ctx, cancel)
				return r.WithContext(ctx)
			},
			want: func(err error) bool { return err == context.DeadlineExceeded },
		},
		"by Request.Cancel": {
			change: func(r *http.Request) *http.Request {
				r.Cancel = closedAfter(time.Second)
				return r
			},
			want: func(err error) bool { return err.Error() == "net/http: request canceled" },
		},
		"at Timeout.Total": {
			change: func(r *http.Request) *http.Request { return r },
			total:  time.Second,
			want: func(err error) bool {
				var e *transport.Error
				return errors.As(err, &e) && e.Kind == transport.ErrTotalTimeout && e.Phase == "queue" && e.Timeout() &&
					errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := bulkheadOnly(1, time.Minute)
				p.Timeout.Total = row.total
				var hits atomic.Int64
				var seen transporttest.Recorder
				tr := bulkheadNew(t, transport.Config{Default: p, Observer: &seen, Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
					hits.Add(1)
					return bulkheadHello(r)
				})})
				held := bulkheadGet(t, tr, "http://x.test/")
				start := time.Now()
				body := &contractBody{Reader: strings.NewReader("sent")}
				req := bulkheadRequest(t, t.Context(), http.MethodPut, "http://x.test/")
				req.Body = body
				_, err := tr.RoundTrip(row.change(req))
				if took := time.Since(start); took != time.Second {
					t.Errorf("took %v", took)
				}
				if err == nil || !row.want(err) {
					t.Errorf("%#v", err)
				}
				if body.Closed.Load() != 1 || hits.Load() != 1 {
					t.Errorf("body closed %d times, %d requests went out", body.Closed.Load(), hits.Load())
				}
				waits := append(seen.Events(transport.EventPermit), seen.Events(transport.EventRefusal)...)
				if len(waits) != 1 || waits[0].Duration != time.Second || waits[0].Err == nil {
					t.Errorf("told of the wait: %+v", waits)
				}
				if n := tr.Snapshot()[0].Counts.Timeouts["queue"]; n == 1 != (row.total > 0) {
					t.Errorf("%d limits fired in the queue", n)
				}
				_ = held.Body.Close()
				bulkheadWhole(t, tr, "http://x.test/", 1)
			})
		})
	}
}

func TestBulkheadAdmitsNobodyWhoHasGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var hits atomic.Int64
		tr := bulkheadNew(t, transport.Config{Default: bulkheadOnly(1, time.Minute), Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
			hits.Add(1)
			return bulkheadHello(r)
		})})
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		if err := bulkheadTry(gone, tr, "http://x.test/"); err != context.Canceled {
			t.Fatal(err)
		}
		if hits.Load() != 0 {
			t.Fatal("a request went out whose caller had gone")
		}

		held := bulkheadGet(t, tr, "http://x.test/")
		front, leave := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		go func() { errs <- bulkheadTry(front, tr, "http://x.test/") }()
		synctest.Wait()
		go func() { errs <- bulkheadTry(t.Context(), tr, "http://x.test/") }()
		synctest.Wait()
		leave()
		if err := <-errs; err != context.Canceled {
			t.Fatal(err)
		}
		_ = held.Body.Close()
		if err := <-errs; err != nil {
			t.Fatalf("who waited behind one that left: %v", err)
		}
		bulkheadWhole(t, tr, "http://x.test/", 1)
	})
}

func TestBulkheadIsWholeAfterQueueTimeouts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := bulkheadNew(t, transport.Config{Default: bulkheadOnly(8, time.Second), Base: bulkheadBase(bulkheadHello)})
		for range 5 {
			var held []*http.Response
			for range 8 {
				held = append(held, bulkheadGet(t, tr, "http://x.test/"))
			}
			errs := make(chan error)
			for range 8 {
				go func() { errs <- bulkheadTry(t.Context(), tr, "http://x.test/") }()
			}
			for i := range 8 {
				if i == 4 { // at the moment when the waits end
					for _, resp := range held {
						_ = resp.Body.Close()
					}
				}
				<-errs
			}
			bulkheadWhole(t, tr, "http://x.test/", 8)
		}
	})
}

// bulkheadEndings are the ways in which a caller ends with a body.
var bulkheadEndings = map[string]func(io.ReadCloser){
	"EOF":            func(b io.ReadCloser) { _, _ = io.Copy(io.Discard, b) },
	"Close":          func(b io.ReadCloser) { _ = b.Close() },
	"Close twice":    func(b io.ReadCloser) { _ = b.Close(); _ = b.Close() },
	"EOF then Close": func(b io.ReadCloser) { _, _ = io.Copy(io.Discard, b); _ = b.Close() },
	"part then Close": func(b io.ReadCloser) {
		_, _ = b.Read(make([]byte, 2))
		_ = b.Close()
	},
	"Close then read": func(b io.ReadCloser) { _ = b.Close(); _, _ = b.Read(make([]byte, 1)) },
	"two that close": func(b io.ReadCloser) {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _ = b.Close() })
		}
		wg.Wait()
	},
	"two that read, one that closes": func(b io.ReadCloser) {
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() { _, _ = io.Copy(io.Discard, b) })
		}
		wg.Go(func() { _ = b.Close() })
		wg.Wait()
	},
	"a panic with a deferred Close": func(b io.ReadCloser) {
		defer func() { _ = recover() }()
		defer b.Close()
		panic("careless")
	},
	"Goexit with a deferred Close": func(b io.ReadCloser) {
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer b.Close()
			runtime.Goexit()
		}()
		<-done
	},
}

func TestBulkheadPermitIsHeldUntilTheBodyEnds(t *testing.T) {
	t.Parallel()
	for name, end := range bulkheadEndings {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := bulkheadNew(t, transport.Config{Default: bulkheadOnly(1, 0), Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
					return bulkheadAnswer(r, 200, &contractBody{Reader: strings.NewReader("hello")}), nil
				})})
				resp := bulkheadGet(t, tr, "http://x.test/")
				bulkheadInFlight(t, tr, 1)
				if err := bulkheadTry(t.Context(), tr, "http://x.test/"); !errors.Is(err, transport.ErrBulkheadFull) {
					t.Fatalf("admitted while a body is open: %v", err)
				}
				end(resp.Body)
				bulkheadWhole(t, tr, "http://x.test/", 1)
			})
		})
	}
}

func TestBulkheadPermitComesBackOnceFromABrokenBody(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	synctest.Test(t, func(t *testing.T) {
		tr := bulkheadNew(t, transport.Config{Default: bulkheadOnly(1, 0), Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
			return bulkheadAnswer(r, 200, io.MultiReader(strings.NewReader("he"), &contractBody{Err: broken})), nil
		})})
		resp := bulkheadGet(t, tr, "http://x.test/")
		b, err := io.ReadAll(resp.Body)
		if string(b) != "he" || err != broken {
			t.Fatalf("%q, %v", b, err)
		}
		bulkheadInFlight(t, tr, 0)
		if _, err := resp.Body.Read(make([]byte, 1)); err != broken {
			t.Errorf("a second read: %v", err)
		}
		_ = resp.Body.Close()
		bulkheadWhole(t, tr, "http://x.test/", 1)
	})
}

func TestBulkheadPermitComesBackFromAnyBase(t *testing.T) {
	failed := errors.New("failed")
	for name, row := range map[string]struct {
		base bulkheadBase
		err  func(error) bool
	}{
		"that fails":       {func(*http.Request) (*http.Response, error) { return nil, failed }, func(err error) bool { return err == failed }},
		"that panics":      {func(*http.Request) (*http.Response, error) { panic("base") }, nil},
		"that ends itself": {func(*http.Request) (*http.Response, error) { runtime.Goexit(); return nil, nil }, nil},
		"that returns neither": {func(*http.Request) (*http.Response, error) { return nil, nil },
			func(err error) bool { return err != nil }},
		"that returns both": {func(r *http.Request) (*http.Response, error) {
			resp, _ := bulkheadHello(r)
			return resp, failed
		}, func(err error) bool { return err == failed }},
		"that returns no body": {func(r *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Header: http.Header{}}, nil
		}, func(err error) bool { return err == nil }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				broken := true
				p := policy.Default()
				p.Retry = policy.Retry{}
				p.Bulkhead.MaxConcurrent = 20
				tr := bulkheadNew(t, transport.Config{Default: p, Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
					if broken {
						return row.base(r)
					}
					return bulkheadHello(r)
				})})
				for range 25 {
					done := make(chan struct{})
					go func() {
						defer close(done)
						defer func() { _ = recover() }()
						err := bulkheadTry(t.Context(), tr, "http://x.test/")
						if row.err == nil {
							t.Error("the panic was swallowed")
						} else if !row.err(err) && !errors.Is(err, transport.ErrBreakerOpen) {
							t.Error(err)
						}
					}()
					<-done
				}
				broken = false
				tr.Host("x.test").Reset()
				bulkheadWhole(t, tr, "http://x.test/", 20)
			})
		})
	}
}

// The caller's own functions are called while a permit is held.
func TestBulkheadPermitComesBackFromAnyClassify(t *testing.T) {
	for name, end := range map[string]func(){"that panics": func() { panic("careless") }, "that ends itself": runtime.Goexit} {
		for when, broken := range map[string]bool{"at the headers": false, "at the end": true} {
			t.Run(name+" "+when, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					p := policy.Service()
					p.Retry, p.Breaker.ConsecutiveFailures = policy.Retry{}, 1000
					careless := true
					p.Breaker.Classify = func(_ *http.Response, err error) policy.Verdict {
						if careless && broken == (err != nil) {
							end()
						}
						return policy.Unclassified
					}
					tr := bulkheadNew(t, transport.Config{Default: p, Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
						if broken && careless {
							return bulkheadAnswer(r, 200, &contractBody{Err: errors.New("broken")}), nil
						}
						return bulkheadHello(r)
					})})
					for range 25 {
						done := make(chan struct{})
						go func() {
							defer close(done)
							resp, err := tr.RoundTrip(bulkheadRequest(t, t.Context(), http.MethodGet, "http://x.test/"))
							if err == nil {
								_, _ = io.Copy(io.Discard, resp.Body)
							}
						}()
						<-done
					}
					careless = false
					tr.Host("x.test").Reset()
					bulkheadWhole(t, tr, "http://x.test/", 20)
				})
			})
		}
	}
}

func TestBulkheadPermitComesBackAtReturnWithoutABody(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct {
		method string
		status int
		body   io.ReadCloser
	}{
		"HEAD":          {http.MethodHead, 200, http.NoBody},
		"204":           {http.MethodGet, 204, http.NoBody},
		"304":           {http.MethodGet, 304, http.NoBody},
		"an empty 200":  {http.MethodGet, 200, http.NoBody},
		"101":           {http.MethodGet, 101, &contractBody{Reader: strings.NewReader("tunnel")}},
		"HEAD of a 200": {http.MethodHead, 200, &contractBody{Reader: strings.NewReader("")}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := bulkheadNew(t, transport.Config{Default: bulkheadOnly(1, 0), Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
					return bulkheadAnswer(r, row.status, row.body), nil
				})})
				for range 3 { // nobody closes anything
					if _, err := tr.RoundTrip(bulkheadRequest(t, t.Context(), row.method, "http://x.test/")); err != nil {
						t.Fatal(err)
					}
					bulkheadInFlight(t, tr, 0)
				}
			})
		})
	}
}

func TestBulkheadStreamsKeepTheirPermit(t *testing.T) {
	t.Parallel()
	for name, row := range map[string]struct{ request, response string }{
		"server-sent events": {response: "text/event-stream"},
		"gRPC":               {request: "application/grpc+proto", response: "application/grpc+proto"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := policy.Service()
				p.Bulkhead.MaxConcurrent = 20
				p.Breaker = policy.Breaker{}
				tr := bulkheadNew(t, transport.Config{Default: p, Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
					resp := bulkheadAnswer(r, 200, &contractBody{Reader: strings.NewReader("data: 1\n\n")})
					resp.Header.Set("Content-Type", row.response)
					return resp, nil
				})})
				var open []*http.Response
				for range 20 {
					req := bulkheadRequest(t, t.Context(), http.MethodGet, "http://x.test/")
					if row.request != "" {
						req.Header.Set("Content-Type", row.request)
					}
					resp, err := tr.RoundTrip(req)
					if err != nil {
						t.Fatal(err)
					}
					open = append(open, resp)
				}
				time.Sleep(24 * time.Hour)
				bulkheadInFlight(t, tr, 20)
				if err := bulkheadTry(t.Context(), tr, "http://x.test/"); !errors.Is(err, transport.ErrBulkheadFull) {
					t.Fatal(err)
				}
				for _, resp := range open {
					if b, err := io.ReadAll(resp.Body); len(b) == 0 || err != nil {
						t.Errorf("%q, %v", b, err)
					}
				}
				bulkheadInFlight(t, tr, 0)
			})
		})
	}
}

func TestBulkheadOfTheProcessBoundsAllHosts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := bulkheadNew(t, transport.Config{Default: bulkheadOnly(2, 0), MaxConcurrent: 3, Base: bulkheadBase(bulkheadHello)})
		a1, a2 := bulkheadGet(t, tr, "http://a.test/"), bulkheadGet(t, tr, "http://a.test/")
		b1 := bulkheadGet(t, tr, "http://b.test/")
		for _, host := range []string{"b.test", "c.test"} {
			err := bulkheadTry(t.Context(), tr, "http://"+host+"/")
			var e *transport.Error
			if !errors.As(err, &e) || e.Kind != transport.ErrBulkheadFull || e.Knob != "Config.MaxConcurrent" || e.Host != host+":80" {
				t.Fatalf("%#v", err)
			}
		}
		for _, resp := range []*http.Response{a1, a2, b1} {
			_ = resp.Body.Close()
		}
		for _, host := range []string{"a", "b", "c"} { // what was refused gave its host's permit back
			bulkheadWhole(t, tr, "http://"+host+".test/", 2)
		}
	})
}

func TestBulkheadOfTheProcessWorksWithoutOneOfTheHost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Policy{Timeout: policy.Timeout{Total: time.Hour}}
		tr := bulkheadNew(t, transport.Config{Default: p, MaxConcurrent: 3, Base: bulkheadBase(bulkheadHello)})
		bulkheadWhole(t, tr, "http://a.test/", 3)
	})
}

func TestBulkheadMaxWaitBoundsBothWaitsTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		tr := bulkheadNew(t, transport.Config{Default: bulkheadOnly(1, 10*time.Second), MaxConcurrent: 2, Base: bulkheadBase(bulkheadHello),
			Hosts: map[string]policy.Policy{"c.test": bulkheadOnly(1, time.Hour)}})
		a, b := bulkheadGet(t, tr, "http://a.test/"), bulkheadGet(t, tr, "http://b.test/")
		admitted := make(chan *http.Response)
		go func() { admitted <- bulkheadGet(t, tr, "http://c.test/") }() // first in line for the process
		synctest.Wait()
		time.AfterFunc(7*time.Second, func() { _ = a.Body.Close() }) // a.test is free then, the process is not
		start := time.Now()
		err := bulkheadTry(t.Context(), tr, "http://a.test/")
		if took := time.Since(start); took != 10*time.Second {
			t.Errorf("took %v", took)
		}
		var e *transport.Error
		if !errors.As(err, &e) || e.Kind != transport.ErrBulkheadFull || e.Limit != 10*time.Second || e.Knob != "Config.MaxConcurrent" {
			t.Errorf("%#v", err)
		}
		_ = (<-admitted).Body.Close()
		_ = b.Body.Close()
		bulkheadWhole(t, tr, "http://a.test/", 1)
	})
}

func TestBulkheadShadowReportsAndLetsThrough(t *testing.T) {
	t.Parallel()
	for name, wait := range map[string]time.Duration{"without a wait": 0, "with a wait": time.Minute} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var rec transporttest.Recorder
				p := bulkheadOnly(1, wait)
				p.Bulkhead.Shadow = true
				p.Timeout.Total = 30 * time.Second // less than the wait
				tr := bulkheadNew(t, transport.Config{Default: p, Base: bulkheadBase(bulkheadHello), Observer: &rec})
				start := time.Now()
				var open []*http.Response
				for range 5 {
					open = append(open, bulkheadGet(t, tr, "http://x.test/"))
				}
				if took := time.Since(start); took != 0 {
					t.Errorf("took %v", took)
				}
				s := tr.Snapshot()[0]
				if s.InFlight != 5 || s.Counts.Rejected != 4 {
					t.Errorf("%d in flight, %d rejected", s.InFlight, s.Counts.Rejected)
				}
				got := rec.Events(transport.EventRefusal)
				if len(got) != 4 {
					t.Fatalf("%d events", len(got))
				}
				for _, e := range got {
					if !e.Shadow || e.Reason != "full" || !errors.Is(e.Err, transport.ErrBulkheadFull) {
						t.Errorf("%+v", e)
					}
				}
				for _, resp := range open {
					_ = resp.Body.Close()
				}
				bulkheadInFlight(t, tr, 0)
			})
		})
	}
}

func TestBulkheadShadowDoesNotLiftTheBoundOfTheProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var rec transporttest.Recorder
		p := bulkheadOnly(1, 0)
		p.Bulkhead.Shadow = true
		tr := bulkheadNew(t, transport.Config{Default: p, MaxConcurrent: 2, Base: bulkheadBase(bulkheadHello), Observer: &rec})
		a, b := bulkheadGet(t, tr, "http://x.test/"), bulkheadGet(t, tr, "http://x.test/")
		if err := bulkheadTry(t.Context(), tr, "http://x.test/"); !errors.Is(err, transport.ErrBulkheadFull) {
			t.Fatal(err)
		}
		if got := rec.Events(transport.EventRefusal); len(got) != 3 || !got[0].Shadow || !got[1].Shadow || got[2].Shadow {
			t.Errorf("%+v", got)
		}
		_ = a.Body.Close()
		_ = b.Body.Close()
		bulkheadInFlight(t, tr, 0)
	})
}

func TestBulkheadIsNotHeldWhileARetryWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := bulkheadOnly(1, 0)
		p.Retry = policy.Retry{MaxAttempts: 2, Base: time.Second, Max: time.Second, Statuses: []int{503}}
		var hits atomic.Int64
		tr := bulkheadNew(t, transport.Config{Default: p, Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
			if hits.Add(1) == 1 {
				return bulkheadAnswer(r, 503, strings.NewReader("busy")), nil
			}
			return bulkheadHello(r)
		})})
		done := make(chan error)
		go func() { done <- bulkheadTry(t.Context(), tr, "http://x.test/") }()
		synctest.Wait() // in its backoff
		start := time.Now()
		if err := bulkheadTry(t.Context(), tr, "http://x.test/"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 0 {
			t.Errorf("took %v", took)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		bulkheadWhole(t, tr, "http://x.test/", 1)
	})
}

func TestBulkheadWaitOfAgRPCCallIsNotBoundByTotal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := bulkheadOnly(1, time.Minute)
		p.Timeout.Total = time.Second
		tr := bulkheadNew(t, transport.Config{Default: p, Base: bulkheadBase(bulkheadHello)})
		held := bulkheadGet(t, tr, "http://x.test/")
		time.AfterFunc(30*time.Second, func() { _ = held.Body.Close() })
		req := bulkheadRequest(t, t.Context(), http.MethodPost, "http://x.test/")
		req.Header.Set("Content-Type", "application/grpc")
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
	})
}

func TestBulkheadOfNoneIsOffAndANegativeOneIsRefused(t *testing.T) {
	tr := bulkheadNew(t, transport.Config{Default: policy.Policy{Timeout: policy.Timeout{Total: time.Hour}}, Base: bulkheadBase(bulkheadHello)})
	var open []*http.Response
	for range 1000 {
		open = append(open, bulkheadGet(t, tr, "http://x.test/"))
	}
	for _, resp := range open {
		_ = resp.Body.Close()
	}
	_, err := transport.New(transport.Config{Default: bulkheadOnly(-1, 0), MaxConcurrent: -1})
	if err == nil || !strings.Contains(err.Error(), "Default.Bulkhead.MaxConcurrent: -1") || !strings.Contains(err.Error(), " MaxConcurrent: -1: must be 0 (no bound)") {
		t.Fatal(err)
	}
	_, err = transport.New(transport.Config{Default: bulkheadOnly(3, 0), MaxConcurrent: 2})
	if err == nil || !strings.Contains(err.Error(), "at most Config.MaxConcurrent (2)") {
		t.Fatal(err)
	}
}

// Callers leave at any moment: in the queue, before the headers, in the body, and
// at the very instant when the next thing happens.
func TestBulkheadGaugeIsZeroAfterTenThousandCancellations(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := policy.Service()
		p.Bulkhead = policy.Bulkhead{MaxConcurrent: 20, MaxWait: 30 * time.Millisecond, BodyIdle: 20 * time.Millisecond}
		p.Retry.Base, p.Retry.Max = 5*time.Millisecond, 10*time.Millisecond
		var over, now atomic.Int64
		var healed atomic.Bool
		tr := bulkheadNew(t, transport.Config{Default: p, MaxConcurrent: 25, Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
			if now.Add(1) > 20 {
				over.Add(1)
			}
			left := sync.OnceFunc(func() { now.Add(-1) })
			if healed.Load() {
				return bulkheadAnswer(r, 200, &bulkheadDrip{ctx: r.Context(), closed: left}), nil
			}
			select {
			case <-time.After(time.Duration(rand.IntN(5)) * time.Millisecond):
			case <-r.Context().Done():
				left()
				return nil, r.Context().Err()
			}
			switch rand.IntN(20) {
			case 0:
				left()
				return nil, errors.New("reset")
			case 1:
				return bulkheadAnswer(r, 503, &bulkheadDrip{ctx: r.Context(), closed: left}), nil
			}
			return bulkheadAnswer(r, 200, &bulkheadDrip{ctx: r.Context(), closed: left}), nil
		})})
		tr.Host("x.test").ForceClosed()
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				for range fewer(100) {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(60))*time.Millisecond)
					resp, err := tr.RoundTrip(bulkheadRequest(t, ctx, http.MethodGet, "http://x.test/"))
					if err == nil {
						switch rand.IntN(4) {
						case 0:
							_, _ = io.Copy(io.Discard, resp.Body)
						case 1:
							_, _ = resp.Body.Read(make([]byte, 1))
						case 2:
							go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
						case 3:
							time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
						}
						if rand.IntN(4) > 0 {
							cancel()
						}
						_ = resp.Body.Close()
					}
					cancel()
				}
			})
		}
		wg.Wait()
		time.Sleep(time.Second)
		if over.Load() > 0 {
			t.Errorf("more than MaxConcurrent calls at the base, %d times", over.Load())
		}
		for _, s := range tr.Snapshot() {
			if s.InFlight != 0 || s.Waiting != 0 {
				t.Errorf("%s: %d in flight, %d waiting", s.Host, s.InFlight, s.Waiting)
			}
		}
		healed.Store(true)
		bulkheadWhole(t, tr, "http://x.test/", 20)
	})
}

// bulkheadDrip is a body of a few pieces that heeds its context.
type bulkheadDrip struct {
	ctx    context.Context
	left   atomic.Int32
	closed func()
}

func (d *bulkheadDrip) Read(p []byte) (int, error) {
	select {
	case <-time.After(time.Millisecond):
	case <-d.ctx.Done():
		d.closed()
		return 0, d.ctx.Err()
	}
	if d.left.Add(1) > 5 {
		d.closed()
		return 0, io.EOF
	}
	return copy(p, "x"), nil
}

func (d *bulkheadDrip) Close() error { d.closed(); return nil }

func TestBulkheadStartsNoGoroutines(t *testing.T) {
	tr := bulkheadNew(t, transport.Config{Base: bulkheadBase(bulkheadHello)})
	before := runtime.NumGoroutine()
	var open []*http.Response
	for i := range 2000 {
		open = append(open, bulkheadGet(t, tr, fmt.Sprintf("http://h%d.test/", i)))
	}
	if now := runtime.NumGoroutine(); now > before+1 { // one that runs timers or cleanups may come and go
		t.Errorf("%d goroutines for 2000 calls in flight to as many hosts", now-before)
	}
	for _, resp := range open {
		_ = resp.Body.Close()
	}
	bulkheadInFlight(t, tr, 0)
}
