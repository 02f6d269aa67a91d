package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
)

// T is what is needed of a test, also of one of rapid's.
type T interface {
	Helper()
	Fatal(args ...any)
	Skip(args ...any)
}

// shared is the server of this process's tests.
var shared struct {
	once   sync.Once
	server *Server
	err    error
}

// Shared is the server of all tests of the process.
func Shared(t T) *Server {
	t.Helper()
	shared.once.Do(func() { shared.server, shared.err = Start(ServerOptions{}) })
	switch {
	case errors.Is(shared.err, errMissing) && os.Getenv("CI") != "true":
		t.Skip(shared.err)
	case shared.err != nil:
		t.Fatal(shared.err)
	}
	return shared.server
}

// Main runs the tests and stops the server that they shared. TestMain calls it.
func Main(m interface{ Run() int }) {
	code := m.Run()
	if shared.server != nil {
		shared.server.Stop()
	}
	os.Exit(code)
}

var databases atomic.Int64

// NewDatabase makes a database on the server, a copy of the template unless
// that is empty, and returns its name.
func (s *Server) NewDatabase(t T, template string) string {
	t.Helper()
	name := fmt.Sprintf("test%d", databases.Add(1))
	statement := "CREATE DATABASE " + name
	if template != "" {
		statement += " TEMPLATE " + template
	}
	if err := s.Do(context.Background(), statement); err != nil {
		t.Fatal(err)
	}
	return name
}

// Drop removes a database, whoever uses it.
func (s *Server) Drop(name string) error {
	return s.Do(context.Background(), "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)")
}
