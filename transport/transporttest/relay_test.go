package transporttest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// relayed is a connection through a Relay, seen from both ends.
type relayed struct {
	*transporttest.Relay
	client, server *net.TCPConn
}

// relayServer listens for a Relay, and hands out the connections it gets.
func relayServer(t *testing.T) (r *transporttest.Relay, accepted chan *net.TCPConn) {
	t.Helper()
	transporttest.CheckLeaks(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	accepted = make(chan *net.TCPConn, 256)
	var all []net.Conn // or the garbage collector would close those that a test has lost sight of
	done := make(chan struct{})
	t.Cleanup(func() {
		l.Close()
		<-done
		for _, c := range all {
			c.Close()
		}
	})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all = append(all, c)
			accepted <- c.(*net.TCPConn)
		}
	}()
	return transporttest.NewRelay(t, l.Addr().String()), accepted
}

func relayDial(t *testing.T, r *transporttest.Relay) *net.TCPConn {
	t.Helper()
	c, err := net.Dial("tcp", r.Addr)
	if err != nil {
		t.Error(err)
		return nil
	}
	t.Cleanup(func() { c.Close() })
	return c.(*net.TCPConn)
}

func newRelayed(t *testing.T) *relayed {
	t.Helper()
	r, accepted := relayServer(t)
	client := relayDial(t, r)
	server := <-accepted
	t.Cleanup(func() { server.Close() })
	r.WaitOpen(1)
	return &relayed{r, client, server}
}

// relayWrites writes on a goroutine of its own, for whoever may block.
func relayWrites(c net.Conn, p []byte) chan error {
	done := make(chan error, 1)
	go func() {
		_, err := c.Write(p)
		done <- err
	}()
	return done
}

// relaySilent fails the test if something arrives within d.
func relaySilent(t *testing.T, c net.Conn, d time.Duration) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(d))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d bytes, %v: want silence", n, err)
	}
	c.SetReadDeadline(time.Time{})
}

func relayWants(t *testing.T, c net.Conn, want string) {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c, got); string(got) != want {
		t.Fatalf("%q, %v: want %q", got[:n], err, want)
	}
}

// relayEnds reads to the end and returns its error; nil is FIN.
func relayEnds(c net.Conn) error {
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err := io.Copy(io.Discard, c)
	return err
}

// relayGave waits for a count that follows the bytes.
func relayGave(t *testing.T, f *transporttest.Flow, want int64) {
	t.Helper()
	_, given := f.Bytes()
	for deadline := time.Now().Add(10 * time.Second); given != want && time.Now().Before(deadline); _, given = f.Bytes() {
		time.Sleep(time.Millisecond)
	}
	if given != want {
		t.Errorf("%d bytes given, want %d", given, want)
	}
}

func TestRelayPassesWhatItGetsAndCountsIt(t *testing.T) {
	r := newRelayed(t)
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	written := relayWrites(r.client, sent)
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(r.server, got); err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("other bytes, or %v", err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	r.client.CloseWrite()
	if err := relayEnds(r.server); err != nil {
		t.Errorf("the client's end: %v", err)
	}
	r.WaitOpen(0)
	fmt.Fprint(r.server, "bye")
	r.server.Close()
	relayWants(t, r.client, "bye") // after its own end
	if err := relayEnds(r.client); err != nil {
		t.Errorf("the server's end: %v", err)
	}
	relayGave(t, r.Up, int64(len(sent)))
	relayGave(t, r.Down, 3)
	up, _ := r.Up.Bytes()
	down, _ := r.Down.Bytes()
	if up != int64(len(sent)) || down != 3 {
		t.Errorf("taken: %d up, %d down", up, down)
	}
	if opened, open := r.Connections(); opened != 1 || open != 0 {
		t.Errorf("%d opened, %d open", opened, open)
	}
}

func TestRelayTellsEachSideHowTheOtherHasEnded(t *testing.T) {
	r, accepted := relayServer(t)
	client := relayDial(t, r)
	server := <-accepted
	client.SetLinger(0)
	client.Close()
	if err := relayEnds(server); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client has reset, the server got %v", err)
	}
	client = relayDial(t, r)
	server = <-accepted
	server.SetLinger(0)
	server.Close()
	if err := relayEnds(client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the server has reset, the client got %v", err)
	}
	r.WaitOpen(0)
}

func TestRelayResetsTheSenderWhoseReceiverHasGone(t *testing.T) {
	r := newRelayed(t)
	r.server.CloseRead()
	r.server.Close()
	for {
		if _, err := r.client.Write(make([]byte, 1<<10)); err != nil {
			return
		}
	}
}

func TestRelayDelaysEachByteAndKeepsTheThroughput(t *testing.T) {
	const d = 150 * time.Millisecond
	r := newRelayed(t)
	r.Up.Delay(d)
	sent := bytes.Repeat([]byte("a"), 2<<20)
	start := time.Now()
	written := relayWrites(r.client, sent)
	relayWants(t, r.server, "a")
	if took := time.Since(start); took < d {
		t.Errorf("the first byte took %v", took)
	}
	if _, err := io.ReadFull(r.server, make([]byte, len(sent)-1)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 10*d { // 64 pieces one after another: 64 d
		t.Errorf("all of them took %v", took)
	}
	<-written
	start = time.Now()
	fmt.Fprint(r.server, "at once")
	relayWants(t, r.client, "at once")
	if took := time.Since(start); took >= d {
		t.Errorf("the other direction took %v", took)
	}
	start = time.Now()
	r.client.CloseWrite()
	if err := relayEnds(r.server); err != nil || time.Since(start) < d {
		t.Errorf("the end: %v after %v", err, time.Since(start))
	}
}

func TestRelayThrottlesToBytesPerSecond(t *testing.T) {
	r := newRelayed(t)
	r.Down.Throttle(10_000) // 200 every 20 ms
	start := time.Now()
	relayWrites(r.server, make([]byte, 2_000))
	relayWants(t, r.client, string(make([]byte, 2_000)))
	if took := time.Since(start); took < 180*time.Millisecond {
		t.Errorf("2,000 bytes took %v", took)
	}
}

func TestRelayDripsSoManyBytesAtATime(t *testing.T) {
	const every = 40 * time.Millisecond
	r := newRelayed(t)
	r.Down.Drip(3, every)
	start := time.Now()
	fmt.Fprint(r.server, "0123456789")
	buf := make([]byte, 16)
	if n, err := r.client.Read(buf); n != 3 || err != nil {
		t.Errorf("%d bytes, %v", n, err)
	}
	relayWants(t, r.client, "3456789")
	if took := time.Since(start); took < 3*every {
		t.Errorf("took %v", took)
	}
}

func TestRelayStrikesBytesThatAreOnTheirWay(t *testing.T) {
	r := newRelayed(t)
	r.Up.Delay(time.Hour)
	fmt.Fprint(r.client, "hello")
	r.Up.WaitTaken(5)
	r.Up.BlackHole()
	r.Up.Delay(0)
	relaySilent(t, r.server, 30*time.Millisecond)
	r.Pass()
	relayWants(t, r.server, "hello")

	r.Up.Delay(time.Hour)
	fmt.Fprint(r.client, "hello")
	r.Up.WaitTaken(10)
	r.Up.Cut()
	if b, err := io.ReadAll(r.server); len(b) > 0 || err != nil {
		t.Errorf("%q, %v: want an end, and nothing before", b, err)
	}
	relayGave(t, r.Up, 5)
}

func TestRelayHoldsWhatABlackHoleTookUntilItPasses(t *testing.T) {
	r := newRelayed(t)
	r.BlackHole()
	sent := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	r.client.SetWriteBuffer(64 << 10)
	written := relayWrites(r.client, sent)
	relaySilent(t, r.server, 50*time.Millisecond)
	fmt.Fprint(r.server, "hello")
	relaySilent(t, r.client, 30*time.Millisecond)
	select {
	case err := <-written:
		t.Errorf("4 MiB fit into buffers: %v", err)
	default:
	}
	r.Pass()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(r.server, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("other bytes, or %v", err)
	}
	relayWants(t, r.client, "hello")
	if err := <-written; err != nil {
		t.Error(err)
	}
}

func TestRelayHoldsTheEndInABlackHoleToo(t *testing.T) {
	r := newRelayed(t)
	r.Up.BlackHole()
	fmt.Fprint(r.client, "hello")
	r.client.Close()
	r.WaitOpen(0) // the Relay knows
	relaySilent(t, r.server, 30*time.Millisecond)
	r.Pass()
	relayWants(t, r.server, "hello")
	if err := relayEnds(r.server); err != nil {
		t.Error(err)
	}
}

func TestRelayCutIsAHalfClose(t *testing.T) {
	r := newRelayed(t)
	ended := make(chan error, 1)
	go func() { ended <- relayEnds(r.client) }() // it strikes those that wait
	r.Down.Cut()
	if err := <-ended; err != nil {
		t.Errorf("the client got %v", err)
	}
	fmt.Fprint(r.client, "still here")
	relayWants(t, r.server, "still here")
	fmt.Fprint(r.server, "into the void")
	r.Down.WaitTaken(13)
	r.client.Close()
	if err := relayEnds(r.server); err != nil {
		t.Errorf("the server got %v", err)
	}
}

func TestRelayResetsOneSide(t *testing.T) {
	r := newRelayed(t)
	r.Down.Reset()
	if err := relayEnds(r.client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client got %v", err)
	}
	if err := relayEnds(r.server); err != nil {
		t.Errorf("the server got %v", err)
	}
}

func TestRelayResetsBothSides(t *testing.T) {
	r := newRelayed(t)
	r.Reset()
	for _, c := range []net.Conn{r.client, r.server} {
		if err := relayEnds(c); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("got %v", err)
		}
	}
	r.WaitOpen(0)
}

// relayStands waits until nothing goes up any more.
func relayStands(r *relayed) {
	for last := int64(-1); ; time.Sleep(20 * time.Millisecond) {
		_, n := r.Up.Bytes()
		if n == last {
			return
		}
		last = n
	}
}

// A receiver that does not read keeps the Relay in a write, which a fault must not
// wait for.
func TestRelayStrikesInTheMiddleOfAWrite(t *testing.T) {
	for name, strike := range map[string]func(*transporttest.Relay){
		"reset":   func(r *transporttest.Relay) { r.Up.Reset() },
		"garbage": func(r *transporttest.Relay) { r.Up.Garbage([]byte("\x00end")) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRelayed(t)
			r.client.SetWriteBuffer(64 << 10)
			written := relayWrites(r.client, make([]byte, 32<<20))
			relayStands(r)
			strike(r.Relay)
			if name == "reset" {
				if err := relayEnds(r.server); !errors.Is(err, syscall.ECONNRESET) {
					t.Errorf("the server got %v", err)
				}
				r.client.Close()
				<-written
				return
			}
			if err := <-written; err != nil { // what nobody gets is taken
				t.Error(err)
			}
			r.client.CloseWrite()
			b, err := io.ReadAll(r.server)
			if !bytes.HasSuffix(b, []byte("\x00end")) || len(b) > 16<<20 || err != nil {
				t.Errorf("%d bytes, %v", len(b), err)
			}
		})
	}
}

func TestRelayHoldsInABlackHoleTheRestOfAWrite(t *testing.T) {
	r := newRelayed(t)
	written := relayWrites(r.client, make([]byte, 8<<20))
	relayStands(r)
	r.Up.BlackHole()
	time.Sleep(20 * time.Millisecond) // what was written of it is counted
	_, arrived := r.Up.Bytes()
	relayWants(t, r.server, string(make([]byte, arrived)))
	relaySilent(t, r.server, 30*time.Millisecond)
	r.Up.Pass()
	relayWants(t, r.server, string(make([]byte, 8<<20-arrived)))
	<-written
}

func TestRelayGivesGarbageToOpenConnectionsAndNewOnes(t *testing.T) {
	r, accepted := relayServer(t)
	client := relayDial(t, r)
	server := <-accepted
	fmt.Fprint(client, "a")
	relayWants(t, server, "a")
	r.Down.Garbage([]byte("garbage"))
	relayWants(t, client, "garbage")
	fmt.Fprint(server, "lost")
	r.Down.WaitTaken(4)
	other := relayDial(t, r)
	relayWants(t, other, "garbage")
	r.Pass()
	relaySilent(t, client, 30*time.Millisecond)
	if _, given := r.Down.Bytes(); given != 0 {
		t.Errorf("%d bytes of the server's were given", given)
	}
	third := relayDial(t, r)
	<-accepted
	fmt.Fprint(<-accepted, "well again")
	relayWants(t, third, "well again")
}

func TestRelayRefusesAndAcceptsAgainAtTheSameAddress(t *testing.T) {
	r := newRelayed(t)
	r.Refuse()
	r.Refuse()
	if c, err := net.Dial("tcp", r.Addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("%v, %v", c, err)
	}
	fmt.Fprint(r.client, "still here")
	relayWants(t, r.server, "still here")
	r.Pass()
	relayDial(t, r.Relay)
	r.WaitOpen(2)
}

func TestRelayIgnoresUntilItPasses(t *testing.T) {
	r := newRelayed(t)
	r.Ignore()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var d net.Dialer
	if c, err := d.DialContext(ctx, "tcp", r.Addr); !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v, %v", c, err)
	}
	fmt.Fprint(r.client, "still here")
	relayWants(t, r.server, "still here")
	r.Pass()
	relayDial(t, r.Relay)
	r.WaitOpen(2)
	// Those that have filled the queue are none; the dial that was given up may have got in.
	if opened, _ := r.Connections(); opened != 2 && opened != 3 {
		t.Errorf("%d opened", opened)
	}
	for tries := 1; ; tries++ { // as many at a time as before
		start := time.Now()
		var dials sync.WaitGroup
		for range 30 {
			dials.Go(func() { relayDial(t, r.Relay) })
		}
		dials.Wait()
		took := time.Since(start)
		if took < 900*time.Millisecond { // a SYN that is lost is sent again after a second
			break
		}
		if tries == 5 {
			t.Errorf("30 connections took %v", took)
			break
		}
	}
	r.Ignore()
	r.Refuse()
	if _, err := net.Dial("tcp", r.Addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
}

func TestRelayResetsAClientWhoseTargetIsNotThere(t *testing.T) {
	transporttest.CheckLeaks(t)
	gone := transporttest.NewRelay(t, "127.0.0.1:1")
	gone.Refuse()
	r := transporttest.NewRelay(t, gone.Addr)
	c, err := net.Dial("tcp", r.Addr)
	if err == nil {
		err = relayEnds(c)
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client got %v", err)
	}
	if opened, _ := r.Connections(); opened != 0 {
		t.Errorf("%d opened", opened)
	}
}

// A network that goes silent between a program and its dependency, and comes back.
func ExampleRelay() {
	var t *testing.T // of your test
	aSilentNetworkEndsInAReadTimeout(t)
}

func TestTheRelayExampleHolds(t *testing.T) { aSilentNetworkEndsInAReadTimeout(t) }

// aSilentNetworkEndsInAReadTimeout is TestASilentNetworkEndsInAReadTimeout in a
// program of yours, whose dependency may be any server.
func aSilentNetworkEndsInAReadTimeout(t *testing.T) {
	dependency := transporttest.NewOrigin(t)
	addr := strings.TrimPrefix(dependency.URL, "http://")
	p := policy.Service()
	p.Timeout.Read = 200 * time.Millisecond
	p.Retry.MaxAttempts = 1
	tr := transport.Must(transport.New(transport.Config{Default: p}))
	defer tr.Close()
	var url string
	get := func() error {
		resp, err := tr.Client().Get(url)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}

	relay := transporttest.NewRelay(t, addr) // host:port of a database, a service of yours, an Origin
	url = "http://" + relay.Addr
	if err := get(); err != nil {
		t.Errorf("healthy: %v", err)
	}
	relay.BlackHole() // the connection stays open, as when a cable is pulled
	if err := get(); !errors.Is(err, transport.ErrReadTimeout) {
		t.Errorf("silent: %v", err)
	}
	relay.Pass()
	relay.Down.Delay(50 * time.Millisecond)
	if err := get(); err != nil {
		t.Errorf("slow, but within the limits: %v", err)
	}
	if s := tr.Snapshot()[0]; s.Counts.Failure != 1 {
		t.Errorf("%d failures", s.Counts.Failure)
	}
}

func TestRelayRefusesATargetThatIsNoAddress(t *testing.T) {
	for _, target := range []string{"", "127.0.0.1", "http://127.0.0.1:80", "127.0.0.1:", "::1"} {
		f := &fatalT{fakeT: fakeT{TB: t}}
		done := make(chan struct{})
		go func() {
			defer close(done)
			transporttest.NewRelay(f, target)
		}()
		<-done
		if !strings.Contains(f.text, "must be host:port") {
			t.Errorf("%q: %q", target, f.text)
		}
	}
}

// fatalT ends the goroutine of a test that fails for good.
type fatalT struct {
	fakeT
	text string
}

func (f *fatalT) Fatalf(format string, args ...any) {
	f.text = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestRelayIsReachedUnderAnyNameByItsDialContext(t *testing.T) {
	for _, opts := range [][]transporttest.Option{nil, {transporttest.TLS("h2")}} {
		o := transporttest.NewOrigin(t, opts...)
		o.Script(transporttest.Step{Body: "hello"})
		relay := transporttest.NewRelay(t, o.Addr)
		base := o.Base()
		base.DialContext = relay.DialContext
		scheme, _, _ := strings.Cut(o.URL, ":")
		resp, err := (&http.Client{Transport: base}).Get(scheme + "://a.test/")
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(resp.Body); err != nil || string(text) != "hello" {
			t.Error(string(text), err)
		}
		_ = resp.Body.Close()
		if opened, _ := relay.Connections(); opened != 1 {
			t.Errorf("%d connections went through the relay", opened)
		}
		base.CloseIdleConnections()
	}
}
