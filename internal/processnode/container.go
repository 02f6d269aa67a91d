package processnode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"cloop.dev/cloop/internal/process"
)

// child is the running process of a container and what came from it.
type child struct {
	family process.Family
	// done is closed when the process has ended; exit is readable then.
	done chan struct{}
	exit exit
}

type exit struct {
	code   int32
	reason string
	// message is the node's own, if any.
	message string
}

// spawn starts a container's process in a session of its own, with its output
// in the container's log. Whenever the node dies, the record on disk suffices
// to find what was started.
func spawn(dir podDir, container string, call invocation) (*child, error) {
	if err := os.MkdirAll(dir.container(container), 0o700); err != nil {
		return nil, err
	}
	if err := os.WriteFile(dir.termination(container), nil, 0o600); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(dir.log(container), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close() //nolint:errcheck // the process has its own descriptor
	started := &child{family: process.Family{Mark: process.NewMark()}, done: make(chan struct{})}
	if err := dir.keepProcess(container, started.family); err != nil {
		return nil, err
	}
	command := exec.Command(call.argv[0], call.argv[1:]...)
	command.Dir = call.dir
	command.Env = append(process.WithoutMarks(call.env), started.family.Mark.Environment())
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := command.Start(); err != nil {
		return nil, errors.Join(err, dir.forgetProcess(container))
	}
	// The process stays a child until Wait, so it can be identified even if
	// it has ended already.
	started.family.Root, err = process.Identify(command.Process.Pid)
	if err == nil {
		err = dir.keepProcess(container, started.family)
	}
	if err != nil {
		return nil, errors.Join(err, command.Process.Kill(), ignoreExit(command.Wait()), started.family.Kill())
	}
	go func() {
		defer close(started.done)
		started.exit = exitOf(command.Wait())
	}()
	return started, nil
}

// exitOf reads how a process ended from the error of Wait.
func exitOf(err error) exit {
	var ended *exec.ExitError
	switch {
	case err == nil:
		return exit{code: 0, reason: reasonCompleted}
	case !errors.As(err, &ended):
		return exit{code: exitKilled, reason: reasonError, message: err.Error()}
	}
	if status, ok := ended.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return exit{code: exitSignalled + int32(status.Signal()), reason: reasonError}
	}
	return exit{code: int32(ended.ExitCode()), reason: reasonError} //nolint:gosec // 0 to 255
}

func ignoreExit(err error) error {
	if ended := (*exec.ExitError)(nil); errors.As(err, &ended) {
		return nil
	}
	return err
}

// Limits of the kubelet: a termination message, and what of the log stands in
// for one.
const (
	messageBytes  = 4096
	fallbackBytes = 2048
	fallbackLines = 80
)

// terminationMessage is what the container left to say, or, where it asks for
// that and failed, the end of its log.
func terminationMessage(dir podDir, container *corev1.Container, code int32) (string, error) {
	message, err := head(dir.termination(container.Name), messageBytes)
	if err != nil {
		return "", fmt.Errorf("read the termination message: %w", err)
	}
	if len(message) > 0 || code == 0 || container.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
		return validText(message), nil
	}
	end, err := foot(dir.log(container.Name), fallbackBytes)
	if err != nil {
		return "", fmt.Errorf("read the end of the log: %w", err)
	}
	if lines := bytes.SplitAfter(end, []byte("\n")); len(lines) > fallbackLines {
		end = bytes.Join(lines[len(lines)-fallbackLines:], nil)
	}
	return validText(end), nil
}

// head reads a file that the container could replace: by nothing, by a link,
// or by a pipe that nobody writes to.
func head(file string, limit int64) ([]byte, error) {
	opened, err := os.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOFOLLOW, 0)
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ELOOP) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer opened.Close() //nolint:errcheck // only read
	if info, err := opened.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(opened, limit))
}

func foot(file string, limit int64) ([]byte, error) {
	opened, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer opened.Close() //nolint:errcheck // only read
	if info, err := opened.Stat(); err == nil && info.Size() > limit {
		if _, err := opened.Seek(-limit, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(opened, limit))
}

// validText drops what the cut or the container made invalid: the API takes
// UTF-8 only.
func validText(data []byte) string { return string(bytes.ToValidUTF8(data, nil)) }
