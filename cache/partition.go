package cache

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Partition separates callers: a keyed hash of whatever in a request may say who is asking. The zero Partition
// is that of requests that do not say.
type Partition [16]byte

// partition returns the partition of a request: HMAC-SHA-256 over the identifying fields and the userinfo, cut to 16
// bytes; and, for who wants to know, whose the request is, which is the same over the tenant or the credentials alone. The
// hash is paid for only by requests that have any.
func (c *Cache) partition(req *http.Request, tenant string, wantWhose bool) (p, whose Partition) {
	var room [2][8]string
	credentials, others := room[0][:0], room[1][:0]
	for name, values := range req.Header {
		switch {
		case len(values) == 0 || !c.identifies(name) && (name != baggage || c.rules.Fresh || ofTrace(values)):
		case c.personal() && credential(name):
			credentials = append(credentials, name)
		default:
			others = append(others, name)
		}
	}
	user := req.URL.User
	if !c.personal() {
		user = nil
	}
	slices.Sort(credentials)
	text := who(tenant, credentials, req.Header, user)
	if len(others) == 0 {
		p = c.mac(text)
		return p, p
	}
	mac := hmac.New(sha256.New, c.secret[:])
	mac.Write(text)
	if wantWhose && len(text) > 0 {
		copy(whose[:], mac.Sum(nil))
	}
	clear(text)
	slices.Sort(others)
	text = appendFields(text[:0], others, req.Header)
	mac.Write(text)
	clear(text)
	copy(p[:], mac.Sum(nil))
	return p, whose
}

// who is what says whose a request is, nothing for nobody's.
func who(tenant string, names []string, h http.Header, user *url.Userinfo) []byte {
	if len(names) == 0 && user == nil && tenant == "" {
		return nil
	}
	text := make([]byte, 0, 1<<10)
	if tenant != "" {
		text = appendPart(append(text, 't'), tenant)
	}
	text = appendFields(text, names, h)
	if user != nil {
		text = appendPart(text, "")
		text = appendPart(text, user.String())
	}
	return text
}

func appendFields(text []byte, names []string, h http.Header) []byte {
	for _, name := range names {
		text = appendPart(text, name)
		text = binary.AppendUvarint(text, uint64(len(h[name])))
		for _, value := range h[name] {
			text = appendPart(text, value)
		}
	}
	return text
}

// mac is a keyed hash; the zero Partition for nothing.
func (c *Cache) mac(text []byte) (p Partition) {
	if len(text) == 0 {
		return p
	}
	mac := hmac.New(sha256.New, c.secret[:])
	mac.Write(text)
	clear(text)
	copy(p[:], mac.Sum(nil))
	return p
}

// personal reports whether credentials separate callers.
func (c *Cache) personal() bool { return c.rules.Partition == nil && !c.rules.Shared }

// identifies reports whether a request field separates callers.
func (c *Cache) identifies(name string) bool {
	if !c.rules.Fresh {
		return identifying(name)
	}
	return c.personal() && credential(name) || slices.Contains(c.rules.KeyHeaders, name)
}

// credential reports whether a request field says who is asking, where answers are reused as their origin allows: the well-known
// ones (Authorization, Proxy-Authorization, Cookie, X-Api-Key, Api-Key, X-Auth-Token), and all that are named like them.
func credential(name string) bool {
	switch name {
	case "Authorization", "Cookie", "X-Api-Key": // the usual ones
		return true
	}
	for _, end := range [...]string{"Authorization", "-Token", "-Key", "-Secret", "-Session", "-Assertion", "-Jwt", "Apikey"} {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}

// personal reports whether a request shows credentials.
func personal(req *http.Request) bool {
	for name, values := range req.Header {
		if len(values) > 0 && credential(name) {
			return true
		}
	}
	return req.URL.User != nil
}

func appendPart(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// identifying reports whether a request field may say who is asking, or is one that origins answer by without saying
// so in Vary. Every field may, unless it is known not to: no list of those that do is complete (X-Scope-OrgID,
// Cf-Access-Jwt-Assertion, From), a wrong yes costs a fallback, and a wrong no shows one user's answer to another.
//
// The known ones are what Vary speaks of if they matter, what is about this connection or this message, and what names
// one call, in a trace or a log. Referer is not among them, for the reason that Origin is not: access is granted by it.
// Neither are Sec-Fetch-Site and its like, nor X-Forwarded-Host, -Proto and -Port, which end up in the links of an answer.
func identifying(name string) bool {
	switch name {
	case "Accept", "Accept-Charset", "Accept-Encoding", "Accept-Language", "User-Agent",
		"Sec-Ch-Ua", "Sec-Ch-Ua-Mobile", "Sec-Ch-Ua-Platform", "X-Goog-Api-Client",
		"Cache-Control", "Pragma", "Range", "If-Range",
		"If-Match", "If-None-Match", "If-Modified-Since", "If-Unmodified-Since",
		"Connection", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding",
		"Content-Length", "Content-Type", "Date", "Expect", "Max-Forwards", "Priority", "Purpose", "Sec-Purpose", "Via":
		return false
	case "X-Request-Id", "X-Correlation-Id", "X-Amzn-Trace-Id", "Uber-Trace-Id": // end like those below, and are too common to compare
		return false
	case baggage: // by its members: see ofTrace
		return false
	case "X-Forwarded-For", "X-Real-Ip", "X-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", // a proxy's, other for each of its clients
		"Cf-Ray", "Cdn-Loop", "X-Amz-Cf-Id", "X-Azure-Ref", "X-Varnish":
		return false
	case "Traceparent", "Tracestate", "B3", "X-B3-Traceid", "X-B3-Spanid", "X-B3-Parentspanid", "X-B3-Sampled", "X-B3-Flags",
		"X-Cloud-Trace-Context", "Grpc-Trace-Bin", "Sentry-Trace", "Newrelic", "Elastic-Apm-Traceparent", "X-Dynatrace", "Sw8", "L5d-Ctx-Trace",
		"X-Datadog-Trace-Id", "X-Datadog-Parent-Id", "X-Datadog-Sampling-Priority", "X-Datadog-Origin", "X-Datadog-Tags",
		"Ot-Tracer-Traceid", "Ot-Tracer-Spanid", "Ot-Tracer-Sampled", "X-Instana-T", "X-Instana-S", "X-Instana-L":
		return false
	case "Amz-Sdk-Invocation-Id", "Amz-Sdk-Request", "X-Fapi-Interaction-Id", "X-Goog-Gcs-Idempotency-Token", "X-Stripe-Client-Telemetry",
		"X-Attempt", "X-Retry", "X-Request-Start", "X-Queue-Start", "X-Request-Timestamp", "X-Envoy-Expected-Rq-Timeout-Ms":
		return false
	}
	for _, end := range [...]string{
		"Request-Id", "Requestid", "Correlation-Id", "Correlationid", "Trace-Id", "Traceid", "Span-Id", "Spanid",
		"Idempotency-Key", "Retry-Count", "Retry-Attempt", "Attempt-Count", "Attempt-Number", "Timeout", "Deadline",
	} {
		if before, ok := strings.CutSuffix(name, end); ok && (before == "" || before[len(before)-1] == '-') {
			return false
		}
	}
	return true
}

const baggage = "Baggage"

// ofTrace reports whether all that Baggage (W3C Baggage section 3) carries is Sentry's, which is about the trace and new in each.
// What others put there is as likely the user or the tenant.
func ofTrace(values []string) bool {
	for _, value := range values {
		for member := range strings.SplitSeq(value, ",") {
			if member = trim(member); member != "" && !strings.HasPrefix(member, "sentry-") {
				return false
			}
		}
	}
	return true
}
