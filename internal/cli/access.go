package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/count"
	"cloop.dev/cloop/internal/hubclient"
	"cloop.dev/cloop/internal/printable"
)

// ask makes one request of the hub and shows what came of it.
func ask[T any](a *app, cmd *cobra.Command, what string, request func(context.Context, *hubclient.Client) (T, error), text func(io.Writer, T)) error {
	hub, err := a.connect()
	if err != nil {
		return err
	}
	answer, err := request(cmd.Context(), hub)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return a.show(answer, func(w io.Writer) { text(w, answer) })
}

// act is ask for requests that have no answer.
func (a *app) act(cmd *cobra.Command, what string, request func(context.Context, *hubclient.Client) error, done string) error {
	hub, err := a.connect()
	if err != nil {
		return err
	}
	if err := request(cmd.Context(), hub); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	say(a.stdout, "%s\n", done)
	return nil
}

func (a *app) newUserCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "user", Short: "Users: people and machines that have tokens"}
	force := false
	remove := &cobra.Command{
		Use:   "remove USER",
		Short: "Remove a user with its tokens and roles; its waiting runs are cancelled",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.act(cmd, "remove user "+args[0], func(ctx context.Context, hub *hubclient.Client) error {
				if force {
					return hub.ForceRemoveUser(ctx, args[0])
				}
				return hub.RemoveUser(ctx, args[0])
			}, fmt.Sprintf("Removed user %s and its tokens.", args[0])); err != nil {
				return err
			}
			return a.sayStillListed(cmd, "user:"+args[0])
		},
	}
	remove.Flags().BoolVar(&force, "force", false, "remove the user also where nobody is left then who may manage access: only `cloop hub reset-admin` brings one back")
	textOnly(remove)
	cmd.AddCommand(
		&cobra.Command{
			Use:     "create USER",
			Short:   "Make a user, who has no roles and no tokens yet",
			Example: `  cloop hub user create alice@example.com`,
			Args:    cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return ask(a, cmd, "create user "+args[0], func(ctx context.Context, hub *hubclient.Client) (hubv1.User, error) {
					return hub.CreateUser(ctx, hubv1.CreateUserRequest{Name: args[0]})
				}, func(w io.Writer, user hubv1.User) {
					name := shellQuote(user.Name)
					say(w, "Created user %s. Give it a role with `cloop hub role give ROLE user:%s`, and a token with `cloop hub token create NAME --user %s`.\n",
						user.Name, name, name)
				})
			},
		},
		&cobra.Command{
			Use:   "list",
			Short: "List the users",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return ask(a, cmd, "list users", func(ctx context.Context, hub *hubclient.Client) (hubv1.UserList, error) {
					users, err := hub.ListUsers(ctx)
					return hubv1.UserList{Items: listed(users)}, err
				}, func(w io.Writer, list hubv1.UserList) {
					row(w, "NAME", "GROUPS", "ROLES", "AGE")
					for _, user := range list.Items {
						row(w, user.Name, dash(strings.Join(user.Groups, ",")), dash(roleNames(user.Roles)), age(time.Now(), user.CreatedAt))
					}
				})
			},
		},
		&cobra.Command{
			Use:   "show USER",
			Short: "Show a user, its groups and its roles",
			Args:  cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				return ask(a, cmd, "show user "+args[0], func(ctx context.Context, hub *hubclient.Client) (hubv1.User, error) {
					return hub.GetUser(ctx, args[0])
				}, func(w io.Writer, user hubv1.User) {
					row(w, "Name:", user.Name)
					row(w, "Groups:", dash(strings.Join(user.Groups, ", ")))
					row(w, "Created:", user.CreatedAt.UTC().Format(time.RFC3339))
					printBindings(w, "Role:", user.Roles)
				})
			},
		},
		remove,
	)
	return cmd
}

// maxListing bounds how many pools sayStillListed names.
const maxListing = 10

// sayStillListed names the pools that go on to list who was removed: they list
// names, which whoever is made under that name has.
func (a *app) sayStillListed(cmd *cobra.Command, subject string) error {
	hub, err := a.connect()
	if err != nil {
		return err
	}
	pools, err := hub.ListPools(cmd.Context())
	if err != nil {
		say(a.stderr, "cloop: which pools still list %s cannot be read: %s\n", subject, printable.Line(err.Error()))
		return nil // it is removed all the same
	}
	var names []string
	for _, pool := range pools {
		if pool.Owner == subject || slices.Contains(pool.Audience, subject) {
			names = append(names, pool.Name)
		}
	}
	if len(names) > 0 {
		say(a.stdout, "Audience or owner of %s still list %s, which counts for whoever is made under that name: take it out with `cloop executor pool update`, or in Git.\n",
			strings.Join(count.First(names, maxListing), ", "), subject)
	}
	return nil
}

// roleNames are roles as one cell of a table: a role for one project as
// ROLE@PROJECT.
func roleNames(bindings []hubv1.RoleBinding) string {
	names := make([]string, 0, len(bindings))
	for _, b := range bindings {
		name := b.Role
		if b.Project != "" {
			name += "@" + b.Project
		}
		names = append(names, name)
	}
	return strings.Join(names, ",")
}

func printBindings(w io.Writer, label string, bindings []hubv1.RoleBinding) {
	for _, b := range bindings {
		where := "the whole hub"
		if b.Project != "" {
			where = "project " + b.Project
		}
		row(w, label, fmt.Sprintf("%s of %s, for %s", b.Role, b.Subject, where))
	}
}

func (a *app) newGroupCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "group", Short: "Groups of users"}
	remove := &cobra.Command{
		Use:   "remove GROUP",
		Short: "Remove a group with its roles; its members stay",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := a.act(cmd, "remove group "+args[0], func(ctx context.Context, hub *hubclient.Client) error {
				return hub.RemoveGroup(ctx, args[0])
			}, fmt.Sprintf("Removed group %s.", args[0])); err != nil {
				return err
			}
			return a.sayStillListed(cmd, "group:"+args[0])
		},
	}
	textOnly(remove)
	cmd.AddCommand(
		a.groupVerb("create GROUP", "Make a group without members", 1, func(ctx context.Context, hub *hubclient.Client, args []string) (hubv1.Group, error) {
			return hub.CreateGroup(ctx, hubv1.CreateGroupRequest{Name: args[0]})
		}),
		&cobra.Command{
			Use:   "list",
			Short: "List the groups",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return ask(a, cmd, "list groups", func(ctx context.Context, hub *hubclient.Client) (hubv1.GroupList, error) {
					groups, err := hub.ListGroups(ctx)
					return hubv1.GroupList{Items: listed(groups)}, err
				}, func(w io.Writer, list hubv1.GroupList) {
					row(w, "NAME", "MEMBERS", "ROLES", "AGE")
					for _, group := range list.Items {
						row(w, group.Name, len(group.Members), dash(roleNames(group.Roles)), age(time.Now(), group.CreatedAt))
					}
				})
			},
		},
		a.groupVerb("show GROUP", "Show a group, its members and its roles", 1, func(ctx context.Context, hub *hubclient.Client, args []string) (hubv1.Group, error) {
			return hub.GetGroup(ctx, args[0])
		}),
		a.groupVerb("add GROUP USER", "Put a user into a group, which gives it the group's roles", 2, func(ctx context.Context, hub *hubclient.Client, args []string) (hubv1.Group, error) {
			return hub.AddMember(ctx, args[0], args[1])
		}),
		a.groupVerb("drop GROUP USER", "Take a user out of a group", 2, func(ctx context.Context, hub *hubclient.Client, args []string) (hubv1.Group, error) {
			return hub.RemoveMember(ctx, args[0], args[1])
		}),
		remove,
	)
	return cmd
}

func (a *app) groupVerb(use, short string, arguments int, request func(context.Context, *hubclient.Client, []string) (hubv1.Group, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(arguments),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(a, cmd, cmd.Name()+" group "+args[0], func(ctx context.Context, hub *hubclient.Client) (hubv1.Group, error) {
				return request(ctx, hub, args)
			}, func(w io.Writer, group hubv1.Group) {
				row(w, "Name:", group.Name)
				row(w, "Members:", dash(strings.Join(group.Members, ", ")))
				row(w, "Created:", group.CreatedAt.UTC().Format(time.RFC3339))
				printBindings(w, "Role:", group.Roles)
			})
		},
	}
}
