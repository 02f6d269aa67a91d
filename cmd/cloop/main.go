// Command cloop is the one binary of the project: hub, controllers, runner and
// command line are its sub-commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"cloop.dev/cloop/internal/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process at once: whoever sends it has waited.
	context.AfterFunc(ctx, stop)
	os.Exit(cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
