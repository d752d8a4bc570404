package policy_test

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/watertight-go/watertight/policy"
)

func ExampleParseHostPattern() {
	p, err := policy.ParseHostPattern("*.Assets.example:8443")
	fmt.Printf("%+v %v\n", p, err)
	fmt.Println(p.Match("img.assets.example", "8443"), p.Match("assets.example", "8443"), p.Match("img.assets.example", "443"))

	_, err = policy.ParseHostPattern("https://user:secret@api.example")
	fmt.Println(err)
	// Output:
	// {Name:assets.example Port:8443 Wildcard:true} <nil>
	// true false false
	// host pattern "REDACTED@api.example": has a scheme; want a name, name:port, *.suffix or *.suffix:port
}

func TestParseHostPatternReadsNamesPortsAndSuffixes(t *testing.T) {
	for _, test := range []struct {
		in   string
		want policy.HostPattern
	}{
		{"api.example", policy.HostPattern{Name: "api.example"}},
		{"API.Example", policy.HostPattern{Name: "api.example"}},
		{"api.example.", policy.HostPattern{Name: "api.example"}},
		{"api.example.:443", policy.HostPattern{Name: "api.example", Port: "443"}},
		{"localhost", policy.HostPattern{Name: "localhost"}},
		{"my_service:80", policy.HostPattern{Name: "my_service", Port: "80"}},
		{"api.example:65535", policy.HostPattern{Name: "api.example", Port: "65535"}},
		{"api.example:0443", policy.HostPattern{Name: "api.example", Port: "443"}},
		{"*.example", policy.HostPattern{Name: "example", Wildcard: true}},
		{"*.example:8443", policy.HostPattern{Name: "example", Port: "8443", Wildcard: true}},
		{"127.0.0.1:80", policy.HostPattern{Name: "127.0.0.1", Port: "80"}},
		{"::1", policy.HostPattern{Name: "::1"}},
		{"::", policy.HostPattern{Name: "::"}},
		{"[::1]", policy.HostPattern{Name: "::1"}},
		{"[2001:DB8::1]:8443", policy.HostPattern{Name: "2001:db8::1", Port: "8443"}},
		{"[fe80::1%eth0]:80", policy.HostPattern{Name: "fe80::1%eth0", Port: "80"}},
		{"BÜCHER.example", policy.HostPattern{Name: "bücher.example"}},
		{"xn--bcher-kva.example", policy.HostPattern{Name: "xn--bcher-kva.example"}},
	} {
		if got, err := policy.ParseHostPattern(test.in); err != nil || got != test.want {
			t.Errorf("ParseHostPattern(%q) = %+v, %v; want %+v", test.in, got, err, test.want)
		}
	}
}

// A pattern that can match no host is a policy that silently never applies.
func TestParseHostPatternRefusesWhatCouldNeverMatch(t *testing.T) {
	const (
		name = "has no name"
		more = "has more than a host and a port"
		star = "has a * that is not a leading *."
		port = "has a port that is not a number from 1 to 65535"
		dot  = "has a name that begins with a dot; did you mean *"
		odd  = "has a name that is neither a host name nor an address"
	)
	for _, test := range []struct{ in, why string }{
		{"", name},
		{".", name},
		{":80", name},
		{"*.", name},
		{"*..", name},
		{"[]:80", name},
		{"https://api.example", "has a scheme"},
		{"api.example/v1", more},
		{"api.example?x=1", more},
		{"api.example#x", more},
		{"api .example", more},
		{"api.example\n", more},
		{"user@api.example", more},
		{"*", "means every host, which is what Config.Default is for"},
		{"*:443", star},
		{"api.*.example", star},
		{"*example", star},
		{"*.*.example", star},
		{"api.example:", port},
		{"[::1]:", port},
		{"api.example:0", port},
		{"api.example:65536", port},
		{"api.example:18446744073709551696", port},
		{"api.example:http", port},
		{"api.example:-1", port},
		{"api.example:+1", port},
		{"a:b:c", odd},
		{"[::1", odd},
		{"::1]", odd},
		{"[api.example]:80", odd},
		{"[1.2.3.4]", odd},
		{"fe80::1%", odd},
		{"fe80::1%a]:80", odd},
		{"api..example", odd},
		{"api.example..", odd},
		{".example", dot + ".example?"},
		{".Assets.example:8443", dot + ".Assets.example:8443?"},
		{"..example", odd},
		{"*..example", odd},
		{".a%2eexample", odd},
		{"a.example,b.example", odd},
		{"a%2eexample", odd},
		{"a\\b", odd},
		{"a\x00b", odd},
		{"a\xffb", odd},
		{"a\u00a0b", odd},
		{"*.::1", "has a * before an address"},
		{"*.[::1]:80", "has a * before an address"},
	} {
		got, err := policy.ParseHostPattern(test.in)
		if err == nil || !strings.Contains(err.Error(), ": "+test.why+"; want a name, name:port, *.suffix or *.suffix:port") {
			t.Errorf("ParseHostPattern(%q) = %+v, %v; want an error that it %s", test.in, got, err, test.why)
		}
		if got != (policy.HostPattern{}) {
			t.Errorf("ParseHostPattern(%q) = %+v beside its error", test.in, got)
		}
	}
}

func TestParseHostPatternErrorsNameNoSecret(t *testing.T) {
	for _, in := range []string{
		"https://user:S3cret@api.example",
		"user:S3cret@api.example",
		"https://user:S3@cret:S3cret@api.example",
		"https://user:S3cret?x@api.example",
		"https://user:S3cret#x@api.example",
		"https://api.example/?sig=S3cret",
		"api.example?sig=S3cret",
		"api.example#S3cret",
		"https://api.example/?mail=joe@corp.example&sig=S3cret",
	} {
		if _, err := policy.ParseHostPattern(in); err == nil || strings.Contains(err.Error(), "S3") {
			t.Errorf("ParseHostPattern(%q): %v", in, err)
		}
	}
}

func TestParseHostPatternErrorsQuoteWhatIsNoSecret(t *testing.T) {
	for _, test := range []struct{ in, want string }{
		{"https://api.example", `"https://api.example"`},
		{"https://u:p@api.example", `"REDACTED@api.example"`},
		{"https://api.example/?sig=1", `"https://api.example/?REDACTED"`},
	} {
		if _, err := policy.ParseHostPattern(test.in); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("ParseHostPattern(%q): %v; want it to quote %s", test.in, err, test.want)
		}
	}
}

func TestHostPatternMatches(t *testing.T) {
	for _, test := range []struct {
		pattern, name, port string
		want                bool
	}{
		{"api.example", "api.example", "443", true},
		{"api.example", "api.example", "8443", true},
		{"api.example", "API.example.", "443", true},
		{"api.example", "v1.api.example", "443", false},
		{"api.example", "api.example.org", "443", false},
		{"api.example:443", "api.example", "443", true},
		{"api.example:443", "api.example", "80", false},
		{"*.example", "api.example", "443", true},
		{"*.example", "v1.api.example", "443", true},
		{"*.example", "Api.Example.", "443", true},
		{"*.example", "example", "443", false},
		{"*.example", ".example", "443", false},
		{"*.example", "notexample", "443", false},
		{"*.example", "", "443", false},
		{"*.example:80", "api.example", "443", false},
		{"[::1]:80", "::1", "80", true},
	} {
		p, err := policy.ParseHostPattern(test.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Match(test.name, test.port); got != test.want {
			t.Errorf("%q matches %q on %s: %v, want %v", test.pattern, test.name, test.port, got, test.want)
		}
	}
}

func TestMoreSpecificHostPatternsComeFirst(t *testing.T) {
	order := []string{"img.assets.example:443", "img.assets.example", "*.assets.example:443", "*.assets.example", "*.example:443", "*.example"}
	var patterns []policy.HostPattern
	for _, s := range order {
		p, err := policy.ParseHostPattern(s)
		if err != nil {
			t.Fatal(err)
		}
		patterns = append(patterns, p)
	}
	for i, p := range patterns {
		for j, q := range patterns {
			if got := p.MoreSpecific(q); got != (i < j) {
				t.Errorf("%s is more specific than %s: %v", order[i], order[j], got)
			}
		}
	}
}

func TestSplitHostPortTakesEveryAuthority(t *testing.T) {
	for _, test := range []struct{ in, host, port string }{
		{"", "", ""},
		{"api.example", "api.example", ""},
		{"api.example:443", "api.example", "443"},
		{"api.example:", "api.example", ""},
		{":80", "", "80"},
		{"::1", "::1", ""},
		{"[::1]", "::1", ""},
		{"[::1]:80", "::1", "80"},
		{"[::1]:", "::1", ""},
		{"[", "[", ""},
		{"[::1", "[::1", ""},
		{"[:80", "[:80", ""},
		{":", "", ""},
	} {
		if host, port := policy.SplitHostPort(test.in); host != test.host || port != test.port {
			t.Errorf("SplitHostPort(%q) = %q, %q; want %q, %q", test.in, host, port, test.host, test.port)
		}
	}
}

func FuzzParseHostPattern(f *testing.F) {
	for _, s := range []string{
		"api.example", "API.example.:443", "*.example", "*.example:0080", "::1", "[::1]:80", "[fe80::1%eth0]",
		"bücher.example", "İ.example", ".", "*..", "[::1", "a:b:c", "fe80::1%a]:80", "https://api.example/?q",
	} {
		f.Add(s, "api.example")
	}
	f.Fuzz(func(t *testing.T, s, host string) {
		if p, err := policy.ParseHostPattern(s); err == nil {
			name, port := p.Name, p.Port
			if port == "" {
				port = "443"
			}
			prefix := ""
			if p.Wildcard {
				prefix = "*."
				if p.Match(name, port) {
					t.Errorf("%q: %+v matches its own suffix", s, p)
				}
				name = "below." + name
			}
			if !p.Match(name, port) {
				t.Errorf("%q: %+v does not match %q on %s", s, p, name, port)
			}
			again := prefix + p.Name
			if p.Port != "" {
				again = prefix + net.JoinHostPort(p.Name, p.Port)
			}
			if q, err := policy.ParseHostPattern(again); err != nil || q != p {
				t.Errorf("%q: %+v, but %q: %+v, %v", s, p, again, q, err)
			}
		}
		const secret = "S3cr3t-S3cr3t"
		for _, url := range []string{
			"https://joe:" + secret + "@" + host,
			s + ":" + secret + "@" + host,
			secret + s + "@" + host,
			s + "?sig=" + secret + host,
		} {
			if _, err := policy.ParseHostPattern(url); err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("ParseHostPattern(%q): %v", url, err)
			}
		}
	})
}
