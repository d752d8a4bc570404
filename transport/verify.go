package transport

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// untrusted marks an error of a verification of the peer that the base has beside
// that of crypto/tls, such as a pinned certificate. It is otherwise the error itself.
type untrusted struct{ error }

func (u untrusted) Unwrap() error { return u.error }
func (u untrusted) Timeout() bool { return timeoutOf(u.error) } // url.Error asks without unwrapping

// uncertified marks the error of a base that has no certificate for its peer.
type uncertified struct{ error }

func (u uncertified) Unwrap() error { return u.error }
func (u uncertified) Timeout() bool { return timeoutOf(u.error) }

// marked reports whether an error has the mark M.
func marked[M error](err error) bool {
	var mark M
	return errors.As(err, &mark)
}

// markVerification has what the functions of a base return told from errors of the
// network, which crypto/tls does not.
func markVerification(c *tls.Config) {
	if c == nil {
		return
	}
	c.VerifyConnection = distrusting(c.VerifyConnection)
	c.EncryptedClientHelloRejectionVerify = distrusting(c.EncryptedClientHelloRejectionVerify)
	if verify := c.VerifyPeerCertificate; verify != nil {
		c.VerifyPeerCertificate = func(raw [][]byte, chains [][]*x509.Certificate) error {
			return distrust(verify(raw, chains))
		}
	}
	if certify := c.GetClientCertificate; certify != nil {
		c.GetClientCertificate = func(asked *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := certify(asked)
			if err != nil {
				err = uncertified{err}
			}
			return cert, err
		}
	}
}

func distrusting(verify func(tls.ConnectionState) error) func(tls.ConnectionState) error {
	if verify == nil {
		return nil
	}
	return func(s tls.ConnectionState) error { return distrust(verify(s)) }
}

func distrust(err error) error {
	if err == nil {
		return nil
	}
	return untrusted{err}
}
