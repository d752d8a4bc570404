package transport_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// bodilessOrigin answers over HTTP/2 without a body, but does not end its answer until
// the client goes; gone counts those that have.
func bodilessOrigin(t *testing.T, status int, gone *atomic.Int32) *transporttest.Origin {
	return transporttest.NewNet(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		gone.Add(1)
	}), transporttest.H2C())
}

func bodilessStatuses(t *testing.T, f func(t *testing.T, status int)) {
	for _, status := range []int{http.StatusNoContent, http.StatusNotModified} {
		t.Run(http.StatusText(status), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { f(t, status) })
		})
	}
}

// An HTTP/2 peer may end an answer that can have no body long after its headers, or
// never: the wait for that is bounded as that for any body.
func TestBodilessAnswerThatDoesNotEndIsBounded(t *testing.T) {
	for name, row := range map[string]struct {
		timeout policy.Timeout
		want    error
	}{
		"by Read":    {policy.Timeout{Read: time.Second, Attempt: 2 * time.Second, Total: 3 * time.Second}, transport.ErrReadTimeout},
		"by Attempt": {policy.Timeout{Attempt: time.Second, Total: 2 * time.Second}, transport.ErrAttemptTimeout},
		"by Total":   {policy.Timeout{Total: time.Second}, transport.ErrTotalTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			bodilessStatuses(t, func(t *testing.T, status int) {
				var gone atomic.Int32
				o := bodilessOrigin(t, status, &gone)
				tr := bulkheadNew(t, transport.Config{Default: policy.Policy{Timeout: row.timeout}, Base: o.Base()})
				resp := bulkheadGet(t, tr, o.URL)
				hung := time.AfterFunc(time.Minute, func() { _ = resp.Body.Close() })
				defer hung.Stop()
				start := time.Now()
				_, err := io.ReadAll(resp.Body)
				if took := time.Since(start); took != time.Second || !errors.Is(err, row.want) {
					t.Errorf("%v after %v", err, took)
				}
				if synctest.Wait(); gone.Load() != 1 {
					t.Error("the origin still has its stream")
				}
				transporttest.CheckPermits(t, tr)
			})
		})
	}
}

// Until such an answer ends, it counts as any that is open.
func TestBodilessAnswerThatDoesNotEndKeepsItsPermit(t *testing.T) {
	bodilessStatuses(t, func(t *testing.T, status int) {
		var gone atomic.Int32
		o := bodilessOrigin(t, status, &gone)
		p := policy.Policy{Bulkhead: policy.Bulkhead{MaxConcurrent: 2, BodyIdle: time.Minute}}
		tr := bulkheadNew(t, transport.Config{Default: p, Base: o.Base()})
		kept := []*http.Response{bulkheadGet(t, tr, o.URL), bulkheadGet(t, tr, o.URL)} // not garbage
		if err := bulkheadTry(t.Context(), tr, o.URL); !errors.Is(err, transport.ErrBulkheadFull) {
			t.Errorf("a third is admitted: %v", err)
		}
		bulkheadInFlight(t, tr, 2)
		_ = kept[0].Body.Close()
		bulkheadInFlight(t, tr, 1)
		time.Sleep(time.Minute + time.Second) // and the other one is forgotten
		if synctest.Wait(); gone.Load() != 2 {
			t.Errorf("the origin is left by %d", gone.Load())
		}
		if leaked := tr.Snapshot()[0].Counts.Leaked; leaked != 1 {
			t.Errorf("%d leaked", leaked)
		}
		if _, err := kept[1].Body.Read(make([]byte, 1)); err == nil || err == io.EOF {
			t.Error(err)
		}
		transporttest.CheckPermits(t, tr)
	})
}

// An answer that ends with its headers is over at once over HTTP/2 too, where it does
// not have http.NoBody.
func TestBodilessAnswerGivesItsPermitBackAtReturn(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]transporttest.Option{"HTTP/1.1": nil, "HTTP/2": {transporttest.H2C()}} {
		for call, row := range map[string]struct {
			method string
			status int
		}{
			"HEAD": {http.MethodHead, 200}, "204": {http.MethodGet, 204}, "304": {http.MethodGet, 304},
		} {
			t.Run(name+", "+call, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					o := transporttest.NewNet(t, nil, opts...)
					o.Script(transporttest.Step{Status: row.status})
					tr := bulkheadNew(t, transport.Config{Default: bulkheadOnly(1, 0), Base: o.Base()})
					for range 3 {
						resp, err := tr.RoundTrip(bulkheadRequest(t, t.Context(), row.method, o.URL))
						if err != nil {
							t.Fatal(err)
						}
						bulkheadInFlight(t, tr, 0)
						if c := tr.Snapshot()[0].Counts; c.Leaked != 0 {
							t.Errorf("%+v", c)
						}
						if b, err := io.ReadAll(resp.Body); len(b) > 0 || err != nil {
							t.Errorf("%q, %v", b, err)
						}
					}
				})
			})
		}
	}
}

// HEAD is answered without a body, whatever a base makes of it.
func TestBodilessAnswerToHEADHasNothingToWaitFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		pr, pw := io.Pipe()
		tr := bulkheadNew(t, transport.Config{Default: bulkheadOnly(1, 0), Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
			return bulkheadAnswer(r, 200, pr), nil
		})})
		resp, err := tr.RoundTrip(bulkheadRequest(t, t.Context(), http.MethodHead, "http://x.test/"))
		if err != nil {
			t.Fatal(err)
		}
		bulkheadInFlight(t, tr, 0)
		if _, err := pw.Write([]byte("x")); err != io.ErrClosedPipe {
			t.Errorf("the base's body is not closed: %v", err)
		}
		if b, err := io.ReadAll(resp.Body); len(b) > 0 || err != nil {
			t.Errorf("%q, %v", b, err)
		}
	})
}

// A base's Close may wait for its peer until the context ends.
func TestBodyClosesTheBasesAfterItsContextHasEnded(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"a body": 200, "no body": 204} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var first error
				tr := bulkheadNew(t, transport.Config{Base: bulkheadBase(func(r *http.Request) (*http.Response, error) {
					return bulkheadAnswer(r, status, &bodyFuncs{
						OnRead:  strings.NewReader("hello").Read,
						OnClose: func() error { first = r.Context().Err(); return nil },
					}), nil
				})})
				_ = bulkheadGet(t, tr, "http://x.test/").Body.Close()
				if first != context.Canceled {
					t.Errorf("its context says %v", first)
				}
			})
		})
	}
}
