package bench_test

import (
	"io"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/watertight-go/watertight/policy"
)

// retrying is what StandardClient puts into an http.Client, over a base.
func retrying(base http.RoundTripper) http.RoundTripper {
	c := retryablehttp.NewClient()
	c.HTTPClient.Transport, c.Logger, c.RetryMax = base, nil, 2
	c.RetryWaitMin, c.RetryWaitMax = 0, 0 // for the test's sake
	return c.StandardClient().Transport
}

// go-retryablehttp: a POST that may have been acted upon is repeated.
func TestRetryableRepeatsAPost(t *testing.T) {
	if n := posts(t, retrying); n != 3 {
		t.Errorf("go-retryablehttp sends a POST %d times by now", n)
	}
	postsOnce(t)
}

// go-retryablehttp: a request body is read into memory as a whole before anything is
// sent.
func TestRetryableBuffersAnUpload(t *testing.T) {
	if n := buffered(t, retrying); n != 8<<20 {
		t.Errorf("go-retryablehttp buffers %d bytes by now", n)
	}
	streams(t)
}

// go-retryablehttp: a Retry-After of a day holds its caller for a day.
func TestRetryableWaitsForADay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if d := waits(t, retrying, "86400"); d != 24*time.Hour {
			t.Errorf("go-retryablehttp waits %v by now", d)
		}
		heeds(t, "86400", 0, 0)
	})
}

// go-retryablehttp: its RoundTripper follows redirects itself: the CheckRedirect of the
// http.Client around it is not asked.
func TestRetryableFollowsRedirects(t *testing.T) {
	base := answer(func(req *http.Request) (*http.Response, error) {
		if req.URL.Path == "/elsewhere" {
			return status(req, http.StatusOK), nil
		}
		resp := status(req, http.StatusFound)
		resp.Header.Set("Location", "/elsewhere")
		return resp, nil
	})
	get := func(rt http.RoundTripper) int {
		c := &http.Client{Transport: rt, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		resp, err := c.Get("http://" + host)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if code := get(retrying(base)); code != http.StatusOK {
		t.Errorf("go-retryablehttp returns the %d by now", code)
	}
	if code := get(stack(t, base, policy.Default())); code != http.StatusFound {
		t.Errorf("watertight: %d", code)
	}
}

// go-retryablehttp: after the last retry the answer of the origin is thrown away, and
// its caller gets an error that has neither its status nor its body.
func TestRetryableThrowsTheAnswerAway(t *testing.T) {
	base := answer(func(req *http.Request) (*http.Response, error) {
		return respond(req, http.StatusServiceUnavailable, text("closed until nine")), nil
	})
	if resp, err := retrying(base).RoundTrip(request(t, host)); resp != nil || err == nil {
		t.Errorf("go-retryablehttp returns the answer by now: %v, %v", resp, err)
	}
	tr := stack(t, base, policy.Policy{Retry: policy.Retry{MaxAttempts: 3}})
	resp, err := tr.RoundTrip(request(t, host))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if all, err := io.ReadAll(resp.Body); err != nil || string(all) != "closed until nine" || resp.StatusCode != 503 {
		t.Errorf("watertight: %d, %q, %v", resp.StatusCode, all, err)
	}
}
