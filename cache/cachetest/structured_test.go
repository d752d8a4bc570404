package cachetest

import (
	"fmt"
	"testing"
)

func TestListsAreReadStrictly(t *testing.T) {
	for _, test := range []struct {
		text, want string // of the items; empty: it cannot be read
	}{
		{`a`, `a map[]`},
		{`a; hit; ttl=-30;detail=x-y/z`, `a map[detail:x-y/z hit:true ttl:-30]`},
		{`"a \"b\" \\", *c/d:e;k="v"`, `a "b" \ map[], *c/d:e map[k:v]`},
		{"a ,\tb", `a map[], b map[]`},
		{`1, -2.5, ?1, ?0, :aGk=:;x`, `1 map[], -2.5 map[], true map[], false map[], [104 105] map[x:true]`},
		{`a;x=1;x=2`, `a map[x:2]`},
		{`999999999999999`, `999999999999999 map[]`},
		{`9999999999999999`, ``},
		{`1.`, ``}, {`1.2345`, ``}, {`1234567890123.1`, ``}, {`-`, ``}, {`--1`, ``},
		{`a,`, ``}, {`,a`, ``}, {`a,,b`, ``}, {`a b`, ``}, {`a;`, ``}, {`a;X`, ``}, {`a; x=`, ``}, {`a ;x`, ``}, {"\ta", ``},
		{`"a`, ``}, {`"a\b"`, ``}, {`"\`, ``}, {"\"\x7f\"", ``}, {`"é"`, ``}, {`?2`, ``}, {`:a`, ``}, {`:*:`, ``}, {`(a b)`, ``}, {`@1`, ``},
	} {
		list, err := parseList([]string{test.text})
		got := ""
		for i, item := range list {
			if i > 0 {
				got += ", "
			}
			got += fmt.Sprint(item.value, " ", item.params)
		}
		if got != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%q: %q, %v; want %q", test.text, got, err, test.want)
		}
	}
	if list, err := parseList(nil); len(list) > 0 || err != nil {
		t.Error(list, err)
	}
	if list, err := parseList([]string{"a;x", "b"}); len(list) != 2 || err != nil {
		t.Error(list, err)
	}
}

func TestMisusedLabelsAreFound(t *testing.T) {
	for text, good := range map[string]bool{
		"a; hit; ttl=1; detail=x": true, `"a b"; fwd=uri-miss; fwd-status=304; stored; collapsed=?0; key="k"`: true, "a": true, "a; x=1.5": true, "a; hit=?0; fwd=stale": true,
		"1; hit": false, "a; hit; fwd=stale": false, "a; hit=1": false, "a; fwd": false, `a; fwd="stale"`: false, "a; fwd=why": false,
		"a; ttl=1.5": false, "a; ttl": false, "a; fwd-status=99": false, "a; key=k": false, "a; stored=yes": false,
	} {
		list, err := parseList([]string{text})
		if err != nil || len(list) != 1 || (misused(list[0]) == "") != good {
			t.Errorf("%s: %v, %v", text, list, err)
		}
	}
}

func FuzzList(f *testing.F) {
	f.Add(`a; hit; ttl=-30, "b"; fwd=stale; fwd-status=503, :aGk=:;x=?1`)
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseList([]string{text})
		if err != nil && list != nil {
			t.Errorf("%q: %v and %v", text, list, err)
		}
		for _, i := range list {
			misused(i)
		}
	})
}
