package cli

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
)

// Exit codes of every command that does not exit with a run's own.
const (
	// codeNo says that the answer is no: invalid, differs, drifted,
	// unhealthy, refused.
	codeNo = 1
	// codeNoAnswer says that there is no answer: usage, unreachable,
	// unreadable.
	codeNoAnswer = 2
)

// No is the error of a command that found its answer, and the answer is no.
// The process exits with 1.
type No struct {
	// Message is printed; empty where the command has said it all already.
	Message string
}

// Error is the message.
func (n *No) Error() string { return n.Message }

// exitCode ends the process with a code and without a word: what there is to
// say has been said.
type exitCode struct{ code int }

func (e *exitCode) Error() string { return fmt.Sprintf("exit code %d", e.code) }

func silent(code int) error { return &exitCode{code: code} }

// usageError names the help that tells more.
func usageError(cmd *cobra.Command, err error) error {
	return fmt.Errorf("%w (see `%s --help`)", err, cmd.CommandPath())
}

// withAdvice is an error that says itself what to do about an outcome that is
// unknown.
type withAdvice struct{ error }

func (w *withAdvice) Unwrap() error { return w.error }

// trustHub is for a hub that shows a certificate which nobody vouches for, as one
// does that makes its own.
const trustHub = "hold to the hub's key with --hub-pin or " + envHubPin + " (`cloop hub pin` prints it: compare it with what the hub logged), or name the authority with --hub-ca-file"

// anotherToken is for a person; the hub's own remedy is for whoever writes HTTP.
const anotherToken = "log in again with `cloop login`, or name another token with --token-file or " + envToken + "; where every admin token is lost, `cloop hub reset-admin` makes one on the hub's machine"

const checkHub = "check that --hub names the hub, that it runs and that this machine reaches it"

// verdict is what an error means to whoever called cloop.
type verdict struct {
	message string
	code    int
}

// verdictOf decides text and exit code of an error together.
func verdictOf(err error) verdict {
	message := oneLine(err.Error())
	var (
		code    *exitCode
		no      *No
		problem *hubv1.Problem
		ended   *interruption
		advised *withAdvice

		untrusted *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &code):
		return verdict{code: code.code}
	case errors.As(err, &no):
		return verdict{message: message, code: codeNo}
	case errors.As(err, &ended):
		return verdict{message: message, code: codeNoAnswer}
	case errors.As(err, &problem):
		return problemVerdict(problem, message)
	case errors.Is(err, hubclient.ErrPinMismatch):
		return verdict{message + ": compare --hub-pin with what the hub logged at its start", codeNoAnswer}
	case errors.As(err, &untrusted):
		return verdict{message + ": " + trustHub, codeNoAnswer}
	case errors.As(err, &advised):
		return verdict{message, codeNoAnswer}
	case errors.Is(err, hubclient.ErrOutcomeUnknown):
		return verdict{message + ": " + hubclient.ErrOutcomeUnknown.Error() + ", so look before you repeat it; " + checkHub, codeNoAnswer}
	case errors.Is(err, hubclient.ErrUnavailable):
		return verdict{message + ": " + checkHub, codeNoAnswer}
	case errors.Is(err, context.Canceled):
		return verdict{message: "interrupted", code: codeNoAnswer}
	}
	return verdict{message: message, code: codeNoAnswer}
}

// problemVerdict tells a hub that said no from one that could not be asked.
func problemVerdict(problem *hubv1.Problem, message string) verdict {
	switch problem.Status {
	case http.StatusUnauthorized:
		if problem.Remedy != "" {
			message = strings.Replace(message, ": "+oneLine(problem.Remedy), "", 1)
		}
		return verdict{message + ": " + anotherToken, codeNoAnswer}
	case http.StatusForbidden, http.StatusConflict, http.StatusGone, http.StatusPreconditionFailed, http.StatusPreconditionRequired,
		http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity:
		return verdict{message, codeNo}
	}
	return verdict{message, codeNoAnswer}
}

// chain lists what an error wraps, outermost first, one line each.
func chain(err error) []string {
	var links []string
	for err != nil {
		links = append(links, fmt.Sprintf("%T: %s", err, oneLine(err.Error())))
		switch wrapped := err.(type) { //nolint:errorlint // it takes one link of the chain at a time
		case interface{ Unwrap() error }:
			err = wrapped.Unwrap()
		case interface{ Unwrap() []error }:
			for _, part := range wrapped.Unwrap() {
				links = append(links, chain(part)...)
			}
			return links
		default:
			return links
		}
	}
	return links
}

// oneLine keeps a message that holds line breaks, such as a Git server's, from
// looking like several errors.
func oneLine(text string) string {
	lines := strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' })
	var b strings.Builder
	for i, line := range lines {
		line = strings.TrimSpace(line)
		switch {
		case i == 0:
		case strings.HasSuffix(b.String(), ":"):
			b.WriteString(" ")
		default:
			b.WriteString("; ")
		}
		b.WriteString(line)
	}
	return strings.Join(strings.Fields(b.String()), " ")
}
