package hostname

import (
	"net/url"
	"testing"
)

func TestOfIsOneFormHoweverAHostIsWritten(t *testing.T) {
	for _, c := range []struct{ scheme, host, name, port string }{
		{"http", "a.test", "a.test", "80"},
		{"http", "A.TEST.:080", "a.test", "80"},
		{"https", "a.test", "a.test", "443"},
		{"https", "a.test:", "a.test", "443"},
		{"http", "bücher.test", "xn--bcher-kva.test", "80"},
		{"http", "My_Host:8080", "my_host", "8080"},
		{"http", "[::1]:0443", "::1", "443"},
		{"http", "[0:0:0:0:0:0:0:1]", "::1", "80"},
		{"http", "[fe80::1%eth0]", "fe80::1%eth0", "80"},
		{"", "a.test", "a.test", ""},
	} {
		name, port, err := Of(&url.URL{Scheme: c.scheme, Host: c.host})
		if err != nil || name != c.name || port != c.port {
			t.Errorf("%s %s: %q %q %v", c.scheme, c.host, name, port, err)
		}
	}
	for _, host := range []string{"a:b:c", "[::g]", "[fe80::1%\xff]", "[fe80::1%a\nb]", "[fe80::1%é]"} {
		if name, port, err := Of(&url.URL{Scheme: "http", Host: host}); err == nil {
			t.Errorf("%q is %q %q", host, name, port)
		}
	}
}

func TestOfTakesNoMemoryForANormalName(t *testing.T) {
	u := &url.URL{Scheme: "https", Host: "api.internal:8443"}
	if n := testing.AllocsPerRun(100, func() { _, _, _ = Of(u) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
