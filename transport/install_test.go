package transport_test

import (
	"net/http"
	"testing"

	"github.com/watertight-go/watertight/transport"
)

// What was put on top of an installed stack is not taken away with it, and nothing
// comes back twice.
func TestInstallIsUndoneOnlyWhileItIsOnTop(t *testing.T) {
	before := http.DefaultTransport
	defer func() { http.DefaultTransport = before }()
	install := func() func() {
		return transport.Install(transport.Must(transport.New(transport.Config{Logger: quiet()})))
	}
	is := func(want http.RoundTripper, when string) {
		t.Helper()
		if http.DefaultTransport != want {
			t.Errorf("%s: %p is the default, want %p", when, http.DefaultTransport, want)
		}
	}

	first := install()
	a := http.DefaultTransport
	second := install()
	b := http.DefaultTransport
	first()
	is(b, "the first undone below the second")
	second()
	is(a, "the second undone")
	second()
	is(a, "the second undone twice")
	first()
	is(before, "both undone")
	second()
	first()
	is(before, "both undone twice")

	restore := install()
	http.DefaultTransport = rt(http.DefaultTransport.RoundTrip) // which cannot be compared
	restore()
	if _, ok := http.DefaultTransport.(rt); !ok {
		t.Errorf("undone below a wrapper: %T is the default", http.DefaultTransport)
	}
}
