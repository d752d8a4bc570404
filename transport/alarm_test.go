package transport

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
)

// hangs answers until it is told to hang.
type hangs struct{ now bool }

func (h *hangs) RoundTrip(req *http.Request) (*http.Response, error) {
	if h.now {
		<-req.Context().Done()
		return nil, req.Context().Err()
	}
	return &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader("x")), Request: req}, nil
}

func hanging(limit time.Duration) (*Transport, *hangs) {
	h := &hangs{}
	p := policy.Policy{Timeout: policy.Timeout{Attempt: limit}}
	return Must(New(Config{Base: h, Default: p})), h
}

// alarmCall calls so often that alarms are used again, and then once to hang.
func alarmCall(t *testing.T, tr *Transport, h *hangs) {
	t.Helper()
	for i := range 21 {
		h.now = i == 20
		req, err := http.NewRequest(http.MethodGet, "http://a.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		switch {
		case h.now && !errors.Is(err, ErrAttemptTimeout):
			t.Fatalf("%v", err)
		case !h.now && err != nil:
			t.Fatal(err)
		case !h.now:
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}
}

// A Transport may be used in one bubble after another, and outside of them: timers of the
// one must not be touched in the other, and the time of both is another.
func TestAlarmsStayInTheirBubble(t *testing.T) {
	tr, h := hanging(300 * time.Millisecond)
	defer tr.Close()
	inside := func() { synctest.Test(t, func(t *testing.T) { alarmCall(t, tr, h) }) }
	for _, step := range []func(){inside, inside, func() { alarmCall(t, tr, h) }, inside, func() { alarmCall(t, tr, h) }} {
		step()
	}
	var made *Transport
	synctest.Test(t, func(t *testing.T) {
		made, h = hanging(300 * time.Millisecond)
		alarmCall(t, made, h)
	})
	alarmCall(t, made, h)
	synctest.Test(t, func(t *testing.T) { alarmCall(t, made, h) })
}

// An answer may come outside of a bubble and be closed within one: the alarm that it had
// goes off for the next attempt.
func TestAnAlarmOfAnAnswerThatIsClosedInABubbleGoesOff(t *testing.T) {
	tr, h := hanging(50 * time.Millisecond)
	defer tr.Close()
	for range 10 { // with the race detector, a sync.Pool forgets a quarter
		h.now = false
		req, err := http.NewRequest(http.MethodGet, "http://a.test/", nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(*testing.T) { _ = resp.Body.Close() })
		h.now = true
		if _, err := tr.RoundTrip(req); !errors.Is(err, ErrAttemptTimeout) {
			t.Fatal(err)
		}
	}
}

// So may it come in a bubble, and be read outside.
func TestAnAlarmOfABubbleIsLeftThere(t *testing.T) {
	outside, h := hanging(time.Minute)
	defer outside.Close()
	transports := []*Transport{outside, nil}
	synctest.Test(t, func(*testing.T) { transports[1] = Must(New(Config{Base: h})) })
	for _, tr := range transports {
		var resp *http.Response
		synctest.Test(t, func(t *testing.T) {
			req, err := http.NewRequest(http.MethodGet, "http://a.test/", nil)
			if err != nil {
				t.Fatal(err)
			}
			if resp, err = tr.RoundTrip(req); err != nil {
				t.Fatal(err)
			}
		})
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Error(err)
		}
		_ = resp.Body.Close()
	}
}

// An alarm that is set for an hour is moved for the attempt that has a second.
func TestAnAlarmIsMovedForAShorterLimit(t *testing.T) {
	tr, h := hanging(time.Hour)
	defer tr.Close()
	req, err := http.NewRequest(http.MethodGet, "http://a.test/", nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 10 {
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	h.now = true
	began := time.Now()
	ctx := WithCall(t.Context(), Call{Timeout: policy.Timeout{Attempt: 50 * time.Millisecond}})
	if _, err := tr.RoundTrip(req.WithContext(ctx)); !errors.Is(err, ErrAttemptTimeout) {
		t.Error(err)
	}
	if took := time.Since(began); took < 50*time.Millisecond || took > alarmMost {
		t.Errorf("it took %v", took)
	}
}

// An alarm that goes off for nobody, or for the next attempt, ends nothing.
func TestAnAlarmOfAnAttemptThatIsOverEndsNoOther(t *testing.T) {
	b := tallied(t)
	first, second := governed(b), governed(b)
	var r alarm
	for _, a := range []*attempt{first, second} {
		a.call.timeout = &policy.Timeout{Attempt: time.Hour}
		a.alarm = &r
		r.of.Store(a)
		a.mu.Lock()
		r.set(time.Minute, 0)
		a.letGo()
		a.mu.Unlock()
		r.ring() // of nobody
	}
	second.alarm = &r
	second.clock.start = second.call.h.t.now()
	if r.isSet(time.Minute, 0) {
		t.Error("an alarm that has gone off is set")
	}
	r.of.Store(second)
	r.ring()
	if second.expired != nil || second.ended || r.due.Load() == 0 {
		t.Errorf("%+v", second.expired)
	}
}
