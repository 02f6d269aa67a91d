package v1alpha1

// Labels and annotations on objects in a cluster.
const (
	// LabelExecutorPool is on every object that the executor controller makes
	// for a pool; its value is the ExecutorPool's name, shortened and hashed
	// where the name is no legal label value.
	LabelExecutorPool = "cloop.dev/executor-pool"
	// LabelRunner is on a runner Pod and its Secret; its value is the hub's
	// runner id.
	LabelRunner = "cloop.dev/runner"
	// LabelAppName marks runner Pods for people and for NetworkPolicies.
	LabelAppName = "app.kubernetes.io/name"
	// RunnerAppName is the value of LabelAppName on a runner Pod.
	RunnerAppName = "cloop-runner"

	// LabelPoolSyncName and LabelPoolSyncNamespace say which PoolSync applied
	// an object.
	LabelPoolSyncName      = "poolsync.cloop.dev/name"
	LabelPoolSyncNamespace = "poolsync.cloop.dev/namespace"

	// AnnotationPoolName, AnnotationRunnerID and AnnotationMintKey are on a
	// runner Pod and its Secret: the ExecutorPool's name, the hub's runner id
	// and the key that the runner was minted with, unshortened.
	AnnotationPoolName = "cloop.dev/pool-name"
	AnnotationRunnerID = "cloop.dev/runner-id"
	AnnotationMintKey  = "cloop.dev/mint-key"
	// AnnotationTemplate on a runner's Pod tells what it was made of from what it
	// would be made of now.
	AnnotationTemplate = "cloop.dev/template"

	// AnnotationForceDelete, "true" on an ExecutorPool that is being deleted,
	// deletes busy runners as well: it stops runs.
	AnnotationForceDelete = "cloop.dev/force-delete"
	// AnnotationRevision is the Git revision that an object was applied from.
	AnnotationRevision = "cloop.dev/revision"
	// AnnotationSourcePath is the file in the repository, relative to its
	// root, that an object was applied from.
	AnnotationSourcePath = "cloop.dev/source-path"
	// AnnotationMovedFrom on an object of a fleet repository says which one it was
	// before: NAME, or NAMESPACE/NAME. A comparison of commits shows a rename then.
	AnnotationMovedFrom = "cloop.dev/moved-from"
	// AnnotationObserve, "true" on a pool of a fleet repository, has it compared and
	// shown, and neither applied nor pruned.
	AnnotationObserve = "cloop.dev/observe"
	// AnnotationApprovePrune names the revision whose prune beyond the limit
	// a person has approved.
	AnnotationApprovePrune = "cloop.dev/approve-prune"

	// AnnotationOrphan, "true" on a HubPool that is being deleted, lets it go
	// without its deletion policy: the pool stays at the hub as it is.
	AnnotationOrphan = "cloop.dev/orphan"

	// LabelCredentialOf is on a Secret that the HubPool controller writes a pool
	// credential into; its value is the HubPool's namespace and name, shortened and
	// hashed where that is no legal label value. No other Secret is written.
	LabelCredentialOf = "cloop.dev/credential-of"
	// AnnotationCredentialID and AnnotationCredentialCreated, on that Secret, say
	// which credential it has and when the hub made it (RFC 3339);
	// AnnotationCredentialReplaces names earlier ones that may still be accepted,
	// separated by commas.
	AnnotationCredentialID       = "cloop.dev/credential-id"
	AnnotationCredentialCreated  = "cloop.dev/credential-created"
	AnnotationCredentialReplaces = "cloop.dev/credential-replaces"
	// AnnotationCredentialMint is the key of a mint whose outcome is not known yet.
	AnnotationCredentialMint = "cloop.dev/credential-mint"

	// FinalizerHubPool keeps a HubPool until the hub has carried out its deletion
	// policy.
	FinalizerHubPool = "cloop.dev/hub-pool"
	// FinalizerExecutorPool keeps an ExecutorPool until it is drained.
	FinalizerExecutorPool = "cloop.dev/executor-pool"
	// FinalizerPoolSync keeps a PoolSync until it has pruned what it applied.
	FinalizerPoolSync = "cloop.dev/pool-sync"
)

// Field managers, as they show in managedFields.
const (
	// FieldManagerPoolSync owns what a PoolSync applies from Git.
	FieldManagerPoolSync = "cloop-fleet-controller"
	// FieldManagerExecutorPool owns what the executor controller writes.
	FieldManagerExecutorPool = "cloop-executor-controller"
)
