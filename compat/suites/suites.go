package main

// suite is a module whose own tests are run.
type suite struct {
	module   string
	packages []string // patterns below the module; empty: all of it
	skip     string   // a regular expression of tests that are not run
	full     bool     // only with -full: it takes long

	// untouched says why nothing of it goes through the stack; empty: something must.
	untouched string

	// explained are the tests that differ by intent, and why: each kind is in the
	// README's limits.
	explained map[string]string
}

// What explains a test that differs.
const (
	once    = "its server fails once, and the call is repeated before its caller knows"
	failing = "its server fails every one of dozens of calls: the breaker opens"
	slow    = "its server keeps dozens of calls waiting beyond SlowCall: the breaker opens"
)

// suites are the modules, alphabetically.
var suites = []suite{
	{module: "connectrpc.com/connect", packages: []string{"."}},
	{module: "github.com/andygrunwald/go-jira", full: true},
	{module: "github.com/cavaliergopher/grab/v3"},
	{module: "github.com/cloudflare/cloudflare-go", packages: []string{"."}, full: true,
		skip: "Pages"}, // its patterns for a ServeMux have spaces: a panic
	{module: "github.com/coder/websocket", packages: []string{"."}, skip: "Autobahn|TestWasm|TestConn|TestGrace"},
	{module: "github.com/dghubble/sling"},
	{module: "github.com/digitalocean/godo", packages: []string{"."}, full: true},
	{module: "github.com/elastic/elastic-transport-go/v8", full: true},
	{module: "github.com/getsentry/sentry-go", packages: []string{".", "http", "internal/..."}, full: true},
	{module: "github.com/go-chi/chi/v5", full: true,
		explained: each(slow, "TestThrottleTriggerGatewayTimeout")},
	{module: "github.com/go-openapi/runtime", packages: []string{"client/...", "."}, full: true},
	{module: "github.com/go-resty/resty/v2", packages: []string{"."},
		explained: each(failing, "TestRequestGH917")},
	{module: "github.com/google/go-containerregistry", packages: []string{"pkg/v1/remote/...", "pkg/registry", "pkg/v1/google"},
		explained: each(once, "TestTransportSelectionBearerAuthError")},
	{module: "github.com/google/go-github/v69", packages: []string{"github"}},
	{module: "github.com/gregjones/httpcache", packages: []string{"."}},
	{module: "github.com/h2non/gock"},
	{module: "github.com/hasura/go-graphql-client", full: true,
		skip: "TestGraphqlWS|TestSubscription_WithRetryStatusCodes"}, // they wait for a server that is not there
	{module: "github.com/jarcoal/httpmock", full: true, untouched: "its tests put a transport of its own in the place of the stack"},
	{module: "github.com/launchdarkly/eventsource", full: true, // its server fails once, and the test waits for ever to be told
		skip: "TestStreamErrorHandlerCanAllowRetryOfInitialConnectionAfterNetworkError",
		explained: each(once, "TestStreamCanRetryInitialConnectionUntilFiniteTimeout",
			"TestStreamDoesNotRetryInitialConnectionByDefaultAfterNetworkError",
			"TestStreamErrorHandlerCanPreventRetryOfInitialConnection")},
	{module: "github.com/mattn/go-mastodon", packages: []string{"."}, full: true,
		explained: each(once, "TestGetAccountCurrentUser", "TestGetBlocks", "TestGetEndorsements", "TestGetFollowRequests",
			"TestGetFollowedTags", "TestGetInstance", "TestGetInstanceActivity", "TestGetInstanceMore", "TestGetInstancePeers",
			"TestGetMutes", "TestStreaming")},
	{module: "github.com/minio/minio-go/v7", full: true},
	{module: "github.com/PagerDuty/go-pagerduty", packages: []string{"."}},
	{module: "github.com/prometheus/client_golang", packages: []string{"api/...", "prometheus/promhttp", "prometheus/push"}},
	{module: "github.com/r3labs/sse/v2"},
	{module: "github.com/sashabaranov/go-openai"},
	{module: "github.com/slack-go/slack", packages: []string{"."}, full: true},
	{module: "github.com/studio-b12/gowebdav", packages: []string{"."}},
	{module: "github.com/tmaxmax/go-sse"},
	{module: "github.com/ybbus/jsonrpc/v3"},
	{module: "gitlab.com/gitlab-org/api/client-go", full: true},
	{module: "go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"},
	{module: "golang.org/x/crypto", packages: []string{"acme/..."}, full: true},
	{module: "golang.org/x/oauth2", packages: []string{".", "internal", "clientcredentials", "jwt", "authhandler"}},
	{module: "oras.land/oras-go/v2", packages: []string{"registry/..."}, full: true},
}

// each is one explanation of several tests.
func each(why string, tests ...string) map[string]string {
	explained := map[string]string{}
	for _, t := range tests {
		explained[t] = why
	}
	return explained
}
