// Package underneath puts the stack under a program that imports it for its side
// effect, before main or a test begins. That is what a program's own main does
// with transport.Install; a test binary of somebody else's has no other place.
//
// The environment says how:
//
//	WATERTIGHT_COMPAT=install   transport.Install(stack)
//	WATERTIGHT_COMPAT=assign    http.DefaultTransport = stack
//
// Without it nothing is changed. The stack is that of transport.Config{}.
package underneath

import (
	"net/http"
	"net/url"
	"os"

	"github.com/hashicorp/go-cleanhttp"

	"github.com/watertight-go/watertight/transport"
)

// The environment that is read.
const (
	ModeVar  = "WATERTIGHT_COMPAT"
	CountVar = "WATERTIGHT_COMPAT_COUNT" // a file that grows by a byte for every attempt
)

// The values of ModeVar.
const (
	Install = "install"
	Assign  = "assign"
	Every   = "every" // see every.go
)

func init() {
	switch mode := os.Getenv(ModeVar); mode {
	case "", Every:
	case Install:
		transport.Install(stack())
	case Assign:
		http.DefaultTransport = stack()
	default:
		panic("underneath: " + ModeVar + "=" + mode)
	}
}

// stack is that of transport.Config{}, over the base that a nil one means.
func stack() *transport.Transport {
	base := cleanhttp.DefaultPooledTransport()
	if name := os.Getenv(CountVar); name != "" {
		base.Proxy = counted(name, base.Proxy)
	}
	return transport.Must(transport.New(transport.Config{Base: base}))
}

// counted is proxy, which net/http asks once for every attempt, so that it can be
// told how many went through the stack.
func counted(name string, proxy func(*http.Request) (*url.URL, error)) func(*http.Request) (*url.URL, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o644)
	if err != nil {
		panic("underneath: " + err.Error())
	}
	return func(req *http.Request) (*url.URL, error) {
		_, _ = f.Write([]byte{'.'})
		if proxy == nil {
			return nil, nil
		}
		return proxy(req)
	}
}
