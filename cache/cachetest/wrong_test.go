package cachetest_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/watertight-go/watertight/cache/cachetest"
)

// wrap is what TestRoundTripper is given.
type wrap func(t *testing.T, base http.RoundTripper) http.RoundTripper

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

type trueKey struct{}

// blinded is a good cache that sees another request than is made and sent.
func blinded(blind func(*http.Request)) wrap {
	return func(t *testing.T, base http.RoundTripper) http.RoundTripper {
		inner := stack(t, roundTripper(func(seen *http.Request) (*http.Response, error) {
			sent := seen.Context().Value(trueKey{}).(*http.Request).Clone(seen.Context())
			for _, name := range []string{"If-None-Match", "If-Modified-Since"} {
				if values := seen.Header[name]; values != nil {
					sent.Header[name] = values
				}
			}
			return base.RoundTrip(sent)
		}))
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			seen := req.Clone(context.WithValue(req.Context(), trueKey{}, req))
			if seen.Header == nil {
				seen.Header = http.Header{}
			}
			blind(seen)
			resp, err := inner.RoundTrip(seen)
			if resp != nil {
				resp.Request = req
			}
			return resp, err
		})
	}
}

func without(names ...string) wrap {
	return blinded(func(req *http.Request) {
		for _, name := range names {
			req.Header.Del(name)
		}
	})
}

// deceived is a good cache that is shown other answers than there were.
func deceived(deceive func(*http.Response)) wrap {
	return func(t *testing.T, base http.RoundTripper) http.RoundTripper {
		return stack(t, roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(req)
			if err == nil {
				deceive(resp)
			}
			return resp, err
		}))
	}
}

func lacking(names ...string) wrap {
	return deceived(func(resp *http.Response) {
		for _, name := range names {
			resp.Header.Del(name)
		}
	})
}

func saying(old, new string) wrap {
	return deceived(func(resp *http.Response) {
		for i, line := range resp.Header["Cache-Control"] {
			resp.Header["Cache-Control"][i] = strings.ReplaceAll(line, old, new)
		}
	})
}

// spoiling is a good cache whose answers are spoilt on their way to the caller.
func spoiling(spoil func(*http.Request, *http.Response)) wrap {
	return func(t *testing.T, base http.RoundTripper) http.RoundTripper {
		inner := stack(t, base)
		return roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := inner.RoundTrip(req)
			if err == nil {
				spoil(req, resp)
			}
			return resp, err
		})
	}
}

// endless is a body whose errors are taken for an end.
type endless struct{ io.ReadCloser }

func (e endless) Read(p []byte) (int, error) {
	n, err := e.ReadCloser.Read(p)
	if err != nil && err != http.ErrBodyReadAfterClose {
		err = io.EOF
	}
	return n, err
}

// naive keeps every answer by its path for ever, be it cut or not, unless it is failed by the network.
func naive(_ *testing.T, base http.RoundTripper) http.RoundTripper {
	type kept struct {
		resp http.Response
		text []byte
	}
	var mu sync.Mutex // guards all
	all := map[string]kept{}
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		mu.Lock()
		old, ok := all[req.URL.Path]
		mu.Unlock()
		if !ok {
			resp, err := base.RoundTrip(req)
			if err != nil {
				return nil, err
			}
			text, _ := io.ReadAll(resp.Body)
			old = kept{*resp, text}
			mu.Lock()
			all[req.URL.Path] = old
			mu.Unlock()
		}
		resp := old.resp
		resp.Header = resp.Header.Clone()
		resp.Body = io.NopCloser(bytes.NewReader(old.text))
		return &resp, nil
	})
}

// forgetful stores nothing.
func forgetful(_ *testing.T, base http.RoundTripper) http.RoundTripper { return base }

// wrongCaches break rules, some of which are named beside them.
var wrongCaches = map[string]struct {
	wrap  wrap
	rules []string
}{
	"stores nothing": {forgetful, []string{"FirstAnswersAreReused", "WholeBodiesAreStored", "DecodedBodiesAreStored", "EmptyBodiesAreStored", "HeadIsAnsweredFromGet",
		"RangesAreCutFromTheWhole", "OnlyIfCachedMakesNoContact", "HugeMaxAgeSaturates", "BodiesAreReadApart"}},
	"stores all for ever": {naive, []string{"FreshUntilItsLifetimeEnds", "DelayCountsAsAge", "URIsAreApart", "WritesInvalidate", "WritesInvalidateForEveryone", "LocationsAreInvalidated",
		"WritesAreNotStored", "GoneIsNotMasked", "NoStoreIsNeverServed", "RequestNoStoreIsHeeded", "VaryStarMatchesNothing", "MalformedVaryMatchesNothing", "HugeVaryIsHeeded",
		"ContradictionsAreReadStrictly", "MalformedMaxAgeIsNone", "InvalidExpiresIsThePast", "RequestDirectivesAreHeeded", "NotModifiedMerges", "HeadIsNoAnswerToGet",
		"OlderNeverReplacesNewer", "LateNotModifiedRevivesNothing", "GetBegunBeforeAWriteIsNotStored", "GetReadAcrossAWriteIsNotStored", "GetWithinAWriteIsNotKept", "EarlyCloseIsNotStored",
		"BodiesAreStreamed", "GoneCallersStoreNothing", "PreconditionsReachTheOrigin", "ResponsesNameTheirRequest", "GetWithBodyIsNotStored", "OddRangesAreNotCut"}},

	"does not see Authorization": {without("Authorization"), []string{"AuthorizationSeparates", "NobodyGetsAnothers"}},
	"does not see Cookie":        {without("Cookie"), []string{"CookieSeparates"}},
	"does not see X-Api-Key":     {without("X-Api-Key"), []string{"APIKeySeparates"}},
	"does not see userinfo":      {blinded(func(req *http.Request) { req.URL.User = nil }), []string{"UserinfoSeparates"}},
	"does not see Host":          {blinded(func(req *http.Request) { req.Host = "" }), []string{"HostSeparates"}},
	"does not see Opaque":        {blinded(func(req *http.Request) { req.URL.Opaque = "" }), []string{"OpaqueURIsAreApart"}},
	"does not see upgrades":      {without("Connection", "Upgrade"), []string{"UpgradesReachTheOrigin"}},
	"does not see lower case":    {blinded(func(req *http.Request) { delete(req.Header, "authorization") }), []string{"SpellingSeparates"}},
	"does not see queries":       {blinded(func(req *http.Request) { req.URL.RawQuery = "" }), []string{"URIsAreApart"}},
	"does not see overrides":     {without("X-Http-Method-Override"), []string{"MethodOverrideBypasses"}},
	"does not see conditions":    {without("If-None-Match", "If-Modified-Since", "If-Match", "If-Unmodified-Since"), []string{"CallersConditionsAreTheirOwn", "PreconditionsReachTheOrigin", "HeadIsValidatedToo"}},
	"does not see If-Range":      {without("If-Range"), []string{"IfRangeNeedsAStrongMatch", "IfRangeDatesMayBeWeak"}},
	"does not see ranges":        {without("Range"), []string{"RangesAreCutFromTheWhole"}},
	"does not see codings":       {without("Accept-Encoding"), []string{"GzipIsForWhoAskedForIt"}},
	"does not see directives": {without("Cache-Control", "Pragma"), []string{"RequestDirectivesAreHeeded", "RequestNoStoreIsHeeded", "OnlyIfCachedMakesNoContact",
		"UnstorableEndsTheOlder", "GoneIsNotMasked"}},
	"does not see bodies": {blinded(func(req *http.Request) { req.Body = nil }), []string{"GetWithBodyIsNotStored"}},
	"does not see writes": {blinded(func(req *http.Request) {
		if req.Method != http.MethodGet && req.Method != http.MethodHead {
			req.Method = http.MethodOptions
		}
	}), []string{"WritesInvalidate", "WritesInvalidateForEveryone", "LocationsAreInvalidated", "GetBegunBeforeAWriteIsNotStored", "GetReadAcrossAWriteIsNotStored",
		"GetWithinAWriteIsNotKept", "ValidationAcrossAWriteIsNotStored", "RefreshAcrossAWriteIsNotStored", "NobodyGetsAnothers"}},
	"takes a HEAD for a GET": {blinded(func(req *http.Request) {
		if req.Method == http.MethodHead {
			req.Method = http.MethodGet
		}
	}), []string{"HeadIsNoAnswerToGet"}},

	"does not see Vary": {lacking("Vary"), []string{"VariantsAreApart", "AbsentMatchesOnlyAbsent", "ManyVariantsAreNotMixed", "VaryIsAboutTheRequestAsSent", "MalformedVaryMatchesNothing", "HugeVaryIsHeeded"}},
	"keeps what had a Vary": {deceived(func(resp *http.Response) {
		if resp.Header.Get("Vary") != "X-A" {
			resp.StatusCode = http.StatusTooManyRequests
		}
	}), []string{"OlderVariantsStayHidden"}},
	"takes any failure for an answer": {deceived(func(resp *http.Response) {
		if resp.StatusCode == 412 || resp.StatusCode == 416 || resp.StatusCode == 417 {
			resp.StatusCode = http.StatusNotFound
		}
	}), []string{"AnswersToConditionsAreForWhoMadeThem"}},
	"does not see Age":               {lacking("Age"), []string{"AgeIsFromTheOriginOn", "HugeAgeIsStale"}},
	"does not see Date":              {lacking("Date"), []string{"OldDatesAreOld", "DatesAreKept"}},
	"does not see Expires":           {lacking("Expires"), []string{"InvalidExpiresIsThePast", "DatesAreKept"}},
	"does not see Connection":        {lacking("Connection"), []string{"ConnectionFieldsAreNotStored"}},
	"does not see validators":        {lacking("Etag", "Last-Modified"), []string{"NotModifiedMerges", "HeadEndsWhatItContradicts", "RequestsAreNotChanged"}},
	"does not see Set-Cookie":        {lacking("Set-Cookie"), []string{"SetCookieIsKept"}},
	"does not see no-store":          {saying("no-store", "x"), []string{"NoStoreIsNeverServed", "ContradictionsAreReadStrictly"}},
	"does not see no-cache":          {saying("no-cache", "x"), []string{"NoCacheIsNeverServedUnasked", "FieldsOfNoCacheAreNotServed"}},
	"does not see must-revalidate":   {saying("must-revalidate", "x"), []string{"MustRevalidateIsNeverServedStale"}},
	"is for all":                     {saying("s-maxage", "max-age"), []string{"SharedDirectivesGiveNothing"}},
	"mends lifetimes":                {saying("max-age=-1", "max-age=60"), []string{"MalformedMaxAgeIsNone"}},
	"does not know upper case":       {saying("MAX-AGE", "x"), []string{"DirectivesAreCaseInsensitive"}},
	"counts lifetimes in 31 bits":    {saying("4294967296", "0"), []string{"HugeMaxAgeSaturates"}},
	"thinks a minute has 61 seconds": {saying("max-age=60", "max-age=61"), []string{"AgeBeginsBeforeTheBody", "DelayCountsAsAge", "FutureDatesGiveNothing", "MustRevalidateIsNeverServedStale"}},
	"has a lifetime for all": {deceived(func(resp *http.Response) {
		if resp.Header.Get("Cache-Control") == "" {
			resp.Header.Set("Cache-Control", "max-age=60")
		}
	}), []string{"StatusesWithoutLifetimeAreNotReused"}},
	"takes what is huge for a failure": {deceived(func(resp *http.Response) {
		if resp.ContentLength < 0 || resp.ContentLength > 1<<20 {
			resp.StatusCode = http.StatusTooManyRequests
		}
	}), []string{"HugeBodiesEndTheOlder"}},
	"takes every 304 for a yes": {deceived(func(resp *http.Response) {
		if resp.StatusCode == http.StatusNotModified {
			resp.Header.Del("Cache-Control")
		}
	}), []string{"NotModifiedMayRevoke", "NotModifiedMerges"}},
	"takes a part for the whole": {deceived(func(resp *http.Response) {
		if resp.StatusCode == http.StatusPartialContent {
			resp.StatusCode = http.StatusOK
		}
	}), []string{"PartsAreNotStoredAsTheWhole"}},
	"takes any 304 for its own": {deceived(func(resp *http.Response) {
		if resp.StatusCode == http.StatusNotModified {
			resp.Header.Set("Etag", `"1"`)
		}
	}), []string{"NotModifiedOfAnotherIsNotMerged"}},
	"takes what is lost for an end": {deceived(func(resp *http.Response) {
		resp.ContentLength, resp.Close, resp.TransferEncoding = -1, false, []string{"chunked"}
		resp.Body = endless{resp.Body}
	}), []string{"ShortBodiesAreNotStored", "CutChunksAreNotStored", "UnframedBodiesAreNotStored", "GoneCallersStoreNothing"}},
	"loses trailers": {deceived(func(resp *http.Response) {
		if resp.Trailer != nil {
			resp.Trailer = nil
			resp.Header.Del("Trailer")
			resp.Body = io.NopCloser(strings.NewReader("with a trailer"))
		}
	}), []string{"TrailersAreNotLost"}},
	"takes errors for answers": {func(t *testing.T, base http.RoundTripper) http.RoundTripper {
		return stack(t, roundTripper(func(req *http.Request) (*http.Response, error) {
			resp, err := base.RoundTrip(req)
			if err != nil {
				resp, err = &http.Response{StatusCode: 502, Header: http.Header{"Cache-Control": {"max-age=60"}}, Body: http.NoBody}, nil
			}
			return resp, err
		}))
	}, []string{"FailuresAreNotStored"}},

	"has labels of its own":    {spoiling(func(_ *http.Request, resp *http.Response) { resp.Header.Add("Cache-Status", "hit from here,") }), []string{"LabelsCanBeRead"}},
	"sets Age anew":            {spoiling(func(_ *http.Request, resp *http.Response) { resp.Header.Set("Age", "0") }), []string{"AgeIsFromTheOriginOn"}},
	"joins lines":              {spoiling(func(_ *http.Request, resp *http.Response) { join(resp.Header) }), []string{"LinesStayApart"}},
	"cuts headers":             {spoiling(func(_ *http.Request, resp *http.Response) { resp.Header.Del("X-Big") }), []string{"HugeHeadersPass"}},
	"changes the request":      {spoiling(func(req *http.Request, _ *http.Response) { req.Method = "GET" }), []string{"RequestsAreNotChanged"}},
	"names another request":    {spoiling(func(req *http.Request, resp *http.Response) { resp.Request = req.Clone(req.Context()) }), []string{"ResponsesNameTheirRequest"}},
	"lets a 304 change length": {spoiling(func(_ *http.Request, resp *http.Response) { resp.Header.Set("Content-Length", "999") }), []string{"NotModifiedSaysNothingOfTheBody"}},
	"cuts what it was given whole": {spoiling(func(req *http.Request, resp *http.Response) {
		if req.Header.Get("Range") != "" && resp.StatusCode == http.StatusOK {
			resp.Body = io.NopCloser(strings.NewReader("0"))
		}
	}), []string{"WholesToRangesAreWhole"}},
	"shares its headers": {func(t *testing.T, base http.RoundTripper) http.RoundTripper {
		var mu sync.Mutex // guards first
		first := map[string][]string{}
		return spoiling(func(req *http.Request, resp *http.Response) {
			mu.Lock()
			defer mu.Unlock()
			if first[req.URL.Path] == nil {
				first[req.URL.Path] = resp.Header["X-A"]
			}
			resp.Header["X-A"] = first[req.URL.Path]
		})(t, base)
	}, []string{"HeadersAreTheCallers", "HitsShareNothing"}},
}

func join(h http.Header) {
	for name, values := range h {
		h[name] = []string{strings.Join(values, ",")}
	}
}

func TestEachRuleCanBeBroken(t *testing.T) {
	if name := os.Getenv(wrong); name != "" {
		cachetest.TestRoundTripper(t, wrongCaches[name].wrap)
		return
	}
	rules := map[string][]string{}
	for name, w := range wrongCaches {
		rules[name] = w.rules
	}
	bites(t, rules, cachetest.Rules())
}
