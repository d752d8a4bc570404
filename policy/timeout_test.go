package policy_test

import (
	"math"
	"math/big"
	"reflect"
	"testing"
	"time"

	"github.com/watertight-go/watertight/policy"
)

func TestExtensionIsSizeOverThroughput(t *testing.T) {
	for _, test := range []struct {
		bytes, throughput int64
		want              time.Duration
	}{
		{8 << 10, 8 << 10, time.Second},
		{1 << 30, 8 << 10, (1 << 17) * time.Second},
		{1, 1000, time.Millisecond},
		{1, 3, 333_333_333},
		{1, 1 << 40, 0},
		{1_000_000_007, 1000, 1_000_000_007 * time.Millisecond},
		{1 << 53, 1<<53 + 1, 999_999_999},
		{0, 8 << 10, 0},
		{-1, 8 << 10, 0},
		{math.MinInt64, 8 << 10, 0},
		{1 << 30, 0, 0},
		{1 << 30, -1, 0},
		{math.MaxInt64, math.MaxInt64, time.Second},
		{math.MaxInt64 - 1, math.MaxInt64, time.Second - 1},
	} {
		if got := (policy.Timeout{MinThroughput: test.throughput}).Extension(test.bytes); got != test.want {
			t.Errorf("%d bytes at %d B/s extend by %v, want %v", test.bytes, test.throughput, got, test.want)
		}
	}
}

// It is added to Attempt and Total: it must leave room for them, and more bytes
// must never earn less.
func TestExtensionSaturatesWithoutOverflow(t *testing.T) {
	for _, throughput := range []int64{1, 3, 8 << 10} {
		timeout := policy.Timeout{MinThroughput: throughput}
		last := time.Duration(0)
		for shift := range 63 {
			d := timeout.Extension(math.MaxInt64 >> (62 - shift))
			if d < last || d > math.MaxInt64/4 {
				t.Errorf("%d bytes at %d B/s extend by %v, half of them by %v", int64(math.MaxInt64)>>(62-shift), throughput, d, last)
			}
			last = d
		}
		if last != math.MaxInt64/4 && throughput < 8<<10 {
			t.Errorf("the largest transfer at %d B/s extends by %v", throughput, last)
		}
	}
}

func FuzzExtension(f *testing.F) {
	f.Add(int64(8<<10), int64(8<<10))
	f.Add(int64(math.MaxInt64), int64(1))
	f.Add(int64(math.MaxInt64), int64(math.MaxInt64))
	f.Fuzz(func(t *testing.T, bytes, throughput int64) {
		want := new(big.Int)
		if bytes > 0 && throughput > 0 {
			want.Mul(big.NewInt(bytes), big.NewInt(int64(time.Second)))
			want.Div(want, big.NewInt(throughput))
			if most := big.NewInt(math.MaxInt64 / 4); want.Cmp(most) > 0 {
				want = most
			}
		}
		if got := (policy.Timeout{MinThroughput: throughput}).Extension(bytes); int64(got) != want.Int64() {
			t.Errorf("%d bytes at %d B/s extend by %v, want %v", bytes, throughput, got, time.Duration(want.Int64()))
		}
	})
}

func TestTimeoutOfACallIsLaidOverThatOfItsHost(t *testing.T) {
	host := policy.Timeout{Connect: 1, TLSHandshake: 2, Read: 3, Attempt: 4, Total: 5, MinThroughput: 6, StreamIdle: 7}
	call := policy.Timeout{Connect: 11, TLSHandshake: 12, Read: 13, Attempt: 14, Total: 15, MinThroughput: 16, StreamIdle: 17}
	for _, test := range []struct {
		name             string
		call, host, want policy.Timeout
	}{
		{"an empty call takes the host's", policy.Timeout{}, host, host},
		{"a full call keeps its own", call, host, call},
		{"an empty host adds nothing", call, policy.Timeout{}, call},
		{
			"each field on its own", policy.Timeout{Read: 13, MinThroughput: 16}, host,
			policy.Timeout{Connect: 1, TLSHandshake: 2, Read: 13, Attempt: 4, Total: 5, MinThroughput: 16, StreamIdle: 7},
		},
		{
			"negative fields are zero",
			policy.Timeout{Connect: -1, TLSHandshake: -1, Read: -1, Attempt: -1, Total: -1, MinThroughput: -1, StreamIdle: math.MinInt64}, host,
			host,
		},
		{"negative fields are zero where the host has none", policy.Timeout{Total: -1, MinThroughput: -1}, policy.Timeout{}, policy.Timeout{}},
		{"the host's shadow stays", policy.Timeout{}, policy.Timeout{Shadow: true}, policy.Timeout{Shadow: true}},
		{"the call's shadow stays", policy.Timeout{Shadow: true}, policy.Timeout{}, policy.Timeout{Shadow: true}},
	} {
		if got := test.call.Or(test.host); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

// A new field that Or forgets would be lost for every call with a timeout of its
// own.
func TestTimeoutOrForgetsNoField(t *testing.T) {
	var host policy.Timeout
	v := reflect.ValueOf(&host).Elem()
	for i := range v.NumField() {
		if f := v.Field(i); f.CanInt() {
			f.SetInt(int64(i + 1))
		} else {
			f.SetBool(true)
		}
	}
	if got := (policy.Timeout{}).Or(host); got != host {
		t.Errorf("%+v, want %+v", got, host)
	}
}
