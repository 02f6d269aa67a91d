package cli

import "github.com/spf13/cobra"

func (a *app) newExecutorCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "executor", Short: "Where runs execute: pools, their controller, the runner"}
	runner := a.newRunnerCommand()
	textOnly(runner)
	cmd.AddCommand(a.newPoolCommand(), a.newControllerCommand(), runner)
	return cmd
}
