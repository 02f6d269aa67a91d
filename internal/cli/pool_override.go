package cli

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
)

// overrideFlags set aside what Git says of a pool.
type overrideFlags struct {
	reason string
	lasts  time.Duration
}

func (f *overrideFlags) register(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.reason, "override", "", "set aside what Git says of the pool, for this `REASON`, which everybody is shown")
	cmd.Flags().DurationVar(&f.lasts, "for", hubv1.DefaultOverride, "how long the override lasts, at most 168h")
}

// check refuses flags that say nothing together.
func (f *overrideFlags) check(cmd *cobra.Command) error {
	given := cmd.Flags().Changed
	switch {
	case given("override") && strings.TrimSpace(f.reason) == "":
		return usageError(cmd, errors.New("--override needs a reason: everybody who wonders why the pool is not as Git says is shown it"))
	case given("for") && !given("override"):
		return usageError(cmd, errors.New("--for is how long an override lasts: give --override REASON with it"))
	case f.lasts <= 0 || f.lasts > hubv1.MaxOverride:
		return usageError(cmd, fmt.Errorf("--for must be above 0 and at most %s", hubv1.MaxOverride))
	}
	return nil
}

func (f *overrideFlags) given() bool { return f.reason != "" }

// sayOverride says until when a pool is not as Git says.
func sayOverride(w io.Writer, pool hubv1.Pool) {
	if over := pool.Override; over != nil {
		say(w, "What Git says of it is set aside until %s, or until Git says something else: %s.\n", over.Until.Local().Format(time.RFC1123), over.Reason)
	}
}

func (a *app) newPoolUncordonCommand() *cobra.Command {
	var over overrideFlags
	cmd := &cobra.Command{
		Use:   "uncordon POOL",
		Short: "Hand out runs of a pool again",
		Long: `Hand out runs of a pool again. A cordon that is in Git is taken away in its
file; --override REASON sets it aside for a time.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := over.check(cmd); err != nil {
				return err
			}
			return a.changePool(cmd, args[0], "uncordon", func(hub *hubclient.Client) (hubv1.Pool, error) {
				if over.given() {
					return hub.OverrideCordon(cmd.Context(), args[0], over.reason, over.lasts)
				}
				return hub.Uncordon(cmd.Context(), args[0])
			}, "Uncordoned pool %s.\n")
		},
	}
	over.register(cmd)
	return cmd
}

func (a *app) newPoolEndOverrideCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "end-override POOL",
		Short: "Have a pool as Git says again, before its override's time is up",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			hub, err := a.connect()
			if err != nil {
				return err
			}
			says := "Pool %s is as Git says.\n"
			pool, err := hub.GetPool(cmd.Context(), args[0])
			if err == nil && pool.Override == nil {
				says = "Pool %s has no override, so nothing was changed.\n"
			} else if err == nil {
				pool, err = hub.EndOverride(cmd.Context(), pool.ID)
			}
			if err != nil {
				return fmt.Errorf("end the override of pool %s: %w", args[0], err)
			}
			return a.show(pool, func(w io.Writer) { say(w, says, pool.Name) })
		},
	}
}

func (a *app) newPoolReleaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "release POOL",
		Short: "Let go of a pool whose HubPool in a cluster is gone for good",
		Long: `Let go of a pool whose HubPool in a cluster is gone for good and never said so: the
cluster was built anew, or spec.hub was taken out of the document. The pool stays as
it is, with its credentials and runs, and may be changed by hand or by another
HubPool from then on. A HubPool that is still there takes the pool again.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.changePool(cmd, args[0], "release", func(hub *hubclient.Client) (hubv1.Pool, error) {
				return hub.ReleasePool(cmd.Context(), args[0], "")
			}, "Pool %s is no HubPool's.\n")
		},
	}
}

// printOverride says who has set aside what Git says, and what differs.
func (p *shownPool) printOverride(w io.Writer) {
	if over := p.Override; over != nil {
		row(w, "Override:", fmt.Sprintf("%s (by %s, %s ago; ends %s)", over.Reason, over.By, age(time.Now(), over.At), over.Until.UTC().Format(time.RFC3339)))
	}
	for _, d := range p.Drift {
		if d.Path == "" {
			row(w, "Drift:", fmt.Sprintf("its document in Git is held back since %s: %s (%s)", d.Since.UTC().Format(time.RFC3339), d.Message, d.Cause))
			continue
		}
		who := "by " + d.By
		if d.Outcome == hubv1.OutcomeObserved {
			who = d.Message
		}
		row(w, "Drift:", fmt.Sprintf("%s is %s at the hub and %s in Git (%s, %s)", d.Path, orAbsent(d.Hub), orAbsent(d.Git), d.Cause, who))
	}
}

func orAbsent(value string) string {
	if value == "" {
		return "absent"
	}
	return value
}
