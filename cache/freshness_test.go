package cache_test

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watertight-go/watertight/cache"
)

func TestServesForAsLongAsIsGrantedAndNoLonger(t *testing.T) {
	hour, day := cache.Window{MaxStale: time.Hour}, 24*time.Hour
	for _, test := range []struct {
		name   string
		stored string // Cache-Control of the answer
		asked  string // Cache-Control of the request
		window cache.Window
		last   time.Duration // the last moment at which it is served; -1: never
	}{
		{"lifetime only", "max-age=60", "", none, 60*time.Second - 1},
		{"no lifetime, MaxStale", "", "", hour, time.Hour},
		{"lifetime and MaxStale", "max-age=60", "", hour, time.Hour + time.Minute},
		{"origin's grant", "max-age=60, stale-if-error=30", "", none, 90 * time.Second},
		{"origin's grant comes before MaxStale", "max-age=60, stale-if-error=30", "", hour, 90 * time.Second},
		{"origin forbids", "max-age=60, stale-if-error=0", "", hour, 60*time.Second - 1},
		{"origin forbids what the request grants", "max-age=60, stale-if-error=0", "stale-if-error=60", hour, 60*time.Second - 1},
		{"request forbids", "max-age=60, stale-if-error=30", "stale-if-error=0", hour, 60*time.Second - 1},
		{"request grants more than all", "max-age=60, stale-if-error=30", "stale-if-error=100", hour, 160 * time.Second},
		{"request's max-stale", "max-age=60, stale-if-error=30", "max-stale=100", hour, 160 * time.Second},
		{"stale-if-error comes before max-stale", "max-age=60", "max-stale=100, stale-if-error=10", hour, 70 * time.Second},
		{"default limit", "max-age=60, stale-if-error=999999999", "", none, day + time.Minute},
		{"limit", "max-age=60, stale-if-error=999999999", "", cache.Window{StaleLimit: time.Minute}, 2 * time.Minute},
		{"limit binds the owner", "", "", cache.Window{MaxStale: math.MaxInt64}, day},
		{"bare max-stale", "max-age=60", "max-stale", none, day + time.Minute},
		{"negative MaxStale", "max-age=60", "", cache.Window{MaxStale: -1}, 60*time.Second - 1},
		{"must-revalidate", "max-age=60, must-revalidate, stale-if-error=60", "", hour, 60*time.Second - 1},
		{"must-revalidate beats the request", "max-age=60, must-revalidate", "max-stale=60", hour, 60*time.Second - 1},
		{"proxy-revalidate is for others", "max-age=60, proxy-revalidate", "", hour, time.Hour + time.Minute},
		{"no-cache in the request", "max-age=60", "no-cache", hour, -1},
		{"no-cache, but stale-if-error", "max-age=60", "no-cache, stale-if-error=10", hour, 70 * time.Second},
		{"max-age=0 in the request", "max-age=60", "max-age=0", hour, -1},
		{"max-age in the request", "max-age=60", "max-age=20", hour, 20 * time.Second},
		{"a long max-age wants nothing stale", "max-age=60", "max-age=500", hour, 60*time.Second - 1},
		{"min-fresh", "max-age=60", "min-fresh=20", hour, 40 * time.Second},
		{"no-store in the request", "max-age=60", "no-store", hour, -1},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t)
				var fields, asks []string
				if test.stored != "" {
					fields = []string{"Cache-Control", test.stored}
				}
				if test.asked != "" {
					asks = []string{"Cache-Control", test.asked}
				}
				c.do(get(), answer(200, "hello", fields...), test.window)
				if c.store.Len() != 1 {
					t.Fatal("not stored")
				}
				if test.last >= 0 {
					time.Sleep(test.last)
					c.serves(t, "hello", get(asks...), test.window)
					time.Sleep(time.Nanosecond)
				}
				c.servesNothing(t, get(asks...), test.window)
			})
		})
	}
}

func TestAWindowWithoutMeasureDoesNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, forever := newClient(t), cache.Window{MaxStale: math.MaxInt64, StaleLimit: math.MaxInt64}
		c.do(get(), answer(200, "hello", "Cache-Control", "max-age=99999999999999999999"), forever)
		c.serves(t, "hello", get(), forever)
		time.Sleep(100 * 365 * 24 * time.Hour)
		c.serves(t, "hello", get(), forever)
	})
}

func TestPragmaCountsOnlyWithoutCacheControl(t *testing.T) {
	c := newClient(t)
	c.do(get(), answer(200, "hello"), minutes)
	c.servesNothing(t, get("Pragma", "x, No-Cache"), minutes)
	c.serves(t, "hello", get("Pragma", "no-cache", "Cache-Control", "min-vers=1"), minutes)
}

func TestAge(t *testing.T) {
	const now = "Sat, 01 Jan 2000 00:00:00 GMT" // when every bubble begins
	for _, test := range []struct {
		name   string
		fields []string
		delay  time.Duration
		want   time.Duration
	}{
		{"nothing said", nil, 0, 0},
		{"time on the way", nil, 3 * time.Second, 3 * time.Second},
		{"Age", []string{"Age", "100"}, 0, 100 * time.Second},
		{"Age and time on the way", []string{"Age", "100"}, 3 * time.Second, 103 * time.Second},
		{"Date in the past", []string{"Date", "Fri, 31 Dec 1999 23:58:20 GMT"}, 0, 100 * time.Second},
		{"Date in the future", []string{"Date", "Sat, 01 Jan 2000 01:00:00 GMT"}, 0, 0},
		{"the larger of the two", []string{"Date", "Fri, 31 Dec 1999 23:58:20 GMT", "Age", "7"}, 0, 100 * time.Second},
		{"Age that is none", []string{"Age", "-5", "Date", now}, 0, 0},
		{"first member of Age", []string{"Age", "5, 100"}, 0, 5 * time.Second},
		{"Date beyond reckoning", []string{"Date", "Mon, 01 Jan 0001 00:00:00 GMT"}, 0, (1 << 31) * time.Second},
		{"Age beyond reckoning", []string{"Age", "99999999999999999999999"}, 0, (1 << 31) * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t)
				req, resp := get(), answer(200, "hello", append(test.fields, "Cache-Control", "max-age=4294967296, stale-if-error=86400")...)
				x := c.Begin(req)
				time.Sleep(test.delay)
				c.read(c.Received(&x, req, resp, minutes), resp)
				info, ok := cache.FromResponse(c.mustFail(t, get(), failed, minutes))
				if !ok || info.Age != test.want {
					t.Errorf("age %v, want %v", info.Age, test.want)
				}
			})
		})
	}
}

func TestARefreshedEntryIsYoungAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		for range 2 {
			c.do(get(), answer(200, "hello", "Cache-Control", "max-age=60"), none)
			time.Sleep(50 * time.Second)
		}
		info, _ := cache.FromResponse(c.mustFail(t, get(), failed, none))
		if info.Age != 50*time.Second || info.Stale || info.TTL != 10*time.Second {
			t.Errorf("%+v", info)
		}
	})
}

func TestAnEntryPastItsWindowIsDroppedWhenTouched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.do(get(), answer(200, "hello"), minutes)
		c.servesNothing(t, get("Cache-Control", "no-cache"), minutes)
		if c.store.Len() != 1 {
			t.Error("dropped for one caller's taste")
		}
		time.Sleep(11 * time.Minute)
		c.servesNothing(t, get(), minutes)
		if c.store.Len() != 0 {
			t.Error("still there")
		}
	})
}
