package cache_test

import (
	"strings"
	"testing"
)

func TestNoCallerSeesWhatWasMeantForAnother(t *testing.T) {
	for _, name := range []string{
		"Authorization", "Proxy-Authorization", "Cookie", "X-Api-Key", "Api-Key", "Apikey", "X-Auth-Token", "Private-Token",
		"Ocp-Apim-Subscription-Key", "X-Amz-Security-Token", "X-Session-Id", "X-User-Id", "X-Tenant-Id", "Impersonate-User", "X-Remote-User",
		"X-Client-Cert", "X-Ms-Client-Principal", "Openai-Organization", "Origin", "Forwarded", "X-Forwarded-Host", "X-Forwarded-Proto",
		"X-Scope-OrgID", "Cf-Access-Jwt-Assertion", "X-Goog-Iap-Jwt-Assertion", "X-Jwt-Assertion", "X-Jwt", "X-Org-Id", "X-Company-Id",
		"X-Member-Id", "X-Uid", "X-Sid", "X-Login", "X-Email", "From", "X-Group", "X-Vault-Namespace", "X-Workspace-Id", "X-Project-Id",
		"Openai-Project", "X-Database", "X-Clickhouse-Database", "Accept-Profile", "Dpop",
		"Referer", "Sec-Fetch-Site", "X-Forwarded-Port", "X-Requested-With", "Baggage", "Ot-Baggage-User", "L5d-Dst-Override",
		"X-Key", "X-Session-Trace", "X-Userrequest-Idx", "Xrequest-Id", "Pretimeout",
		"X-" + strings.Repeat("Long-", 20) + "Name",
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t)
			c.do(get(name, "one"), answer(200, "one", "Cache-Control", "public, max-age=60"), minutes)
			c.servesNothing(t, get(), minutes)
			c.servesNothing(t, get(name, "two"), minutes)
			c.servesNothing(t, get(name, "one", name, "two"), minutes)
			c.serves(t, "one", get(name, "one"), minutes)

			c.do(get(), answer(200, "anyone"), minutes)
			c.servesNothing(t, get(name, "two"), minutes)
			c.serves(t, "one", get(name, "one"), minutes)
			raw := get()
			raw.Header[strings.ToLower(name)] = []string{"one"}
			c.servesNothing(t, raw, minutes)
		})
	}
}

func TestUserinfoSeparatesCallers(t *testing.T) {
	c := newClient(t)
	c.do(request("GET", "https://u:p@a.test/doc"), answer(200, "one"), minutes)
	c.servesNothing(t, get(), minutes)
	c.servesNothing(t, request("GET", "https://u:q@a.test/doc"), minutes)
	c.serves(t, "one", request("GET", "https://u:p@a.test/doc"), minutes)
}

func TestFieldsAreNotMistakenForOneAnother(t *testing.T) {
	c := newClient(t)
	c.do(get("X-Token", "ab", "X-User", "c"), answer(200, "one"), minutes)
	c.servesNothing(t, get("X-Token", "a", "X-User", "bc"), minutes)
	c.servesNothing(t, get("X-Token", "abX-Userc"), minutes)
	c.servesNothing(t, get("X-Token", "c", "X-User", "ab"), minutes)
}

func TestFieldsThatChangeWithEveryCallDoNotSeparate(t *testing.T) {
	for _, name := range []string{
		"Accept", "Accept-Encoding", "Accept-Language", "Accept-Charset", "User-Agent", "Content-Type", "Connection", "Te", "Via", "Date", "Priority",
		"Expect", "Max-Forwards", "Traceparent", "Tracestate", "B3", "X-B3-Traceid", "X-B3-Spanid", "Uber-Trace-Id", "X-Cloud-Trace-Context",
		"X-Amzn-Trace-Id", "Sentry-Trace", "X-Datadog-Trace-Id", "X-Datadog-Parent-Id", "Request-Id", "X-Request-Id", "X-Ms-Client-Request-Id",
		"X-Amzn-Requestid", "X-Correlation-Id", "Correlation-Id", "X-Trace-Id", "X-Span-Id", "Idempotency-Key", "X-Idempotency-Key",
		"X-Stainless-Retry-Count", "X-Envoy-Attempt-Count", "X-Request-Deadline", "X-Request-Timeout", "Grpc-Timeout", "X-Request-Start",
		"Amz-Sdk-Invocation-Id", "X-Forwarded-For", "X-Real-Ip", "Cf-Connecting-Ip", "Cf-Ray", "X-Goog-Api-Client",
	} {
		c := newClient(t)
		c.do(get(name, "1"), answer(200, "hello"), minutes)
		c.serves(t, "hello", get(name, "2"), minutes)
		c.serves(t, "hello", get(), minutes)
	}
}

func TestBaggageSeparatesUnlessItIsAllOfTheTrace(t *testing.T) {
	for _, test := range []struct {
		one, two string
		want     bool
	}{
		{"sentry-trace_id=1,sentry-release=a", "sentry-trace_id=2, sentry-release=a", true},
		{"sentry-trace_id=1", "", true},
		{"tenant=1", "tenant=2", false},
		{"sentry-trace_id=1,tenant=1", "sentry-trace_id=1,tenant=2", false},
		{"sentry-trace_id=1,tenant=1", "sentry-trace_id=1", false},
	} {
		c := newClient(t)
		c.do(get("Baggage", test.one), answer(200, "hello"), minutes)
		if _, ok := c.fail(get("Baggage", test.two), failed, minutes); ok != test.want {
			t.Errorf("%q, then %q: served %t", test.one, test.two, ok)
		}
	}
	c := newClient(t)
	c.do(get("Baggage", "sentry-trace_id=1"), answer(200, "hello", "Vary", "Baggage"), minutes)
	c.servesNothing(t, get("Baggage", "sentry-trace_id=2"), minutes)
	c.serves(t, "hello", get("Baggage", "sentry-trace_id=1"), minutes)
}

func TestHarmlessFieldsCostNoHash(t *testing.T) {
	c := newClient(t)
	req := callerOf("1")
	resp := answer(404, "")
	c.do(request("GET", "https://a.test/other"), answer(200, "hello"), minutes)
	if got := testing.AllocsPerRun(100, func() {
		x := c.Begin(req)
		c.Received(&x, req, resp, minutes)
	}); got != 0 {
		t.Errorf("%v allocations", got)
	}
}

func TestARefusedTokenDoesNotHideTheAnswerToAGoodOne(t *testing.T) {
	c := newClient(t)
	c.do(get("Authorization", "good"), answer(200, "hello"), minutes)
	c.do(get("Authorization", "bad"), answer(401, "who?", "Cache-Control", "max-age=60"), minutes)
	c.serves(t, "hello", get("Authorization", "good"), minutes)
	c.servesNothing(t, get("Authorization", "bad"), minutes)
}
