package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"cloop.dev/cloop/apis/hubv1"
	"cloop.dev/cloop/apis/v1alpha1"
	"cloop.dev/cloop/internal/hub/hubpool"
	"cloop.dev/cloop/internal/hub/problem"
	"cloop.dev/cloop/internal/hub/store"
	"cloop.dev/cloop/internal/secret"
)

// Overriding is how a change of what Git owns says that it is meant.
type Overriding struct {
	Reason string `query:"override" maxLength:"1024" doc:"Set aside what Git says of the pool, for this reason."`
	For    string `query:"for" maxLength:"32" doc:"How long the override lasts, such as 90m; 8h where left out, at most 168h. Git saying something else ends it before."`
}

// read is nil where nothing is to be overridden.
func (o Overriding) read() (*store.Overriding, error) {
	if o.Reason == "" && o.For == "" {
		return nil, nil //nolint:nilnil // no override is neither a value nor an error
	}
	over := &store.Overriding{Reason: secret.Redact(o.Reason), For: hubv1.DefaultOverride}
	var faulty []hubv1.FieldError
	if o.Reason == "" {
		faulty = append(faulty, hubv1.FieldError{Location: "query.override", Message: "must say why, where for says how long"})
	} else if message := lineMessage(o.Reason); message != "" {
		faulty = append(faulty, hubv1.FieldError{Location: "query.override", Message: message})
	}
	if o.For != "" {
		var err error
		if over.For, err = time.ParseDuration(o.For); err != nil || over.For <= 0 || over.For > hubv1.MaxOverride {
			faulty = append(faulty, hubv1.FieldError{Location: "query.for", Message: "must be a duration such as 90m or 8h, at most " + hubv1.MaxOverride.String()})
		}
	}
	return over, refuseFields("the override is not valid", faulty)
}

func (s *server) definitions() {
	register(s, requires(hubv1.PermissionExecutorManage, status(op(http.MethodDelete, apiBase+"/pools/{pool}/override", "end-pool-override", "End a pool's override: what Git says holds again"), http.StatusOK)),
		func(ctx context.Context, in *PoolPath) (*poolBody, error) {
			return poolAnswer(s.Store.EndOverride(ctx, actorOf(ctx), in.Pool))
		})
	register(s, requires(hubv1.PermissionExecutorManage, op(http.MethodPost, apiBase+"/pools/{pool}/release", "release-pool", "Let go of a pool whose HubPool in a cluster is gone")),
		func(ctx context.Context, in *struct {
			PoolPath
			Owner string `query:"owner" maxLength:"512" doc:"Release the pool only from this HubPool, as cluster:CLUSTER/NAMESPACE/NAME; from any where left out."`
		}) (*poolBody, error) {
			if in.Owner != "" && !clusterOwner.MatchString(in.Owner) {
				return nil, refuseFields("the owner is not valid", []hubv1.FieldError{{Location: "query.owner", Message: ownerMessage}})
			}
			return poolAnswer(s.Store.ReleasePool(ctx, actorOf(ctx), in.Pool, in.Owner))
		})
	// The pool need not be there, so its path is no PoolPath.
	register(s, requires(hubv1.PermissionExecutorManage, op(http.MethodPut, apiBase+"/pools/{name}/definition", "define-pool", "Make a pool what a HubPool of a cluster says")), s.definePool)
	register(s, requires(hubv1.PermissionExecutorManage, status(op(http.MethodDelete, apiBase+"/pools/{pool}/definition", "undefine-pool", "Carry out the deletion policy of a HubPool of a cluster that is gone"), http.StatusOK)),
		func(ctx context.Context, in *struct {
			PoolPath
			Owner string `query:"owner" required:"true" minLength:"1" maxLength:"512" doc:"The HubPool, as cluster:CLUSTER/NAMESPACE/NAME. A pool that is not its own stays as it is."`
		}) (*poolBody, error) {
			if !clusterOwner.MatchString(in.Owner) {
				return nil, refuseFields("the owner is not valid", []hubv1.FieldError{{Location: "query.owner", Message: ownerMessage}})
			}
			return poolAnswer(s.Store.Undefine(ctx, actorOf(ctx), in.Pool, in.Owner))
		})
}

// clusterOwner is what hubv1.ClusterOwner makes.
var clusterOwner = regexp.MustCompile(`^cluster:[A-Za-z0-9._-]{1,128}/[a-z0-9.-]{1,253}/[a-z0-9.-]{1,253}$`)

const ownerMessage = "must be cluster:CLUSTER/NAMESPACE/NAME, where CLUSTER has letters, digits, dots and dashes, at most 128"

func (s *server) definePool(ctx context.Context, in *struct {
	Name string `path:"name" minLength:"1" maxLength:"63" pattern:"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$" doc:"The pool's name. It is made where it is not there."`
	Body hubv1.DefinePoolRequest
}) (*poolBody, error) {
	from := in.Body.Provenance
	if !clusterOwner.MatchString(from.Sync) {
		return nil, refuseFields("the provenance is not valid", []hubv1.FieldError{{Location: "body.provenance.sync", Message: ownerMessage}})
	}
	if err := reported("the provenance is not valid", [2]string{"body.provenance.repository", from.Repository},
		[2]string{"body.provenance.path", from.Path}, [2]string{"body.provenance.revision", from.Revision}); err != nil {
		return nil, err
	}
	if cordon := in.Body.Cordon; cordon != nil {
		if message := lineMessage(cordon.Reason); message != "" {
			return nil, refuseFields("the cordon is not valid", []hubv1.FieldError{{Location: "body.cordon.reason", Message: message}})
		}
	}
	from.Repository = secret.Redact(from.Repository)
	spec, err := specOf(in.Body)
	if err != nil {
		return nil, err
	}
	if err := s.judge(v1alpha1.HubPoolKind, spec, "body.definition", "the definition of pool %s is not valid", in.Name); err != nil {
		return nil, err
	}
	found, err := hubpool.Document(s.Validator, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.HubPoolKind, "metadata": map[string]any{"name": in.Name}, "spec": spec,
	}}, from)
	if err != nil {
		return nil, problem.New(hubv1.CodeInvalid, "%v", err)
	}
	found.MovedFrom = in.Body.MovedFrom
	return poolAnswer(s.Store.Define(ctx, actorOf(ctx), found))
}

// specOf is the spec of the HubPool that a request stands for.
func specOf(request hubv1.DefinePoolRequest) (map[string]any, error) {
	data, err := json.Marshal(request.Definition)
	if err != nil {
		return nil, fmt.Errorf("encode a pool's definition: %w", err)
	}
	spec := map[string]any{}
	if err := json.Unmarshal(data, &spec); err != nil {
		return nil, fmt.Errorf("encode a pool's definition: %w", err)
	}
	if request.Cordon != nil {
		spec["cordon"] = map[string]any{"reason": request.Cordon.Reason}
	}
	return spec, nil
}
