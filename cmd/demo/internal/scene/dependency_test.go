package scene

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

func testDependency(t *testing.T) (*dependency, *http.Client) {
	t.Helper()
	d, err := newDependency("crew", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	base := &http.Transport{}
	t.Cleanup(func() {
		base.CloseIdleConnections()
		d.close()
	})
	return d, &http.Client{Transport: base}
}

func TestFaultsDoWhatTheySay(t *testing.T) {
	d, client := testDependency(t)
	get := func() (*http.Response, string, error) {
		resp, err := client.Get("http://" + d.server.host)
		if err != nil {
			return nil, "", err
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		return resp, string(b), err
	}
	if resp, body, err := get(); err != nil || resp.StatusCode != 200 || !strings.Contains(body, `"dependency":"crew"`) {
		t.Errorf("healthy: %v %q", err, body)
	}
	d.set(fault{kind: failing, status: 503, share: 1})
	if resp, _, err := get(); err != nil || resp.StatusCode != 503 {
		t.Errorf("errors: %v", err)
	}
	d.set(fault{kind: resets, share: 1})
	if _, _, err := get(); err == nil {
		t.Error("resets: no error")
	}
	start := time.Now()
	d.set(fault{kind: delay, delay: 50 * time.Millisecond, share: 1})
	if resp, _, err := get(); err != nil || resp.StatusCode != 200 || time.Since(start) < 50*time.Millisecond {
		t.Errorf("delay: %v after %v", err, time.Since(start))
	}
	d.set(fault{kind: drip, delay: time.Hour, share: 1})
	resp, err := client.Get("http://" + d.server.host)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := bufio.NewReader(resp.Body).ReadByte(); err != nil || b != '{' {
		t.Errorf("drip: %q, %v", b, err)
	}
	resp.Body.Close()
	d.set(fault{})
	if _, _, err := get(); err != nil {
		t.Errorf("healthy again: %v", err)
	}
}

func TestAShareOfRequestsIsHit(t *testing.T) {
	d, client := testDependency(t)
	d.set(fault{kind: failing, status: 500, share: 0.5})
	hit := 0
	for range 100 {
		resp, err := client.Get("http://" + d.server.host)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode == 500 {
			hit++
		}
	}
	if hit < 15 || hit > 85 { // seven standard deviations
		t.Errorf("%d of 100", hit)
	}
}

func TestCloseLetsGoOfWhatHangs(t *testing.T) {
	d, err := newDependency("crew", time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	d.set(fault{kind: hang, share: 1})
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	errs := make(chan error, 20)
	for range cap(errs) {
		go func() {
			_, err := (&http.Client{Transport: base}).Get("http://" + d.server.host)
			errs <- err
		}()
	}
	for len(d.seen()) < cap(errs) {
		time.Sleep(time.Millisecond)
	}
	start := time.Now()
	d.close()
	for range cap(errs) {
		if err := <-errs; err == nil {
			t.Error("a call that hung was answered")
		}
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestLoadIsAnOpenLoop(t *testing.T) {
	d, _ := testDependency(t)
	d.set(fault{kind: hang, share: 1})
	l := newLoad("http://" + d.server.host)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		l.arrive(ctx, "/mission", 500, 0)
		close(done)
	}()
	for len(d.seen()) < 50 { // none of which is answered
		time.Sleep(time.Millisecond)
	}
	if n := len(l.ended()); n > 0 {
		t.Errorf("%d have ended", n)
	}
	cancel()
	<-done
	l.wait()
	if n := len(l.ended()); n < 50 {
		t.Errorf("%d of 50 are accounted for", n)
	}
	for _, a := range l.ended() {
		if a.ok {
			t.Error("a request that hung was answered")
		}
	}
}

func TestAnEndlessLoadKeepsOnlyWhatIsRecent(t *testing.T) {
	l := &load{endless: true}
	for range 3 {
		l.arrivals = append(l.arrivals, arrival{}, arrival{})
		l.recent += 2
		if n := len(l.recently()); n != 2 || len(l.arrivals) != 0 {
			t.Errorf("%d, %d kept", n, len(l.arrivals))
		}
	}
}
