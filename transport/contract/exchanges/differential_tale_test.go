package exchanges_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/textproto"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// tale is what an exchange comes to, for its caller, for the origin and for hooks.
type tale struct {
	Answers []answer
	Origin  string   // what came in, connection by connection
	Hooks   []string // of httptrace, in order for each of those who run them
}

// answer is what a caller can tell of one.
type answer struct {
	Err       string
	Status    string
	Code      int
	Proto     string
	Header    http.Header
	Announced http.Header // trailers, before the body is read
	Trailer   http.Header
	Length    int64
	Encoding  []string
	Close     bool
	Unpacked  bool
	TLS       string
	Asked     string // Response.Request, and how it came to be
	Kind      string // of body
	Body      string
	BodyErr   string
	CloseErr  string
	Again     string // what a second Close says
	After     string // what a Read says after it

	Retried bool // the presets would try again
}

// take reads an answer.
func (a *answer) take(p *play, req *http.Request, resp *http.Response) {
	a.Status, a.Code, a.Proto, a.Header = resp.Status, resp.StatusCode, fmt.Sprint(resp.Proto, resp.ProtoMajor, resp.ProtoMinor), resp.Header.Clone()
	a.Header.Del("Date")
	a.Length, a.Encoding, a.Close, a.Unpacked = resp.ContentLength, resp.TransferEncoding, resp.Close, resp.Uncompressed
	a.Announced = resp.Trailer.Clone()
	if s := resp.TLS; s != nil {
		a.TLS = fmt.Sprint(s.Version, s.NegotiatedProtocol, s.ServerName, s.HandshakeComplete, s.DidResume, len(s.PeerCertificates))
	}
	a.Asked = "the caller's"
	if resp.Request != req {
		a.Asked = ""
		for r := resp.Request; r != nil; r = r.Response.Request {
			a.Asked += fmt.Sprintf("%s %s %v, ", r.Method, r.URL, r.Header)
			if r.Response == nil {
				break
			}
			a.Asked += r.Response.Status + " from "
		}
	}
	_, writer := resp.Body.(io.Writer)
	_, writerTo := resp.Body.(io.WriterTo)
	a.Kind = fmt.Sprintf("none %v, written to %v, writes itself %v", resp.Body == http.NoBody, writer, writerTo)

	read := p.x.read
	if read == nil {
		read = func(_ *play, resp *http.Response) ([]byte, error) { return io.ReadAll(resp.Body) }
	}
	b, err := read(p, resp)
	a.Body, a.BodyErr, a.Trailer = string(b), errorClass(err), resp.Trailer
	a.CloseErr = errorClass(resp.Body.Close())
	a.Again = errorClass(resp.Body.Close())
	_, err = resp.Body.Read(make([]byte, 1))
	a.After = errorClass(err)
}

// loosely is the tale without what may differ from one time to the next.
func (t tale) loosely() tale {
	t.Origin, t.Hooks = "", nil
	t.Answers = slices.Clone(t.Answers)
	for i := range t.Answers {
		a := &t.Answers[i]
		a.After = ""
		for _, err := range []*string{&a.Err, &a.BodyErr} {
			switch {
			case strings.Contains(*err, "deadline"): // of the context or of http.Client, which end at once
				*err = "a deadline"
			case *err != "":
				*err = "an error"
			}
		}
	}
	return t
}

// unordered is the tale without the order of its hooks and of HTTP/2 frames. Whether
// the connection of an HTTP/2 stream that has just ended is idle already, how often one
// is asked for, and what net/http still tells of writing a request that was answered
// early, is open.
func (t tale) unordered(early bool) tale {
	t.Origin = strings.Join(slices.Sorted(strings.SplitSeq(t.Origin, "\n")), "\n")
	hooks := map[string]bool{}
	for _, h := range t.Hooks {
		if !early || !strings.HasPrefix(h, "WroteRequest") && h != "Wait100Continue" {
			hooks[wasIdle.ReplaceAllString(h, "")] = true
		}
	}
	t.Hooks = slices.Sorted(maps.Keys(hooks))
	return t
}

var wasIdle = regexp.MustCompile(`, was idle (true|false)`)

// diff tells what differs.
func (t tale) diff(got tale) string {
	var b strings.Builder
	var compare func(path string, want, got reflect.Value)
	compare = func(path string, want, got reflect.Value) {
		if reflect.DeepEqual(want.Interface(), got.Interface()) {
			return
		}
		if want.Kind() == reflect.Struct {
			for i := range want.NumField() {
				compare(path+"."+want.Type().Field(i).Name, want.Field(i), got.Field(i))
			}
			return
		}
		if want.Kind() == reflect.Slice && want.Len() == got.Len() {
			for i := range want.Len() {
				compare(fmt.Sprintf("%s[%d]", path, i), want.Index(i), got.Index(i))
			}
			return
		}
		fmt.Fprintf(&b, "%s\n  got  %.2000q\n  want %.2000q\n", path, fmt.Sprint(got), fmt.Sprint(want))
	}
	compare("", reflect.ValueOf(t), reflect.ValueOf(got))
	return b.String()
}

var (
	anyAddr      = regexp.MustCompile(`\d+\.\d+\.\d+\.\d+:\d+|\[::1\]:\d+|localhost:\d+|/[^ ]*\.sock`)
	anyQuotation = regexp.MustCompile(`".*"`)
	anyStream    = regexp.MustCompile(`stream ID \d+`)
)

// errorClass is what a caller can tell of an error, up to addresses.
func errorClass(err error) string {
	if err == nil {
		return ""
	}
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
		return "reset"
	}
	text := err.Error()
	if quoting := textproto.ProtocolError(""); errors.As(err, &quoting) { // which the stack does not repeat
		text = "malformed header from the peer"
	}
	text = anyQuotation.ReplaceAllString(text, `"..."`) // nor what a header or a URL held
	var timeout interface{ Timeout() bool }
	var op *net.OpError
	var dns *net.DNSError
	var is []string
	for name, yes := range map[string]bool{
		"EOF": errors.Is(err, io.EOF), "an unexpected EOF": errors.Is(err, io.ErrUnexpectedEOF),
		"canceled": errors.Is(err, context.Canceled), "deadline": errors.Is(err, context.DeadlineExceeded),
		"a timeout": errors.As(err, &timeout) && timeout.Timeout(), "refused": errors.Is(err, syscall.ECONNREFUSED),
		"of the network": errors.As(err, &op), "of DNS": errors.As(err, &dns),
		"a read after Close": errors.Is(err, http.ErrBodyReadAfterClose), "the caller's own": errors.Is(err, errUpload),
		"unsupported": errors.Is(err, errors.ErrUnsupported), "closed": errors.Is(err, net.ErrClosed),
	} {
		if yes {
			is = append(is, name)
		}
	}
	slices.Sort(is)
	text = strings.TrimSuffix(text, " while waiting for connection")
	return anyStream.ReplaceAllString(anyAddr.ReplaceAllString(text, "addr"), "stream ID n") + "; is " + strings.Join(is, ", ")
}
