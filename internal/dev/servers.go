package dev

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http"
	"time"

	"cloop.dev/cloop/internal/gitserver"
)

// GitServerOptions say what the Git server serves and where.
type GitServerOptions struct {
	// Addr to listen on, host:port.
	Addr string
	// Root holds the bare repositories.
	Root string
	// TLSCert and TLSKey are PEM files.
	TLSCert, TLSKey string
}

// ServeGit serves bare repositories over HTTPS until ctx ends. Anyone who
// reaches the address may push: it is for a machine's own loopback.
func ServeGit(ctx context.Context, o GitServerOptions) error {
	certificate, err := tls.LoadX509KeyPair(o.TLSCert, o.TLSKey)
	if err != nil {
		return err
	}
	server := &http.Server{
		Addr:              o.Addr,
		Handler:           gitserver.Handler(o.Root),
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
		ReadHeaderTimeout: 10 * time.Second,
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServeTLS("", ""); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
