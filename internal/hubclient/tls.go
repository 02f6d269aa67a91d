package hubclient

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"
)

const pinPrefix = "sha256:"

// ErrPinMismatch says that the server's key is not the pinned one. It comes
// wrapped together with ErrUnavailable.
var ErrPinMismatch = errors.New("the hub's key does not match the pin")

// Pin is "sha256:" and the base64 of the SHA-256 of the certificate's public
// key (SubjectPublicKeyInfo): it survives a renewal that keeps the key.
func Pin(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return pinPrefix + base64.StdEncoding.EncodeToString(sum[:])
}

// FetchPin connects to the hub at the URL and returns the pin of the key it
// shows. Nothing vouches for the key: compare it with what the hub logged.
func FetchPin(ctx context.Context, hubURL string) (string, error) {
	base, err := parseURL(hubURL, false)
	if err != nil {
		return "", err
	}
	address := base.Host
	if base.Port() == "" {
		address = net.JoinHostPort(base.Hostname(), "443")
	}
	dialer := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: 10 * time.Second},
		Config: &tls.Config{
			MinVersion: tls.VersionTLS12,
			ServerName: base.Hostname(),
			// The pin of an unknown key is what is asked for; nothing is sent.
			InsecureSkipVerify: true, //nolint:gosec // no data goes over this connection
		},
	}
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return "", fmt.Errorf("%w: fetch the pin of %s: %w", ErrUnavailable, base.Host, err)
	}
	defer func() { _ = conn.Close() }()
	tlsConn, ok := conn.(*tls.Conn)
	if !ok || len(tlsConn.ConnectionState().PeerCertificates) == 0 {
		return "", fmt.Errorf("%w: %s shows no certificate", ErrUnavailable, base.Host)
	}
	return Pin(tlsConn.ConnectionState().PeerCertificates[0]), nil
}

// newTransport connects to the server at a host, which is for messages alone.
func newTransport(host, pin string, bundle []byte) (*http.Transport, error) {
	config, err := tlsConfig(host, pin, bundle)
	if err != nil {
		return nil, err
	}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext,
		TLSClientConfig:     config,
		TLSHandshakeTimeout: 10 * time.Second,
		IdleConnTimeout:     90 * time.Second,
		ForceAttemptHTTP2:   true,
		// The hub writes a comment every 15 s on an open watch. A connection
		// that is silent for longer is probed and then given up, so that a
		// watch over a dead network ends instead of waiting for ever.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 20 * time.Second, PingTimeout: 10 * time.Second},
	}, nil
}

func tlsConfig(host, pin string, bundle []byte) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(bundle) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(bundle) {
			return nil, errors.New("the CA bundle for the hub holds no certificate: give it PEM certificates")
		}
	}
	if pin == "" {
		return config, nil
	}
	want, err := parsePin(pin)
	if err != nil {
		return nil, err
	}
	// The pin names the one key that is trusted, so without a bundle no chain
	// is needed; VerifyConnection still runs on every connection.
	config.InsecureSkipVerify = len(bundle) == 0
	config.VerifyConnection = func(state tls.ConnectionState) error {
		if len(state.PeerCertificates) == 0 {
			return fmt.Errorf("%w: the server shows no certificate", ErrPinMismatch)
		}
		have := sha256.Sum256(state.PeerCertificates[0].RawSubjectPublicKeyInfo)
		if subtle.ConstantTimeCompare(have[:], want) != 1 {
			return fmt.Errorf("%w: the server at %s has %s", ErrPinMismatch, host, Pin(state.PeerCertificates[0]))
		}
		return nil
	}
	return config, nil
}

func parsePin(pin string) ([]byte, error) {
	encoded, found := strings.CutPrefix(pin, pinPrefix)
	sum, err := base64.StdEncoding.DecodeString(encoded)
	if !found || err != nil || len(sum) != sha256.Size {
		return nil, fmt.Errorf("the pin %q is not sha256: and 44 base64 characters: `cloop hub pin` prints it", pin)
	}
	return sum, nil
}
