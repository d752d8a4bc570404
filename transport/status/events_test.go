package status_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/status"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// sink is an http.ResponseWriter that keeps what is flushed, and may take its time.
type sink struct {
	http.ResponseWriter
	slow time.Duration

	mu        sync.Mutex // guards what follows
	pending   string
	flushed   []string
	deadlines []time.Time
}

func (s *sink) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending += string(p)
	return len(p), nil
}

func (s *sink) FlushError() error {
	time.Sleep(s.slow)
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.deadlines; len(d) > 0 && !d[len(d)-1].IsZero() && time.Now().After(d[len(d)-1]) {
		return errors.New("i/o timeout")
	}
	s.flushed = append(s.flushed, s.pending)
	s.pending = ""
	return nil
}

func (s *sink) SetWriteDeadline(t time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deadlines = append(s.deadlines, t)
	return nil
}

// take is what was flushed since, in one.
func (s *sink) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := strings.Join(s.flushed, "")
	s.flushed = nil
	return all
}

// follow runs a stream of events in the bubble until cancel, which waits for it.
func follow(h http.Handler, target string, header ...string) (s *sink, cancel func()) {
	s = &sink{ResponseWriter: httptest.NewRecorder()}
	ctx, stop := context.WithCancel(context.Background())
	r := httptest.NewRequest("GET", target, nil).WithContext(ctx)
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		h.ServeHTTP(s, r)
	}()
	synctest.Wait()
	return s, func() {
		stop()
		<-done
	}
}

// fields are the values of a field of events, in order.
func fields(stream, name string) []string {
	var all []string
	for line := range strings.SplitSeq(stream, "\n") {
		if v, ok := strings.CutPrefix(line, name+": "); ok {
			all = append(all, v)
		}
	}
	return all
}

func TestEventsTellOfATransitionAtOnceAndOfTheHostsSoonAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		tr := w.over(t, transport.Config{Default: brittle()})
		_ = call(tr, "https://a.test")
		h := status.New(tr, status.Config{})
		s, cancel := follow(h, "/events")
		defer cancel()
		first := s.take()
		if !strings.HasPrefix(first, "retry: 2000\n\n") || fmt.Sprint(fields(first, "event")) != "[hosts]" {
			t.Fatal(first)
		}
		time.Sleep(2300 * time.Millisecond)
		synctest.Wait()
		if idle := s.take(); idle != "" {
			t.Errorf("nothing has happened: %s", idle)
		}
		w.set("a.test", does{status: 503})
		_ = call(tr, "https://a.test")
		synctest.Wait()
		told := s.take()
		var transition status.Transition
		if err := json.Unmarshal([]byte(fields(told, "data")[0]), &transition); err != nil || fmt.Sprint(fields(told, "event")) != "[transition]" ||
			transition.ID != 1 || transition.To != "open" || transition.AgoSeconds != 0 || transition.Evidence.LastFailure != "status 503" {
			t.Errorf("%s %v", told, err)
		}
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		var hosts status.Hosts
		told = s.take()
		if err := json.Unmarshal([]byte(fields(told, "data")[0]), &hosts); err != nil || fmt.Sprint(fields(told, "event")) != "[hosts]" ||
			len(hosts.Hosts) != 1 || hosts.Hosts[0].State != "open" || hosts.Hosts[0].SinceSeconds != 0.5 {
			t.Errorf("%s %v", told, err)
		}
		if hosts.Hosts[0].Policy != nil || hosts.Hosts[0].Transitions != nil {
			t.Errorf("more than changes: %s", told)
		}
	})
}

// Of what goes on all the time there is one document a second, whatever the rate.
func TestEventsTellOfChangesOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := (&world{}).over(t, transport.Config{})
		s, cancel := follow(status.New(tr, status.Config{}), "/events")
		defer cancel()
		s.take()
		for range 1000 {
			_ = call(tr, "https://a.test")
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if got := fields(s.take(), "event"); len(got) != 10 {
			t.Errorf("%d events in 10 s: %v", len(got), got)
		}
	})
}

// Transitions that came more often than every half second once put the hosts off for
// as long as they went on: the largest outage froze the page.
func TestEventsTellOfTheHostsWhileTransitionsRain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := (&world{}).over(t, transport.Config{Default: brittle()})
		_ = call(tr, "https://a.test")
		s, cancel := follow(status.New(tr, status.Config{}), "/events")
		defer cancel()
		s.take()
		a := tr.Host("a.test")
		for i := range 50 {
			if i%2 == 0 {
				a.ForceOpen()
			} else {
				a.Reset()
			}
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		hosts, transitions := 0, 0
		for _, e := range fields(s.take(), "event") {
			switch e {
			case "hosts":
				hosts++
			case "transition":
				transitions++
			}
		}
		if transitions != 50 || hosts < 5 || hosts > 10 {
			t.Errorf("in 5 s: %d of 50 transitions, and the hosts %d times; want 5 to 10", transitions, hosts)
		}
	})
}

// Somebody else's look may be from just before.
func TestEventsTellOfTheHostsSoonAfterATransitionWhoeverLooksToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := (&world{}).over(t, transport.Config{Default: brittle()})
		_ = call(tr, "https://a.test")
		h := status.New(tr, status.Config{})
		s, cancel := follow(h, "/events")
		defer cancel()
		s.take()
		time.Sleep(850 * time.Millisecond)
		ask(h, "GET", "/hosts")
		time.Sleep(50 * time.Millisecond)
		tr.Host("a.test").ForceOpen()
		time.Sleep(500 * time.Millisecond)
		synctest.Wait()
		if told := fields(s.take(), "data"); len(told) != 2 || !strings.Contains(told[1], `"state":"forced_open"`) {
			t.Errorf("half a second later: %v", told)
		}
	})
}

func TestEventsKeepAQuietStreamAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := (&world{}).over(t, transport.Config{})
		s, cancel := follow(status.New(tr, status.Config{}), "/events")
		defer cancel()
		s.take()
		time.Sleep(time.Minute)
		synctest.Wait()
		if got := s.take(); got != strings.Repeat(": keep-alive\nevent: alive\ndata: {}\n\n", 6) {
			t.Errorf("%q", got)
		}
	})
}

func TestEventsGoOnAfterTheLastOneThatWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		tr := w.over(t, transport.Config{Default: brittle()})
		h := status.New(tr, status.Config{})
		trip := func(host string) {
			w.set(host, does{status: 500})
			_ = call(tr, "https://"+host)
		}
		s, cancel := follow(h, "/events")
		trip("a.test")
		trip("b.test")
		synctest.Wait()
		ids := fields(s.take(), "id")
		cancel()
		trip("c.test")
		trip("d.test")
		instance := decode[status.Hosts](t, ask(h, "GET", "/hosts")).Instance
		if fmt.Sprint(ids) != fmt.Sprintf("[%s-1 %s-2]", instance, instance) {
			t.Fatal(ids)
		}
		for _, test := range []struct {
			target, last string
			want         int
		}{
			{"/events", "", 0},
			{"/events", ids[0], 3},
			{"/events", ids[1], 2},
			{"/events?after=" + ids[1], "", 2},
			{"/events?after=3", "", 1},
			{"/events?after=0", ids[1], 2}, // a browser sends both when it connects again
			{"/events", "other-2", 4},      // of an earlier process: all are new
			{"/events", "other-99", 4},
		} {
			var header []string
			if test.last != "" {
				header = []string{"Last-Event-ID", test.last}
			}
			s, cancel := follow(h, test.target, header...)
			got := fields(s.take(), "id")
			cancel()
			if len(got) != test.want || test.want > 0 && got[len(got)-1] != instance+"-4" {
				t.Errorf("%+v: %v", test, got)
			}
		}
	})
}

// An ID beyond the newest, as of a mistyped URL, once kept all transitions from its reader.
func TestEventsAfterWhatIsNotYetGoOnAfterTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		tr := w.over(t, transport.Config{Default: brittle()})
		h := status.New(tr, status.Config{})
		_ = call(tr, "https://a.test")
		tr.Host("a.test").ForceOpen()
		s, cancel := follow(h, "/events?after=99")
		defer cancel()
		if got := fields(s.take(), "id"); len(got) != 0 {
			t.Errorf("at first: %v", got)
		}
		for range 2 {
			tr.Host("a.test").Reset()
			synctest.Wait()
			if got := fields(s.take(), "id"); len(got) != 1 {
				t.Errorf("of one transition: %v", got)
			}
			tr.Host("a.test").ForceOpen()
			synctest.Wait()
			_ = s.take()
		}
	})
}

func TestEventsAreOfTheHostsThatWereAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := (&world{}).over(t, transport.Config{})
		h := status.New(tr, status.Config{})
		_ = call(tr, "https://a.test")
		_ = call(tr, "https://b.test")
		s, cancel := follow(h, "/events?q=a.test&limit=5")
		defer cancel()
		var d status.Hosts
		if err := json.Unmarshal([]byte(fields(s.take(), "data")[0]), &d); err != nil || names(d) != "a" || d.Summary.Hosts != 2 {
			t.Errorf("%+v %v", d, err)
		}
		_ = call(tr, "https://b.test")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := s.take(); got != "" {
			t.Errorf("nothing that was asked for has changed: %s", got)
		}
		tr.Host("b.test").ForceOpen() // the summary is of all
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := fields(s.take(), "event"); fmt.Sprint(got) != "[transition hosts]" {
			t.Errorf("%v", got)
		}
	})
}

func TestEventsDropAReaderThatTakesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := (&world{}).over(t, transport.Config{})
		h := status.New(tr, status.Config{})
		s := &sink{ResponseWriter: httptest.NewRecorder(), slow: time.Hour}
		start := time.Now()
		h.ServeHTTP(s, httptest.NewRequest("GET", "/events", nil)) // returns, since the first write is late
		if len(s.deadlines) == 0 || !s.deadlines[0].Equal(start.Add(10*time.Second)) || len(s.flushed) != 0 {
			t.Errorf("%v %v", s.deadlines, s.flushed)
		}
	})
}

// Between writes there is no deadline: it would end an HTTP/2 stream in silence.
func TestEventsHaveADeadlineOnlyWhileTheyAreWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := (&world{}).over(t, transport.Config{})
		s, cancel := follow(status.New(tr, status.Config{}), "/events")
		time.Sleep(25 * time.Second)
		synctest.Wait()
		s.mu.Lock()
		if n := len(s.deadlines); n != 6 || !s.deadlines[n-1].IsZero() {
			t.Errorf("%v", s.deadlines)
		}
		s.mu.Unlock()
		cancel()
		if n := len(s.deadlines); n != 7 || !s.deadlines[n-1].Equal(time.Now().Add(10*time.Second)) {
			t.Errorf("what the server writes at the end has no bound: %v", s.deadlines)
		}
	})
}

func TestEventsEndWithWhateverEndsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, end := range map[string]func(*transport.Transport, *status.Handler, func()){
			"the request":   func(_ *transport.Transport, _ *status.Handler, cancel func()) { cancel() },
			"the Transport": func(tr *transport.Transport, _ *status.Handler, _ func()) { _ = tr.Close() },
			"the Handler":   func(_ *transport.Transport, h *status.Handler, _ func()) { h.Close(); h.Close() },
		} {
			tr := (&world{}).over(t, transport.Config{})
			h := status.New(tr, status.Config{})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				h.ServeHTTP(&sink{ResponseWriter: httptest.NewRecorder()}, httptest.NewRequest("GET", "/events", nil).WithContext(ctx))
			}()
			time.Sleep(time.Hour)
			start := time.Now()
			end(tr, h, cancel)
			<-ended
			if time.Since(start) != 0 {
				t.Errorf("%s: %v later", name, time.Since(start))
			}
			cancel()
		}
	})
}

func TestEventsAreBoundedInNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := status.New((&world{}).over(t, transport.Config{}), status.Config{MaxStreams: 2})
		_, first := follow(h, "/events")
		_, second := follow(h, "/events")
		w := ask(h, "GET", "/events")
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "5" || !strings.Contains(w.Body.String(), "Config.MaxStreams") {
			t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
		}
		first()
		s, third := follow(h, "/events")
		if len(fields(s.take(), "event")) != 1 {
			t.Error("the place of one that ended is not free")
		}
		second()
		third()
		h.Close()
		if w := ask(h, "GET", "/events"); w.Code != http.StatusServiceUnavailable {
			t.Errorf("%d", w.Code)
		}
	})
}

// Negative is none, and says so: it once refused all by "-1 streams are open".
func TestEventsCanBeTurnedOff(t *testing.T) {
	h := status.New((&world{}).over(t, transport.Config{}), status.Config{MaxStreams: -1})
	w := ask(h, "GET", "/events")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") != "" || !strings.Contains(w.Body.String(), "events: turned off, see Config.MaxStreams") {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
	_ = decode[status.Hosts](t, ask(h, "GET", "/hosts"))
}

// deaf is an http.ResponseWriter that can only write.
type deaf struct{ w *httptest.ResponseRecorder }

func (d deaf) Header() http.Header         { return d.w.Header() }
func (d deaf) Write(p []byte) (int, error) { return d.w.Write(p) }
func (d deaf) WriteHeader(status int)      { d.w.WriteHeader(status) }

// wrapped is what middleware makes of an http.ResponseWriter, as it should.
type wrapped struct{ http.ResponseWriter }

func (w wrapped) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func TestEventsNeedAFlusherSomewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := status.New((&world{}).over(t, transport.Config{}), status.Config{})
		w := httptest.NewRecorder()
		h.ServeHTTP(deaf{w}, httptest.NewRequest("GET", "/events", nil))
		if w.Code != http.StatusNotImplemented || w.Header().Get("Content-Type") != "application/json" || !strings.Contains(w.Body.String(), "Unwrap") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
		s := &sink{ResponseWriter: httptest.NewRecorder()}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		h.ServeHTTP(wrapped{wrapped{s}}, httptest.NewRequest("GET", "/events", nil).WithContext(ctx))
		if len(fields(s.take(), "event")) != 1 {
			t.Error("nothing came through")
		}
	})
}

func TestEventsOfABurstAreAllTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		tr := w.over(t, transport.Config{Default: brittle()})
		s, cancel := follow(status.New(tr, status.Config{}), "/events")
		defer cancel()
		s.take()
		for i := range 200 {
			host := fmt.Sprintf("h%d.test", i)
			w.set(host, does{status: 500})
			_ = call(tr, "https://"+host)
		}
		synctest.Wait()
		if ids := fields(s.take(), "id"); len(ids) != 200 || !strings.HasSuffix(ids[199], "-200") {
			t.Errorf("%d: %v", len(ids), ids)
		}
	})
}

// From here on sockets are the claim.

// listen serves a handler, with a limit on writing that streams must survive.
func listen(t *testing.T, h *status.Handler, http2 bool) *httptest.Server {
	t.Helper()
	server := httptest.NewUnstartedServer(h)
	server.Config.WriteTimeout = 300 * time.Millisecond
	server.EnableHTTP2 = http2
	if http2 {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(func() {
		h.Close()
		server.Close()
	})
	return server
}

// next is the next event of a kind in a stream.
func next(t *testing.T, r *bufio.Reader, kind string) string {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line != "event: "+kind+"\n" {
			continue
		}
		data, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
}

func TestEventsSurviveTheWriteTimeoutOfTheServer(t *testing.T) {
	for _, http2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("http2=%v", http2), func(t *testing.T) {
			transporttest.CheckLeaks(t)
			w := &world{}
			tr := w.over(t, transport.Config{Default: brittle()})
			server := listen(t, status.New(tr, status.Config{}), http2)
			resp, err := server.Client().Get(server.URL + "/events")
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			if want := map[bool]int{false: 1, true: 2}[http2]; resp.ProtoMajor != want || resp.Header.Get("Content-Type") != "text/event-stream" {
				t.Fatalf("%s %v", resp.Proto, resp.Header)
			}
			r := bufio.NewReader(resp.Body)
			next(t, r, "hosts")
			time.Sleep(time.Second) // more than three times the limit, in silence
			w.set("a.test", does{status: 500})
			_ = call(tr, "https://a.test")
			if data := next(t, r, "transition"); !strings.Contains(data, "a.test:443") {
				t.Error(data)
			}
			next(t, r, "hosts")
		})
	}
}

func TestServerShutdownEndsStreamsWhenItIsTold(t *testing.T) {
	transporttest.CheckLeaks(t)
	h := status.New((&world{}).over(t, transport.Config{}), status.Config{})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: h}
	server.RegisterOnShutdown(h.Close)
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	resp, err := client.Get("http://" + l.Addr().String() + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	next(t, bufio.NewReader(resp.Body), "hosts")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		t.Errorf("the stream was cut: %v", err)
	}
	<-served
}

func TestReadersThatLeaveTakeTheirStreamsWithThem(t *testing.T) {
	transporttest.CheckLeaks(t)
	tr := (&world{}).over(t, transport.Config{})
	h := status.New(tr, status.Config{MaxStreams: 3})
	server := listen(t, h, false)
	for range 3 {
		var open []*http.Response
		for range 3 {
			open = append(open, stream(t, server))
		}
		for _, resp := range open {
			_ = resp.Body.Close()
		}
	}
}

// stream opens a stream of events, once there is a place for it.
func stream(t *testing.T, server *httptest.Server) *http.Response {
	t.Helper()
	late := time.Now().Add(10 * time.Second)
	for {
		resp, err := server.Client().Get(server.URL + "/events")
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode == http.StatusOK {
			return resp
		}
		_ = resp.Body.Close()
		if time.Now().After(late) {
			t.Fatal(resp.Status)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
