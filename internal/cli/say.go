package cli

import (
	"fmt"
	"io"
	"os"
	"reflect"

	"golang.org/x/sys/unix"

	"cloop.dev/cloop/internal/printable"
)

// verbatim is text of our own making that may hold line breaks, such as
// commands to paste. Nothing of a hub's, a cluster's or a repository's becomes
// one unless its characters were checked.
type verbatim string

// say is how this package prints: what it is given may come from a hub, a
// cluster, a repository or a run, so every text among the arguments is made one
// line that a terminal only shows. A test holds the package to it.
func say(w io.Writer, format string, args ...any) {
	for i := range args {
		// Changed in place: only so does go vet check the formats of callers.
		args[i] = shown(args[i])
	}
	fmt.Fprintf(w, format, args...)
}

// shown is what may be shown of a value; numbers stay numbers.
func shown(arg any) any {
	switch value := arg.(type) {
	case nil:
		return nil
	case verbatim:
		return string(value)
	case error:
		return printable.Line(value.Error())
	case fmt.Stringer:
		return printable.Line(value.String())
	}
	if kind := reflect.TypeOf(arg).Kind(); kind >= reflect.Bool && kind <= reflect.Complex128 {
		return arg
	}
	return printable.Line(fmt.Sprint(arg))
}

// isTerminal says whether somebody looks at a stream; tests replace it.
var isTerminal = func(w io.Writer) bool {
	file, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

// logWriter is where a run's log goes: as it is into a file or a pipe; on a
// terminal only with colours, because whoever can start a run writes it. end
// must be called.
func logWriter(to io.Writer) (log io.Writer, end func()) {
	if !isTerminal(to) {
		return to, func() {}
	}
	onTerminal := printable.NewLog(to)
	return onTerminal, func() { _ = onTerminal.Close() }
}
