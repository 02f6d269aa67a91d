package cli

import (
	"os"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/internal/agent"
)

func (a *app) newRunnerCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "runner",
		Short: "Be a runner: what a runner Pod runs",
		Long: `Enroll with the hub, take one run, execute it, report and exit. The executor
controller sets the environment that this reads; it is of no use by hand.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := agent.OptionsFromEnv(os.Getenv)
			if err != nil {
				return err
			}
			o.Build = buildVersion().Version
			o.Log = a.logger()
			return agent.Run(cmd.Context(), o)
		},
	}
}
