package transport

import (
	"errors"
	"net/url"
	"strings"

	"github.com/watertight-go/watertight/internal/hostname"
)

// hostKey identifies a host's state.
type hostKey struct{ scheme, name, port string }

func (k hostKey) String() string {
	if strings.IndexByte(k.name, ':') >= 0 {
		return "[" + k.name + "]:" + k.port
	}
	return k.name + ":" + k.port
}

// keyOf normalises a URL's scheme and authority; it does not allocate for names
// that are in their normal form.
func keyOf(u *url.URL) (hostKey, error) {
	if strings.IndexByte(u.Host, '@') >= 0 { // made by hand: it may hold a password
		return hostKey{}, errors.New("host: has userinfo, which belongs in URL.User")
	}
	name, port, err := hostname.Of(u)
	if err != nil {
		return hostKey{}, err
	}
	return hostKey{u.Scheme, name, port}, nil
}
