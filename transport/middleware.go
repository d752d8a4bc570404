package transport

import (
	"fmt"
	"net/http"
	"slices"
)

// Middleware is what may be around the *http.Transport of Config.Base without
// taking a limit away: one that signs requests, fetches tokens or injects faults.
// The Transport does not use it as it is, but puts it around the pool of each host;
// transporttest.Faults is one. It must be safe for concurrent use.
//
// Its answers must heed the request's context as those of net/http do, and it hands
// on requests that carry that context: without it the attempt has no limits on
// connecting, and no phases. Until it hands the request on, the attempt is in phase
// connect, and what takes longer than Timeout.Connect is an ErrConnectTimeout. An
// error of its own is judged, and retried, as that of any other RoundTripper: a
// failure to the breaker, for which a request that is not idempotent is sent again
// only if it is a *net.OpError of a "dial" or "proxyconnect". Where it answers itself
// it calls the hooks of net/http/httptrace (GetConn, GotConn, WroteRequest,
// GotFirstResponseByte) that an exchange would, from which all of that is known
// better: the phase, and whether the request was sent.
type Middleware interface {
	// RoundTrip is used where there is no *http.Transport inside, and for
	// protocols other than http and https.
	http.RoundTripper

	// Unwrap returns what it is around: an *http.Transport, or another Middleware.
	// It is called once, by New. Around anything else, or nil, it is to the stack
	// a RoundTripper like any other, all of whose exchanges go through RoundTrip.
	Unwrap() http.RoundTripper

	// Around returns a RoundTripper that does to requests what RoundTrip would, and
	// hands them on to next; nil is next itself. It is called for every pool: the
	// first of a host, which several first calls may make at once, the one after a
	// pool was retired, and that of each probe and each retry after a timeout. It
	// runs within a call, and should do no more than make the RoundTripper. That is
	// never closed: what outlives a pool belongs to the Middleware.
	Around(next http.RoundTripper) http.RoundTripper
}

// deepest is how many Middlewares may be around each other; more are one that is
// around itself.
const deepest = 100

// unwrap returns what is inside of a base, and what is around that, the outermost
// first.
func unwrap(rt http.RoundTripper) (inside http.RoundTripper, around []Middleware, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("Base: Unwrap of a %T panicked (%v): must be nil itself, or a Middleware that is not nil", rt, v)
		}
	}()
	for {
		m, ok := rt.(Middleware)
		if !ok {
			return rt, around, nil
		}
		if len(around) == deepest {
			return nil, nil, fmt.Errorf("Base: a %T that is around itself, or below more than %d others: must be around an *http.Transport", rt, deepest)
		}
		around = append(around, m)
		rt = m.Unwrap()
	}
}

// through is the transport of a pool with what the base has around it.
func (t *Transport) through(tr *http.Transport) http.RoundTripper {
	var rt http.RoundTripper = arrival{tr}
	for _, m := range slices.Backward(t.around) {
		if outer := m.Around(rt); outer != nil {
			rt = outer
		}
	}
	return rt
}

// arrival notes that an attempt has come to the transport of its pool: what it says
// is net/http's, and not of something around it.
type arrival struct{ *http.Transport }

func (r arrival) RoundTrip(req *http.Request) (*http.Response, error) {
	if a, ok := req.Context().Value(attemptKey{}).(*attempt); ok {
		a.mu.Lock()
		a.reached = true
		a.mu.Unlock()
	}
	return r.Transport.RoundTrip(req)
}
