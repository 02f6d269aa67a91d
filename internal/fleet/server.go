package fleet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/go-git/go-git/v5/plumbing/transport"
	githttp "github.com/go-git/go-git/v5/plumbing/transport/http"

	"cloop.dev/cloop/internal/secret"
)

// Auth is how to reach a repository. The zero value is anonymous and trusts the
// system's certificates, which only does over https.
type Auth struct {
	// Username and Password are for basic authentication; a token often goes
	// into Password with any Username.
	Username string
	Password secret.String
	// Bearer is sent as a bearer token; it wins over Username and Password.
	Bearer secret.String
	// CABundle is PEM certificates that alone are trusted for the server. Empty:
	// the system's.
	CABundle []byte

	// Identity is the private key for ssh, as ssh-keygen or openssl writes it, and
	// Passphrase what it is encrypted with, if it is.
	Identity, Passphrase secret.String
	// KnownHosts are the keys of ssh servers that are trusted, in OpenSSH's form.
	KnownHosts []byte

	// Proxy that an https server is reached over; nil: the environment's, if it has one.
	Proxy *Proxy
}

// Proxy is an HTTP proxy, which tunnels to the server.
type Proxy struct {
	// Address is an http or https URL without user information.
	Address string
	// Username and Password are for basic authentication; both empty: none is asked for.
	Username string
	Password secret.String
}

// url is the proxy's with its credential. The error does not quote the address, which
// may hold one.
func (p *Proxy) url() (*url.URL, error) {
	at, err := url.Parse(p.Address)
	if err != nil || at.Scheme != "http" && at.Scheme != "https" || at.Host == "" || at.User != nil {
		return nil, &remedied{errors.New("the proxy's address is no URL of a proxy"), "give it as address: http://HOST:PORT, and the credential apart from it as username and password"}
	}
	if p.Username != "" || !p.Password.Empty() {
		at.User = url.UserPassword(p.Username, p.Password.Reveal())
	}
	return at, nil
}

func (p *Proxy) same(b *Proxy) bool {
	if p == nil || b == nil {
		return p == b
	}
	return p.Address == b.Address && p.Username == b.Username && p.Password.Equal(b.Password)
}

// Same says whether two are equal.
func (a Auth) Same(b Auth) bool {
	return a.Username == b.Username && a.Password.Equal(b.Password) && a.Bearer.Equal(b.Bearer) && bytes.Equal(a.CABundle, b.CABundle) &&
		a.Identity.Equal(b.Identity) && a.Passphrase.Equal(b.Passphrase) && bytes.Equal(a.KnownHosts, b.KnownHosts) && a.Proxy.same(b.Proxy)
}

// sent is of credentials what goes to the server and its proxy, and what must not be
// quoted when they speak.
func (a Auth) sent() secret.Sent {
	sent := secret.SentTo(a.Bearer, a.Identity, a.Passphrase).WithBasic(a.Username, a.Password)
	if a.Proxy != nil {
		sent = sent.WithBasic(a.Proxy.Username, a.Proxy.Password)
	}
	return sent
}

// server is where a repository is.
type server interface {
	// open begins a session, which is closed by whoever asked for it and ends with
	// the context.
	open(ctx context.Context) (transport.UploadPackSession, error)
}

// newServer prepares to reach the repository at a URL, and keeps what it has to
// write meanwhile in dir.
func newServer(dir, url string, auth Auth) (server, error) {
	at, err := parseURL(url)
	if err != nil {
		return nil, &remedied{err, "write the URL as https://HOST/PATH or ssh://USER@HOST/PATH and give the credential apart from it"}
	}
	if at.Scheme == "ssh" {
		return newSSHServer(dir, at, auth)
	}
	return newHTTPSServer(url, auth)
}

// IsSSH says whether a URL is one of ssh.
func IsSSH(raw string) bool {
	at, err := url.Parse(raw)
	return err == nil && at.Scheme == "ssh"
}

// CheckURL says what is wrong with a URL that a repository is to be read from; the
// error never quotes it, since it may hold a password.
func CheckURL(raw string) error {
	_, err := parseURL(raw)
	return err
}

// parseURL takes https and ssh: over plain http or git anyone on the way could
// hand us a fleet of their own.
func parseURL(raw string) (*url.URL, error) {
	u, err := url.Parse(raw)
	if err != nil {
		// url.Parse quotes its input.
		return nil, errors.New("the URL cannot be parsed")
	}
	_, password := u.User.Password()
	switch {
	case u.Scheme != "https" && u.Scheme != "ssh":
		return nil, fmt.Errorf("the scheme is %q, not https or ssh", u.Scheme)
	case u.Hostname() == "":
		return nil, errors.New("the URL has no host")
	case u.Scheme == "https" && u.User != nil:
		return nil, errors.New("the URL carries user information")
	case password:
		return nil, errors.New("the URL carries a password")
	case u.Scheme == "ssh" && strings.Trim(u.Path, "/") == "":
		return nil, errors.New("the URL has no path")
	}
	return u, nil
}

// parseEndpoint is parseURL where only https will do.
func parseEndpoint(raw string) (*transport.Endpoint, error) {
	u, err := parseURL(raw)
	if err != nil {
		return nil, err
	}
	if u.Scheme != "https" {
		return nil, fmt.Errorf("the scheme is %q, not https", u.Scheme)
	}
	return transport.NewEndpoint(raw)
}

// withoutUser is a URL as it is shown. Users of ssh are names; those of https may
// be tokens.
func withoutUser(raw string) string {
	u, err := url.Parse(raw)
	if err != nil {
		return "the repository"
	}
	if name := u.User.Username(); u.Scheme == "ssh" && name != "" {
		u.User = url.User(name)
	} else {
		u.User = nil
	}
	u.RawQuery = ""
	return u.String()
}

// httpsServer speaks Git's smart protocol over https.
type httpsServer struct {
	endpoint *transport.Endpoint
	auth     transport.AuthMethod
	client   *http.Client
}

func newHTTPSServer(url string, auth Auth) (server, error) {
	endpoint, err := parseEndpoint(url)
	if err != nil {
		return nil, err
	}
	method := authMethod(auth)
	proxy, err := proxyOf(auth.Proxy)
	if err != nil {
		return nil, err
	}
	client, err := httpClient(auth.CABundle, method != nil, proxy, auth.sent())
	if err != nil {
		return nil, &remedied{err, "give the CA bundle as PEM certificates"}
	}
	return httpsServer{endpoint: endpoint, auth: method, client: client}, nil
}

func (s httpsServer) open(context.Context) (transport.UploadPackSession, error) {
	return githttp.NewClient(s.client).NewUploadPackSession(s.endpoint, s.auth)
}

func authMethod(auth Auth) transport.AuthMethod {
	switch {
	case !auth.Bearer.Empty():
		return &githttp.TokenAuth{Token: auth.Bearer.Reveal()}
	case auth.Username != "" || !auth.Password.Empty():
		return &githttp.BasicAuth{Username: auth.Username, Password: auth.Password.Reveal()}
	default:
		return nil
	}
}

// remedied is an error with what to do about it.
type remedied struct {
	cause  error
	remedy string
}

func (e *remedied) Error() string { return e.cause.Error() }

func (e *remedied) Unwrap() error { return e.cause }
