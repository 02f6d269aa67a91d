package store

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hub/problem"
)

// postgresTrouble is Trouble for PostgreSQL.
func postgresTrouble(err error) *hubv1.Problem {
	var unknown *errUnknown
	var refused *pgconn.PgError
	var unreachable *pgconn.ConnectError
	var access *accessError
	switch {
	case errors.As(err, &unknown):
		return unknown.problem()
	case errors.As(err, &refused):
		return refusal(refused)
	case errors.As(err, &unreachable):
		return noAnswer()
	case errors.Is(err, context.Canceled):
		return nil
	case errors.As(err, &access) && disconnected(access.err):
		return noAnswer()
	}
	return nil
}

func noAnswer() *hubv1.Problem {
	return problem.New(hubv1.CodeStorageUnavailable, "the hub cannot reach its database")
}

// disconnected says that the connection is what failed.
func disconnected(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded)
}

// lost says that a connection that worked does not any more. One that cannot be
// made is another matter.
func lost(err error) bool {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code == "57P01" // somebody, or the server that stops, ended it
	}
	var unreachable *pgconn.ConnectError
	if errors.As(err, &unreachable) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	return disconnected(err)
}

// refusal says what an error of the server means for whoever runs the hub; nil
// where it means that the hub is wrong.
func refusal(e *pgconn.PgError) *hubv1.Problem {
	switch e.Code {
	case "53100":
		return problem.Refusal(hubv1.CodeStorageUnavailable, "the disk of the hub's database is full, so it can change nothing")
	case "55P03":
		return problem.Refusal(hubv1.CodeStorageUnavailable, "another hub keeps the hub's database for itself")
	case "25006":
		return problem.Refusal(hubv1.CodeStorageUnavailable, "the hub's database may only be read: it is a standby, or made so")
	case "XX001", "XX002":
		return problem.New(hubv1.CodeStorageDamaged, "the hub's database is damaged")
	}
	switch e.Code[:min(2, len(e.Code))] {
	case "08", "28", "3D", "53", "57", "58", "25":
		return noAnswer()
	}
	return nil
}

// sayPostgres adds to why a database cannot be opened what to do about it. The
// error is one line, and no URL and no password are in it.
func sayPostgres(err error) error {
	var refused *pgconn.PgError
	var unreachable *pgconn.ConnectError
	todo := ""
	switch {
	case errors.Is(err, ErrURL) || errors.Is(err, ErrNewer):
	case errors.As(err, &refused) && strings.HasPrefix(refused.Code, "28"):
		todo = "correct the user or the password of the database URL"
	case errors.As(err, &refused) && refused.Code == "3D000":
		todo = "make the database with `createdb`, or correct its name in the URL"
	case errors.As(err, &refused) && refused.Code == "42501":
		todo = "the user must own the database, or be granted CREATE on its schema public"
	case errors.As(err, &unreachable) && strings.Contains(err.Error(), "server refused TLS connection"):
		todo = "turn `ssl` on in its postgresql.conf, or, on a network that you trust, say sslmode=disable in the database URL"
	case errors.As(err, &unreachable):
		todo = "is the server up, and are host and port of the database URL right?"
	}
	if todo == "" {
		return err
	}
	return &saidError{fmt.Sprintf("%s: %s", strings.Join(strings.Fields(err.Error()), " "), todo), err}
}

// saidError is an error in other words.
type saidError struct {
	text string
	err  error
}

func (e *saidError) Error() string { return e.text }

func (e *saidError) Unwrap() error { return e.err }
