package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/hubclient"
)

func (a *app) newRoleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "role",
		Short: "Roles: sets of permissions that users and groups have",
		Long: `Roles: sets of permissions that users and groups have, for the whole hub or for
one project. docs/access.md says what each permission allows.`,
	}
	remove := &cobra.Command{
		Use:   "remove ROLE",
		Short: "Remove a role and take it from everybody",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.act(cmd, "remove role "+args[0], func(ctx context.Context, hub *hubclient.Client) error {
				return hub.RemoveRole(ctx, args[0])
			}, fmt.Sprintf("Removed role %s.", args[0]))
		},
	}
	textOnly(remove)
	cmd.AddCommand(
		&cobra.Command{
			Use:   "list",
			Short: "List the roles",
			Args:  cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				return ask(a, cmd, "list roles", func(ctx context.Context, hub *hubclient.Client) (hubv1.RoleList, error) {
					roles, err := hub.ListRoles(ctx)
					return hubv1.RoleList{Items: listed(roles)}, err
				}, func(w io.Writer, list hubv1.RoleList) {
					row(w, "NAME", "MADE BY", "GIVEN TO", "PERMISSIONS")
					for _, role := range list.Items {
						by := "people"
						if role.BuiltIn {
							by = "the hub"
						}
						row(w, role.Name, by, len(role.Bindings), permissionNames(role.Permissions))
					}
				})
			},
		},
		a.roleVerb("show ROLE", "Show a role and who has it", 1, func(ctx context.Context, hub *hubclient.Client, args []string) (hubv1.Role, error) {
			return hub.GetRole(ctx, args[0])
		}),
		a.newRoleDefineCommand(),
		a.newRoleBindCommand("give", "Give a role to a user or a group", (*hubclient.Client).GiveRole),
		a.newRoleBindCommand("take", "Take a role away from a user or a group; runs that may no longer run leave their queue", (*hubclient.Client).TakeRole),
		remove,
	)
	return cmd
}

func (a *app) newRoleDefineCommand() *cobra.Command {
	var permissions []string
	cmd := a.roleVerb("define ROLE --permission PERMISSION", "Make a role, or change what it permits", 1,
		func(ctx context.Context, hub *hubclient.Client, args []string) (hubv1.Role, error) {
			return hub.PutRole(ctx, args[0], hubv1.RoleRequest{Permissions: asPermissions(permissions)})
		})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(permissions) == 0 {
			return usageError(cmd, errors.New("--permission is missing"))
		}
		return run(cmd, args)
	}
	cmd.Example = `  cloop hub role define cordoner --permission executor.read --permission executor.manage`
	cmd.Flags().StringSliceVar(&permissions, "permission", nil, "`PERMISSION` of the role, such as run.start; several times")
	return cmd
}

func (a *app) newRoleBindCommand(verb, short string, change func(*hubclient.Client, context.Context, string, hubv1.BindingRequest) (hubv1.Role, error)) *cobra.Command {
	var project string
	cmd := a.roleVerb(verb+" ROLE SUBJECT", short, 2, func(ctx context.Context, hub *hubclient.Client, args []string) (hubv1.Role, error) {
		return change(hub, ctx, args[0], hubv1.BindingRequest{Subject: args[1], Project: project})
	})
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !strings.HasPrefix(args[1], "user:") && !strings.HasPrefix(args[1], "group:") {
			return usageError(cmd, fmt.Errorf("%q is nobody: write user:NAME or group:NAME", args[1]))
		}
		return run(cmd, args)
	}
	cmd.Example = fmt.Sprintf("  cloop hub role %s developer group:ml-team --project app", verb)
	cmd.Flags().StringVar(&project, "project", "", "the one `PROJECT` that it is for (default: the whole hub)")
	return cmd
}

func (a *app) roleVerb(use, short string, arguments int, request func(context.Context, *hubclient.Client, []string) (hubv1.Role, error)) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(arguments),
		RunE: func(cmd *cobra.Command, args []string) error {
			return ask(a, cmd, cmd.Name()+" role "+args[0], func(ctx context.Context, hub *hubclient.Client) (hubv1.Role, error) {
				return request(ctx, hub, args)
			}, func(w io.Writer, role hubv1.Role) {
				row(w, "Name:", role.Name)
				if role.Description != "" {
					row(w, "Whoever has it:", role.Description)
				}
				row(w, "Permissions:", permissionNames(role.Permissions))
				printBindings(w, "Given:", role.Bindings)
			})
		},
	}
}

func asPermissions(names []string) []hubv1.Permission {
	out := make([]hubv1.Permission, 0, len(names))
	for _, name := range names {
		out = append(out, hubv1.Permission(name))
	}
	return out
}

func permissionNames(permissions []hubv1.Permission) string {
	names := make([]string, 0, len(permissions))
	for _, p := range permissions {
		names = append(names, string(p))
	}
	return strings.Join(names, ", ")
}
