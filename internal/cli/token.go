package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/install"
)

func (a *app) newTokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Tokens of users, for people, CI and controllers",
		Long: `Tokens of users, for people, CI and controllers. A token never gives more than
its user has; scopes and a ceiling make it give less.`,
	}
	revoke := &cobra.Command{
		Use:   "revoke ID",
		Short: "End a token at once",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.act(cmd, "revoke token "+args[0], func(ctx context.Context, hub *hubclient.Client) error {
				return hub.RevokeToken(ctx, args[0])
			}, fmt.Sprintf("Revoked token %s.", args[0]))
		},
	}
	textOnly(revoke)
	cmd.AddCommand(a.newTokenCreateCommand(), a.newTokenListCommand(), revoke)
	return cmd
}

// tokenFlags are what a token is to give.
type tokenFlags struct {
	user    string
	scopes  []string
	ceiling hubv1.Ceiling
	expires time.Duration
	file    string
}

func (f *tokenFlags) register(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.user, "user", "", "`USER` whose token it is (default: yours)")
	flags.StringSliceVar(&f.scopes, "scope", nil, "`PERMISSION` that it gives, several times (default: all that its user has)")
	flags.StringSliceVar(&f.ceiling.Names, "pool", nil, "ceiling: `PATTERN` of the pools that it sees and defines; several times")
	flags.Int32Var(&f.ceiling.MaxRunners, "max-runners", 0, "ceiling: highest maximum `N` of a pool that it defines (default: any)")
	flags.StringSliceVar(&f.ceiling.Labels, "label", nil, "ceiling: `PATTERN` of labels as KEY=VALUE; several times")
	flags.StringSliceVar(&f.ceiling.Audience, "audience", nil, "ceiling: `PATTERN` of the audience's entries; several times")
	flags.StringSliceVar(&f.ceiling.Owners, "owner", nil, "ceiling: `PATTERN` of owners; several times")
	flags.DurationVar(&f.expires, "expires-in", 0, "`DURATION` after which it ends by itself, such as 720h (default: never)")
	flags.StringVar(&f.file, "secret-file", "", "write the token to this new `FILE` instead of showing it")
}

func (f *tokenFlags) request(name string) hubv1.CreateTokenRequest {
	request := hubv1.CreateTokenRequest{Name: name, User: f.user, Scopes: asPermissions(f.scopes)}
	if !reflect.ValueOf(f.ceiling).IsZero() {
		request.Ceiling = &f.ceiling
	}
	if f.expires > 0 {
		until := time.Now().Add(f.expires).UTC().Truncate(time.Second)
		request.ExpiresAt = &until
	}
	return request
}

func (a *app) newTokenCreateCommand() *cobra.Command {
	var f tokenFlags
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Make a token, which is shown once",
		Long: `Make a token, which is shown once: the hub keeps only its hash. NAME says what it
is for. Patterns are those of shells, as in ml-*; a ceiling needs --scope.`,
		Example: `  cloop hub token create laptop --expires-in 720h
  cloop hub token create fleet-eu --user fleet --scope executor.read,executor.manage --pool 'eu-*' --max-runners 20`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := notNegative(cmd, "expires-in", f.expires); err != nil {
				return err
			}
			hub, err := a.connect()
			if err != nil {
				return err
			}
			if err := reserve("the token's file", f.file); err != nil {
				return err
			}
			token, err := hub.CreateToken(cmd.Context(), f.request(args[0]))
			if err != nil {
				release(f.file)
				if errors.Is(err, hubclient.ErrOutcomeUnknown) {
					err = &withAdvice{fmt.Errorf("%w: should the token be there all the same, its secret is lost: revoke it (`cloop hub token list` shows it) and make another", err)}
				}
				return fmt.Errorf("create token %s: %w", args[0], err)
			}
			if !install.Usable(token.Secret) {
				release(f.file)
				return fmt.Errorf("the hub's answer has no token that could be one, so it is not shown: make sure that --hub names the right hub, then make another")
			}
			if f.file != "" {
				if err := os.WriteFile(f.file, []byte(token.Secret+"\n"), 0o600); err != nil {
					return fmt.Errorf("write the token, which is lost now (revoke %s and make another): %w", token.ID, err)
				}
				token.Secret = ""
			}
			return a.show(token, func(w io.Writer) {
				say(w, "Created token %s of user %s.\n", token.ID, token.User)
				if f.file != "" {
					say(w, "It is in %s and cannot be recovered from the hub.\n", f.file)
					return
				}
				say(w, "It is shown this once and cannot be recovered:\n\n  %s\n", verbatim(token.Secret))
			})
		},
	}
	f.register(cmd)
	return cmd
}

func (a *app) newTokenListCommand() *cobra.Command {
	var query hubclient.TokenQuery
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List your tokens, or others'",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return ask(a, cmd, "list tokens", func(ctx context.Context, hub *hubclient.Client) (hubv1.TokenList, error) {
				tokens, err := hub.ListTokens(ctx, query)
				return hubv1.TokenList{Items: listed(tokens)}, err
			}, func(w io.Writer, list hubv1.TokenList) {
				row(w, "ID", "USER", "NAME", "STATE", "SCOPES", "CEILING", "USED", "AGE")
				now := time.Now()
				for _, t := range list.Items {
					used := "never"
					if t.LastUsedAt != nil {
						used = age(now, *t.LastUsedAt)
					}
					row(w, t.ID, t.User, t.Name, tokenState(now, t), orAll(permissionNames(t.Scopes)), dash(ceilingText(t.Ceiling)), used, age(now, t.CreatedAt))
				}
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&query.User, "user", "", "`USER` whose tokens to list (default: yours)")
	flags.BoolVar(&query.All, "all", false, "everybody's")
	flags.BoolVar(&query.Over, "over", false, "those too that are revoked or expired")
	return cmd
}

func orAll(text string) string {
	if text == "" {
		return "all"
	}
	return text
}

func tokenState(now time.Time, t hubv1.Token) string {
	switch {
	case t.RevokedAt != nil:
		return "revoked"
	case t.ExpiresAt == nil:
		return "live"
	case !now.Before(*t.ExpiresAt):
		return "expired"
	}
	return "live until " + t.ExpiresAt.UTC().Format(time.RFC3339)
}

// ceilingText is a ceiling as one cell of a table.
func ceilingText(c *hubv1.Ceiling) string {
	if c == nil {
		return ""
	}
	var parts []string
	add := func(name string, patterns []string) {
		if len(patterns) > 0 {
			parts = append(parts, name+" "+strings.Join(patterns, ","))
		}
	}
	add("pools", c.Names)
	if c.MaxRunners > 0 {
		parts = append(parts, fmt.Sprintf("at most %d", c.MaxRunners))
	}
	add("labels", c.Labels)
	add("audience", c.Audience)
	add("owners", c.Owners)
	return strings.Join(parts, "; ")
}
