// Package argocdtest runs health checks that are written for Argo CD, as far as
// tests need it: a script in Lua, and an object. Nothing of Argo CD itself runs.
package argocdtest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Health is what a script says of an object.
type Health struct {
	// Status is one of those that Argo CD knows.
	Status  string
	Message string
}

// statuses are those that Argo CD knows; it takes anything else for a broken script.
var statuses = []string{"Healthy", "Progressing", "Degraded", "Suspended", "Missing", "Unknown"}

// longest is how long Argo CD lets a script run.
const longest = time.Second

// Run runs a script over an object with the libraries that Argo CD gives to a script
// of its ConfigMap: without those for strings, numbers and files.
func Run(ctx context.Context, script string, object *unstructured.Unstructured) (Health, error) {
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			return Health{}, err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	state.SetContext(ctx)
	state.SetGlobal("obj", valueOf(state, object.Object))
	if err := state.DoString(script); err != nil {
		return Health{}, fmt.Errorf("run the health check: %w", err)
	}
	said, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		return Health{}, fmt.Errorf("the health check returns a %s and no table", state.Get(-1).Type())
	}
	health := Health{Status: lua.LVAsString(said.RawGetString("status")), Message: lua.LVAsString(said.RawGetString("message"))}
	if !slices.Contains(statuses, health.Status) {
		return Health{}, fmt.Errorf("%q is no health status of Argo CD", health.Status)
	}
	return health, nil
}

// valueOf is a value of JSON in Lua.
func valueOf(state *lua.LState, value any) lua.LValue {
	switch value := value.(type) {
	case bool:
		return lua.LBool(value)
	case string:
		return lua.LString(value)
	case int64:
		return lua.LNumber(value)
	case float64:
		return lua.LNumber(value)
	case json.Number:
		return lua.LString(value)
	case []any:
		table := state.CreateTable(len(value), 0)
		for _, item := range value {
			table.Append(valueOf(state, item))
		}
		return table
	case map[string]any:
		table := state.CreateTable(0, len(value))
		for key, item := range value {
			table.RawSetString(key, valueOf(state, item))
		}
		return table
	}
	return lua.LNil
}
