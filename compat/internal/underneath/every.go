//go:build every

package underneath

import (
	"context"
	"net/http"
	"os"
	"sync"

	"github.com/watertight-go/watertight/transport"
)

type belowKey struct{}

func init() {
	if os.Getenv(ModeVar) != Every {
		return
	}
	var stacks sync.Map // by *http.Transport
	http.Every = func(t *http.Transport, req *http.Request, direct func(*http.Request) (*http.Response, error)) (*http.Response, error) {
		if req.URL == nil || req.URL.Scheme != "http" && req.URL.Scheme != "https" || req.Context().Value(belowKey{}) != nil {
			return direct(req)
		}
		s, ok := stacks.Load(t)
		if !ok {
			s, _ = stacks.LoadOrStore(t, sync.OnceValue(func() *transport.Transport {
				base := t.Clone()
				if name := os.Getenv(CountVar); name != "" {
					base.Proxy = counted(name, base.Proxy)
				}
				return transport.Must(transport.New(transport.Config{Base: base}))
			}))
		}
		below := req.WithContext(context.WithValue(req.Context(), belowKey{}, true))
		resp, err := s.(func() *transport.Transport)().RoundTrip(below)
		if resp != nil {
			resp.Request = req
		}
		return resp, err
	}
}
