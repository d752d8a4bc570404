package otel_test

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/watertight-go/watertight/otel"
	"github.com/watertight-go/watertight/policy"
	"github.com/watertight-go/watertight/transport"
	"github.com/watertight-go/watertight/transport/transporttest"
)

// fullURL is url.full of a call.
func fullURL(t testing.TB, u *url.URL, more ...func(*otel.Config)) string {
	t.Helper()
	s := newSignals(t, sdktrace.AlwaysSample())
	base := rt(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 200, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
	req := request("GET", "http://a.test/")
	req.URL = u
	if _, err := call(stack(s.observer(more...), base, bare()), req); err != nil {
		t.Fatal(err)
	}
	for _, span := range s.spans.GetSpans() {
		for _, a := range span.Attributes {
			if a.Key == "url.full" {
				return a.Value.AsString()
			}
		}
	}
	t.Fatal("no url.full")
	return ""
}

func TestURLsAreRecordedWithoutSecrets(t *testing.T) {
	for _, test := range [][2]string{
		{"http://a.test/p?q=1#f", "http://a.test/p?q=1"},
		{"http://a.test?", "http://a.test?"},
		{"http://me:pw@a.test/", "http://REDACTED:REDACTED@a.test/"},
		{"http://token@a.test/", "http://REDACTED@a.test/"},
		{"http://:pw@a.test/", "http://REDACTED:REDACTED@a.test/"},
		{"http://a.test/?a=1&X-Amz-Signature=s&b=2", "http://a.test/?a=1&X-Amz-Signature=REDACTED&b=2"},
		{"http://a.test/?x-amz-signature=s", "http://a.test/?x-amz-signature=REDACTED"},
		{"http://a.test/?X-Amz-Credential=s&X-Amz-Security-Token=s", "http://a.test/?X-Amz-Credential=REDACTED&X-Amz-Security-Token=REDACTED"},
		{"http://a.test/?X-Goog-Signature=s&sig=s&Signature=s&AWSAccessKeyId=s", "http://a.test/?X-Goog-Signature=REDACTED&sig=REDACTED&Signature=REDACTED&AWSAccessKeyId=REDACTED"},
		{"http://a.test/?sig=s&sig=s2", "http://a.test/?sig=REDACTED&sig=REDACTED"},
		{"http://a.test/?a=1;sig=s;b=2", "http://a.test/?a=1;sig=REDACTED;b=2"},
		{"http://a.test/?s%69g=s", "http://a.test/?s%69g=REDACTED"},
		{"http://a.test/?%73%69%67=s", "http://a.test/?%73%69%67=REDACTED"},
		{"http://a.test/?+sig=s", "http://a.test/?+sig=REDACTED"},
		{"http://a.test/?sig%zz=s", "http://a.test/?sig%zz=REDACTED"}, // who knows what the server makes of it
		{"http://a.test/?sig=a=b", "http://a.test/?sig=REDACTED"},
		{"http://a.test/?sig", "http://a.test/?sig"},
		{"http://a.test/?sig=&&a", "http://a.test/?sig=REDACTED&&a"},
		{"http://a.test/?token[]=s&user[password]=s&user%5Bpassword%5D=s", "http://a.test/?token[]=REDACTED&user[password]=REDACTED&user%5Bpassword%5D=REDACTED"},
		{"http://a.test/?next=https://b.test/p&a=%3A//b.test/1", "http://a.test/?next=https://b.test/p&a=%3A//b.test/1"},
		{"http://a.test/?src=https://me:pw@b.test/&a=1", "http://a.test/?src=REDACTED&a=1"},
		{"http://a.test/?src=https://b.test/o?sig=s&sig=s", "http://a.test/?src=REDACTED&sig=REDACTED"},
		{"http://a.test/?src=https%3A%2F%2Fb.test%2Fo%3FX-Amz-Signature%3Ds", "http://a.test/?src=REDACTED"},
		{"http://a.test/?src=https%253a%252f%252fme%2540b.test&a=%25", "http://a.test/?src=REDACTED&a=%25"},
		{"http://a.test/?src=%zzhttps%3A%2F%2Fme%40b.test", "http://a.test/?src=REDACTED"},
		{"http://a.test/?src=https:%2525252525252525", "http://a.test/?src=REDACTED"},
		{"http://a.test/?http://me:pw@b.test/", "http://a.test/?REDACTED"},
		{"http://a.test/?http%3A%2F%2Fme:pw@b.test/?q=1", "http://a.test/?REDACTED"},
		{"http://a.test/?design=1&keys=2&signature2=3", "http://a.test/?design=1&keys=2&signature2=3"},
	} {
		u, err := url.Parse(test[0])
		if err != nil {
			t.Fatal(err)
		}
		if got := fullURL(t, u); got != test[1] {
			t.Errorf("%s: got %s, want %s", test[0], got, test[1])
		}
	}
	opaque := &url.URL{Scheme: "http", Host: "a.test", Opaque: "//me:pw@a.test/p?sig=s", RawQuery: "sig=s"}
	if got, want := fullURL(t, opaque), "http://a.test?sig=REDACTED"; got != want {
		t.Errorf("opaque: got %s, want %s", got, want)
	}
}

func TestNamesOfCredentialsAreKnownHoweverTheyAreWritten(t *testing.T) {
	for _, name := range strings.Fields(`
		token accessToken access_token auth_token X-Auth-Token csrf-token page_token nextPageToken tokens[0].token X-Amz-Security-Token oauth:token
		secret clientSecret CLIENT_SECRET client-secret app.secret
		password user.password user[password] user[0][password] userPassword new-password passwd pwd db_pwd pass passphrase otp
		x-api-key apikey apiKey API_KEY api.key subscription-key Ocp-Apim-Subscription-Key accessKey secret_key privateKey signing-key
		sharedKey AccountKey master_key session_key app_key AWSAccessKeyId OSSAccessKeyId key user.key
		signature X-Goog-Signature SharedAccessSignature sig SIG \u017Fig credential X-Amz-Credential credentials
		auth authorization X-Authorization code auth_code code_verifier session sessionid JSESSIONID PHPSESSID jwt id.jwt client_assertion SAMLResponse`) {
		name = strings.ReplaceAll(name, `\u017F`, "\u017F") // which is an s, in another case
		u := &url.URL{Scheme: "http", Host: "a.test", Path: "/", RawQuery: name + "=value"}
		if got, want := fullURL(t, u), "REDACTED"; !strings.HasSuffix(got, "="+want) {
			t.Errorf("%s is recorded", got)
		}
	}
	for _, name := range strings.Fields(`
		monkey keyboard sort_key primaryKey partition-key cacheKey keys keyword max_tokens tokens tokenizer secretary passenger bypass
		design signal sigma signature2 codec barcode country_code session_count author authority client_assertion_type
		compass pin page cursor state nonce user id q`) {
		u := &url.URL{Scheme: "http", Host: "a.test", Path: "/", RawQuery: name + "=value"}
		if got := fullURL(t, u); !strings.HasSuffix(got, name+"=value") {
			t.Errorf("%s is not what was sent", got)
		}
	}
}

func TestOwnersChooseWhatIsRedacted(t *testing.T) {
	u, err := url.Parse("http://a.test/?sig=1&mine=2&%zz=3&u=a://b@c")
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		names []string
		want  string
	}{
		{[]string{"Mine"}, "http://a.test/?sig=1&mine=REDACTED&%zz=REDACTED&u=REDACTED"},
		{[]string{"m-I_ne"}, "http://a.test/?sig=1&mine=REDACTED&%zz=REDACTED&u=REDACTED"},
		{[]string{"ine", "min", "ig"}, "http://a.test/?sig=1&mine=2&%zz=REDACTED&u=REDACTED"}, // no ends and no beginnings
		{[]string{}, "http://a.test/?sig=1&mine=2&%zz=3&u=a://b@c"},
	} {
		if got := fullURL(t, u, func(c *otel.Config) { c.RedactQuery = test.names }); got != test.want {
			t.Errorf("%v: got %s, want %s", test.names, got, test.want)
		}
	}
}

func TestAnOwnersNameMatchesAWholeNameAndItsParts(t *testing.T) {
	u, err := url.Parse("http://a.test/?user.name=1&user.id=2&user[name]=3&a%5Bid%5D=4&a.b=5&userName=6")
	if err != nil {
		t.Fatal(err)
	}
	want := "http://a.test/?user.name=REDACTED&user.id=2&user[name]=3&a%5Bid%5D=REDACTED&a.b=REDACTED&userName=6"
	if got := fullURL(t, u, func(c *otel.Config) { c.RedactQuery = []string{"User.Name", "a[id]", "b"} }); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// FuzzURL looks for a query whose server sees a secret that is recorded.
func FuzzURL(f *testing.F) {
	f.Add("sig=", "&a=1")
	f.Add("a;%73ig", "=")
	f.Add("sig[x]=", ";")
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "s3cr3ts3cr3t"
		u := &url.URL{Scheme: "http", Host: "a.test", Path: "/", RawQuery: before + secret + after}
		read := u.Query()
		for _, part := range strings.Split(strings.ReplaceAll(u.RawQuery, ";", "&"), "&") { // as older servers read it
			if name, value, ok := strings.Cut(part, "="); ok {
				if plain, err := url.QueryUnescape(name); err == nil {
					read.Add(plain, value)
				}
			}
		}
		for name, values := range read {
			if !strings.EqualFold(name, "sig") || !strings.Contains(strings.Join(values, " "), secret) {
				continue
			}
			if strings.Count(u.RawQuery, secret) == 1 {
				if got := fullURL(t, u); strings.Contains(got, secret) {
					t.Errorf("%q is recorded as %q", u.RawQuery, got)
				}
			}
		}
	})
}

func TestNoSignalHoldsASecret(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const secret = "s3cr3t"
		s := newSignals(t, sdktrace.AlwaysSample())
		logs := &transporttest.Logs{}
		p := bare()
		p.Retry = policy.Retry{MaxAttempts: 2, Statuses: []int{503}, Base: time.Millisecond}
		p.Breaker = policy.Breaker{ConsecutiveFailures: 4, OpenFor: time.Minute}
		p.Fallback.Degraded = func(r *http.Request, _ error) *http.Response {
			if r.Method == "PUT" {
				return &http.Response{}
			}
			return nil
		}
		full := "http://me:" + secret + "@a.test/?token=" + secret + "#" + secret
		base := transporttest.NewBase(
			transporttest.Step{Status: 503, Header: http.Header{"Set-Cookie": {secret}, "Location": {full}}},
			transporttest.Step{Err: errors.New(secret)},
			transporttest.Step{Err: &url.Error{Op: "Get", URL: full, Err: errors.New(secret)}},
			transporttest.Step{Body: secret, Fault: transporttest.Cut, At: 2, Trailer: http.Header{"X": {secret}}},
			transporttest.Step{Err: errors.New(secret)},
		)
		tr := transport.Must(transport.New(transport.Config{Base: base, Observer: s.observer(), Default: p, Logger: slog.New(logs)}))
		for _, method := range []string{"GET", "PUT", "POST", "GET", "GET", "PUT", "DELETE"} {
			req := request(method, full)
			req.Header.Set("Authorization", "Bearer "+secret)
			req.Header.Set("Cookie", secret)
			_, _ = call(tr, req)
		}
		if s.collect()["resilience.circuit_breaker.not_permitted"].Name == "" || len(s.spans.GetSpans()) < 10 {
			t.Fatal("little was told")
		}
		told := fmt.Sprintf("%+v\n%+v\n%s", s.spans.GetSpans(), s.collect(), logs)
		if !strings.Contains(told, "REDACTED") || !strings.Contains(told, "circuit breaker state changed") {
			t.Error("the signals are not looked at")
		}
		if i := strings.Index(told, secret); i >= 0 {
			t.Errorf("told: ...%s", told[max(0, i-200):i+len(secret)])
		}
	})
}
