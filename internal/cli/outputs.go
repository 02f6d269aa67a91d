package cli

import (
	"reflect"
	"slices"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/diff"
	"cloop.dev/cloop/internal/fleet/output"
)

// Output is what a command writes as JSON or YAML.
type Output struct {
	// Command is its path, such as "cloop executor pool show".
	Command string
	// With is the flag that makes the command write this; empty for none.
	With string
	Type reflect.Type
}

// Outputs lists what commands write as JSON or YAML, by command. The reference has
// its keys.
func Outputs() []Output { return slices.Clone(outputs) }

var outputs = []Output{
	writes[[]devPart]("cloop dev status"),
	writes[hubv1.PoolList]("cloop executor pool list"),
	writes[*shownPool]("cloop executor pool show"),
	writes[created]("cloop executor pool create"),
	writes[updatedPool]("cloop executor pool update"),
	writes[hubv1.Pool]("cloop executor pool cordon"),
	writes[hubv1.Pool]("cloop executor pool uncordon"),
	writes[hubv1.Pool]("cloop executor pool end-override"),
	writes[hubv1.Pool]("cloop executor pool release"),
	writes[hubv1.Pool]("cloop executor pool revoke"),
	writes[hubv1.CredentialList]("cloop executor pool credentials"),
	writes[rotated]("cloop executor pool rotate-credential"),
	writes[hubv1.FinishRotationResponse]("cloop executor pool rotate-credential", "--finish"),
	writes[hubv1.Credential]("cloop executor pool revoke-credential"),
	writes[output.Document]("cloop fleet check"),
	writes[*diff.Report]("cloop fleet diff"),
	writes[*fleet.DriftReport]("cloop fleet drift"),
	writes[newRepository]("cloop fleet import"),
	writes[newRepository]("cloop fleet init"),
	writes[fleetStatus]("cloop fleet reconcile"),
	writes[fleetStatus]("cloop fleet status"),
	writes[statusReport]("cloop fleet status-check"),
	writes[hubv1.AuditPage]("cloop hub audit"),
	writes[hubv1.Diagnosis]("cloop hub doctor"),
	writes[hubv1.Group]("cloop hub group add"),
	writes[hubv1.Group]("cloop hub group create"),
	writes[hubv1.Group]("cloop hub group drop"),
	writes[hubv1.GroupList]("cloop hub group list"),
	writes[hubv1.Group]("cloop hub group show"),
	writes[hubKey]("cloop hub pin"),
	writes[fileKeys]("cloop hub pin", "--cert"),
	writes[hubv1.Role]("cloop hub role define"),
	writes[hubv1.Role]("cloop hub role give"),
	writes[hubv1.RoleList]("cloop hub role list"),
	writes[hubv1.Role]("cloop hub role show"),
	writes[hubv1.Role]("cloop hub role take"),
	writes[hubv1.Sync]("cloop hub sync approve-prune"),
	writes[hubv1.Token]("cloop hub token create"),
	writes[hubv1.TokenList]("cloop hub token list"),
	writes[hubv1.User]("cloop hub user create"),
	writes[hubv1.UserList]("cloop hub user list"),
	writes[hubv1.User]("cloop hub user show"),
	writes[hubv1.Identity]("cloop hub whoami"),
	writes[hubv1.Identity]("cloop login"),
	writes[hubv1.Project]("cloop project bind"),
	writes[hubv1.Project]("cloop project create"),
	writes[hubv1.ProjectList]("cloop project list"),
	writes[hubv1.Project]("cloop project show"),
	writes[hubv1.Run]("cloop run cancel"),
	writes[hubv1.RunList]("cloop run list"),
	writes[hubv1.Run]("cloop run show"),
	writes[hubv1.Run]("cloop run start"),
	writes[hubv1.Run]("cloop run wait"),
	writes[build]("cloop version"),
}

func writes[T any](command string, with ...string) Output {
	out := Output{Command: command, Type: reflect.TypeFor[T]()}
	if len(with) > 0 {
		out.With = with[0]
	}
	return out
}
