package transport

import (
	"reflect"
	"testing"
)

// TestACallFitsItsSizeClass: the runtime hands out memory in classes, of which that of
// 896 bytes is the next smaller one to 1,024; it keeps 8 bytes of each for itself.
func TestACallFitsItsSizeClass(t *testing.T) {
	if size := reflect.TypeFor[call]().Size(); size > 896-8 {
		t.Errorf("a call takes %d bytes, want at most %d", size, 896-8)
	}
}
