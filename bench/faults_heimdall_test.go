package bench_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gojek/heimdall/v7"
	"github.com/gojek/heimdall/v7/httpclient"

	"github.com/watertight-go/watertight/policy"
)

// heimdallOver is its client with retries as its README has them, n of them that wait
// for d.
func heimdallOver(base http.RoundTripper, n int, d time.Duration) http.RoundTripper {
	return answer(httpclient.NewClient(
		httpclient.WithHTTPClient(&http.Client{Transport: base}),
		httpclient.WithRetrier(heimdall.NewRetrier(heimdall.NewConstantBackoff(d, time.Millisecond))),
		httpclient.WithRetryCount(n),
	).Do)
}

// heimdall: a POST that may have been acted upon is repeated.
func TestHeimdallRepeatsAPost(t *testing.T) {
	if n := posts(t, func(base http.RoundTripper) http.RoundTripper { return heimdallOver(base, 2, 0) }); n != 3 {
		t.Errorf("heimdall sends a POST %d times by now", n)
	}
	postsOnce(t)
}

// heimdall: a request body is read into memory as a whole before anything is sent.
func TestHeimdallBuffersAnUpload(t *testing.T) {
	if n := buffered(t, func(base http.RoundTripper) http.RoundTripper { return heimdallOver(base, 2, 0) }); n != 8<<20 {
		t.Errorf("heimdall buffers %d bytes by now", n)
	}
	streams(t)
}

// heimdall: a caller who leaves while a retry waits is kept until all retries are over.
func TestHeimdallKeepsCallersWhoLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := answer(func(req *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })
		leave := func(rt http.RoundTripper) time.Duration {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			if err := exchange(rt, request(t, host).WithContext(ctx), make([]byte, 512)); err == nil {
				t.Error("answered")
			}
			return time.Since(began)
		}
		if d := leave(heimdallOver(base, 2, time.Minute)); d < 2*time.Minute {
			t.Errorf("heimdall lets its caller go after %v by now", d)
		}
		p := policy.Policy{Retry: policy.Retry{MaxAttempts: 3, Base: 2 * time.Minute, Max: 2 * time.Minute}}
		if d := leave(stack(t, base, p)); d > time.Second {
			t.Errorf("watertight kept its caller for %v", d)
		}
	})
}

// heimdall: a call that has failed for good waits once more before it says so.
func TestHeimdallWaitsAfterTheLastAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		base := answer(func(req *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF })
		took := func(rt http.RoundTripper) time.Duration {
			began := time.Now()
			if err := exchange(rt, request(t, host), make([]byte, 512)); err == nil {
				t.Error("answered")
			}
			return time.Since(began)
		}
		if d := took(heimdallOver(base, 1, time.Minute)); d < 2*time.Minute {
			t.Errorf("heimdall takes %v by now", d)
		}
		p := policy.Policy{Retry: policy.Retry{MaxAttempts: 2, Base: time.Minute, Max: time.Minute}}
		if d := took(stack(t, base, p)); d > time.Minute {
			t.Errorf("watertight took %v", d)
		}
	})
}

// heimdall: an error and an answer are returned together when one attempt got the one
// and the last one the other.
func TestHeimdallReturnsAnErrorWithAnAnswer(t *testing.T) {
	n := 0
	base := answer(func(req *http.Request) (*http.Response, error) {
		if n++; n%2 == 1 {
			return nil, io.ErrUnexpectedEOF
		}
		return respond(req, http.StatusInternalServerError, text("no")), nil
	})
	if resp, err := heimdallOver(base, 1, 0).RoundTrip(request(t, host)); resp == nil || err == nil {
		t.Errorf("heimdall returns one of them by now: %v, %v", resp, err)
	}
	resp, err := stack(t, base, policy.Policy{Retry: policy.Retry{MaxAttempts: 2}}).RoundTrip(request(t, host))
	if err != nil || resp == nil {
		t.Fatalf("watertight: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
}

// heimdall: Retry-After is not heeded.
func TestHeimdallIgnoresRetryAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		over := func(base http.RoundTripper) http.RoundTripper { return heimdallOver(base, 1, 0) }
		if d := waits(t, over, "5"); d >= time.Second {
			t.Errorf("heimdall waits %v by now", d)
		}
		heeds(t, "5", 5*time.Second, 6*time.Second)
	})
}
