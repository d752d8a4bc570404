package contract_test

import (
	"bufio"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// strayServer answers each request with its path, and on each connection sends a
// second answer some time after the first, which nobody has asked for.
func strayServer(after time.Duration) func(net.Conn) {
	return func(c net.Conn) {
		r := bufio.NewReader(c)
		answer := func(text string) error {
			_, err := fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\nContent-Length: %d\r\n\r\n%s", len(text), text)
			return err
		}
		for n := 0; ; n++ {
			req, err := http.ReadRequest(r)
			if err != nil {
				return
			}
			if err := answer(req.URL.Path); err != nil {
				return
			}
			if n == 0 {
				time.Sleep(after)
				if err := answer("stray"); err != nil {
					return
				}
			}
		}
	}
}

// An answer that nobody has asked for may be taken for that to the next request:
// the connection is net/http's, which cannot know. The stack makes it no worse, and
// does not give such an answer again.
func TestStrayAnswersAreNoMoreThanWithoutTheStack(t *testing.T) {
	log.SetOutput(io.Discard) // net/http tells of each that it finds on an idle connection
	defer log.SetOutput(os.Stderr)
	wrong := map[string]int{}
	for _, kind := range []string{"net/http", "the stack"} {
		for _, after := range []time.Duration{0, time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond} {
			for _, pause := range []time.Duration{0, 2 * time.Millisecond, 4 * time.Millisecond, 6 * time.Millisecond} {
				synctest.Test(t, func(t *testing.T) {
					o := transporttest.NewNet(t, nil, transporttest.ServeConn(strayServer(after)))
					base := o.Base()
					var rt http.RoundTripper = base
					if kind == "the stack" {
						p := policy.Service()
						p.Fallback.MaxStale = time.Hour
						rt = stackNew(t, transport.Config{Base: base, Default: p})
					}
					client := &http.Client{Transport: rt}
					defer client.CloseIdleConnections()
					ask := func(path string) bool {
						resp, err := client.Get(o.URL + path)
						if err != nil {
							return true // no answer is none to the wrong request
						}
						b, _ := io.ReadAll(resp.Body)
						_ = resp.Body.Close()
						return string(b) == path
					}
					var again []string
					for i := range 20 {
						path := fmt.Sprintf("/%d", i)
						if !ask(path) {
							wrong[kind]++
							again = append(again, path)
						}
						time.Sleep(pause)
					}
					for _, path := range again {
						client.CloseIdleConnections()
						time.Sleep(time.Second)
						if !ask(path) {
							t.Errorf("%s: the wrong answer to %s again", kind, path)
						}
					}
				})
			}
		}
	}
	t.Logf("answers to the wrong request: %v", wrong)
	if wrong["net/http"] == 0 {
		t.Error("net/http has learnt to tell them apart: say so")
	}
	if wrong["the stack"] > wrong["net/http"]*5/4+4 { // which of two comes first may be by chance
		t.Errorf("%v", wrong)
	}
}

// A refusal of a body that was announced with Expect leaves it unsent where the
// connection ends with it; where that is kept, net/http sends the body after all.
func TestStrayBodiesOfARefusedExpectAreThoseOfTheBase(t *testing.T) {
	type sight struct {
		Bodies []int
		Conns  int
		Read   int64
	}
	for name, answer := range map[string]string{
		"closed": "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\nContent-Length: 2\r\n\r\nno",
		"kept":   "HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno",
	} {
		t.Run(name, func(t *testing.T) {
			var seen []sight
			for _, stack := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					const size = 1 << 16
					var s sight
					o := transporttest.NewNet(t, nil, transporttest.ServeConn(func(c net.Conn) {
						s.Conns++
						r := bufio.NewReader(c)
						for {
							req, err := http.ReadRequest(r)
							if err != nil {
								return
							}
							text := answer
							if req.Method == http.MethodGet {
								text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
							}
							if _, err := io.WriteString(c, text); err != nil || strings.Contains(text, "close") {
								if req.Method != http.MethodGet {
									s.Bodies = append(s.Bodies, 0)
								}
								return
							}
							if req.Method != http.MethodGet {
								n, _ := io.Copy(io.Discard, req.Body)
								s.Bodies = append(s.Bodies, int(n))
							}
						}
					}))
					base := o.Base()
					base.ExpectContinueTimeout = time.Minute
					var rt http.RoundTripper = base
					if stack {
						rt = stackNew(t, transport.Config{Base: base, Default: policy.Service()})
					}
					defer base.CloseIdleConnections()
					body := &counting{Reader: io.LimitReader(contractZeros{}, size)}
					req := stackRequest(t, t.Context(), http.MethodPut, o.URL)
					req.Body, req.ContentLength = io.NopCloser(body), size
					req.Header.Set("Expect", "100-continue")
					resp, err := rt.RoundTrip(req)
					if err != nil || resp.StatusCode != 401 {
						t.Fatal(resp, err)
					}
					if b, err := io.ReadAll(resp.Body); string(b) != "no" || err != nil {
						t.Errorf("%q, %v", b, err)
					}
					_ = resp.Body.Close()
					time.Sleep(time.Second)
					resp, err = rt.RoundTrip(stackRequest(t, t.Context(), http.MethodGet, o.URL))
					if err != nil {
						t.Fatal(err)
					}
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
					s.Read = body.n
					seen = append(seen, s)
				})
			}
			if fmt.Sprint(seen[0]) != fmt.Sprint(seen[1]) {
				t.Errorf("net/http: %+v, the stack: %+v", seen[0], seen[1])
			}
			if name == "closed" && (seen[1].Read != 0 || seen[1].Conns != 2) {
				t.Errorf("%+v", seen[1])
			}
		})
	}
}

type counting struct {
	io.Reader
	n int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}
