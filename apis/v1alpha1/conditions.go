package v1alpha1

// Condition types.
const (
	// ConditionReady is True when the object does what it says.
	ConditionReady = "Ready"
	// ConditionReconciling is True while a sync is in progress.
	ConditionReconciling = "Reconciling"
	// ConditionStalled is True when only a change of the object or of Git helps.
	ConditionStalled = "Stalled"
	// ConditionDegraded is True when something keeps a pool from being served.
	ConditionDegraded = "Degraded"
	// ConditionInvalid is True when the spec breaks a rule.
	ConditionInvalid = "Invalid"
	// ConditionUnsupported is True while the spec asks for what this version
	// does not do; it is there only then.
	ConditionUnsupported = "Unsupported"
	// ConditionDrifted is True while two surfaces disagree.
	ConditionDrifted = "Drifted"
)

// Reason is a condition's or an Event's machine-readable reason.
type Reason string

// Reasons of ExecutorPool conditions.
const (
	ReasonConnecting           Reason = "Connecting"
	ReasonServing              Reason = "Serving"
	ReasonValid                Reason = "Valid"
	ReasonDraining             Reason = "Draining"
	ReasonInvalidSpec          Reason = "InvalidSpec"
	ReasonHubUnavailable       Reason = "HubUnavailable"
	ReasonHubRefused           Reason = "HubRefused"
	ReasonHubNotAllowed        Reason = "HubNotAllowed"
	ReasonCredentialUnreadable Reason = "CredentialUnreadable"
	ReasonHubTooOld            Reason = "HubTooOld"
	ReasonDuplicatePool        Reason = "DuplicatePool"
	ReasonRunnersRefused       Reason = "RunnersRefused"
	ReasonPodRefused           Reason = "PodRefused"
	ReasonPodStuck             Reason = "PodStuck"
	ReasonRuleBroken           Reason = "RuleBroken"
	ReasonConverging           Reason = "Converging"
)

// Reasons of conditions of every kind.
const (
	ReasonNotBuilt Reason = "NotBuilt"
)

// Reasons that appear only as Events on an ExecutorPool.
const (
	ReasonScaledUp        Reason = "ScaledUp"
	ReasonScaledDown      Reason = "ScaledDown"
	ReasonOrphanCollected Reason = "OrphanCollected"
	ReasonRetireRefused   Reason = "RetireRefused"
	ReasonRunnerFailed    Reason = "RunnerFailed"
)

// Reasons of PoolSync conditions.
const (
	ReasonReconciliationSucceeded Reason = "ReconciliationSucceeded"
	ReasonProgressing             Reason = "Progressing"
	ReasonSuspended               Reason = "Suspended"
	ReasonDependencyNotReady      Reason = "DependencyNotReady"
	ReasonHealthCheckFailed       Reason = "HealthCheckFailed"
	ReasonSourceUnavailable       Reason = "SourceUnavailable"
	ReasonArtifactFailed          Reason = "ArtifactFailed"
	ReasonNotVerified             Reason = "NotVerified"
	ReasonPathNotFound            Reason = "PathNotFound"
	ReasonBuildFailed             Reason = "BuildFailed"
	ReasonEmptyBuild              Reason = "EmptyBuild"
	ReasonTooManyObjects          Reason = "TooManyObjects"
	ReasonValidationFailed        Reason = "ValidationFailed"
	ReasonApplyFailed             Reason = "ApplyFailed"
	ReasonPruneFailed             Reason = "PruneFailed"
	ReasonPruneNeedsApproval      Reason = "PruneNeedsApproval"
	ReasonOwnedByAnother          Reason = "OwnedByAnother"
	ReasonNoDrift                 Reason = "NoDrift"
	ReasonDriftDetected           Reason = "DriftDetected"
	ReasonDriftCorrected          Reason = "DriftCorrected"
	ReasonContested               Reason = "Contested"
	ReasonObserved                Reason = "Observed"
	ReasonCommitWaits             Reason = "CommitWaits"
)

// Reasons that appear only as Events on a PoolSync.
const (
	ReasonHistoryRewritten Reason = "HistoryRewritten"
	ReasonResumed          Reason = "Resumed"
)

// Reasons of HubPool conditions.
const (
	ReasonPushed              Reason = "Pushed"
	ReasonLeftToHub           Reason = "LeftToHub"
	ReasonTokenUnreadable     Reason = "TokenUnreadable"
	ReasonTokenRefused        Reason = "TokenRefused"
	ReasonDefinitionRefused   Reason = "DefinitionRefused"
	ReasonHubSyncOwns         Reason = "HubSyncOwns"
	ReasonRenameWaits         Reason = "RenameWaits"
	ReasonRenameTaken         Reason = "RenameTaken"
	ReasonPoolRevoked         Reason = "PoolRevoked"
	ReasonCredentialNotOurs   Reason = "CredentialNotOurs"
	ReasonCredentialUnwritten Reason = "CredentialUnwritten"
	ReasonOverridden          Reason = "Overridden"
)

// Reasons that appear only as Events on a HubPool.
const (
	ReasonCredentialMinted  Reason = "CredentialMinted"
	ReasonCredentialRevoked Reason = "CredentialRevoked"
	ReasonOrphaned          Reason = "Orphaned"
)

// Causes of a DriftEntry.
const (
	DriftCommitNotApplied = "CommitNotApplied"
	DriftClusterEdited    = "ClusterEdited"
	DriftHubEdited        = "HubEdited"
	DriftBothEdited       = "BothEdited"
	DriftBreakGlass       = "BreakGlass"
	DriftConverging       = "Converging"
	DriftRuleBroken       = "RuleBroken"
)

// Outcomes of a DriftEntry.
const (
	// OutcomeCorrected: it is gone.
	OutcomeCorrected = "Corrected"
	// OutcomeWaiting: it will go without anybody's doing.
	OutcomeWaiting = "Waiting"
	// OutcomeReportOnly: it is shown, and nobody is to correct it.
	OutcomeReportOnly = "ReportOnly"
	// OutcomeObserved: the document says that it is only to be compared.
	OutcomeObserved = "Observed"
	// OutcomeContested: another writer undoes each correction.
	OutcomeContested = "Contested"
	// OutcomeRefused: what Git says cannot be applied.
	OutcomeRefused = "Refused"
	// OutcomeSuspended: whoever would correct it is suspended.
	OutcomeSuspended = "Suspended"
)

// remedies say what to do about a reason that is not good news.
var remedies = map[Reason]string{
	ReasonInvalidSpec:          "fix the fields that the message names",
	ReasonHubUnavailable:       "check that the hub's URL in the spec resolves and is reachable from the controller's namespace, that the hub itself answers there, and that the pin or the certificates are the hub's current ones (cloop hub pin prints the pin)",
	ReasonHubRefused:           "mint a new credential with `cloop executor pool rotate-credential` and put it into the Secret that spec.poolCredentialSecretRef names",
	ReasonHubNotAllowed:        "use a hub on the controller's --allowed-hub list, or ask the cluster's operator to add this one",
	ReasonCredentialUnreadable: "create the Secret that spec.poolCredentialSecretRef names, or correct its name or key",
	ReasonHubTooOld:            "upgrade the hub",
	ReasonDuplicatePool:        "delete one of the ExecutorPools that serve this hub pool, or give the one in another cluster a credential of its own (cloop executor pool rotate-credential)",
	ReasonRunnersRefused:       "raise the hub pool's maxRunners or uncordon it, if that is what you want",
	ReasonPodRefused:           "change what the API server names: a ResourceQuota, an admission policy or the namespace's Pod Security level",
	ReasonPodStuck:             "correct spec.template (nodeSelector, tolerations, resources, image), or give the cluster what it names: Pods that wait are then replaced",
	ReasonRuleBroken:           "change one of the two in Git; `cloop fleet check` shows the rule",
	ReasonConverging:           "wait for the sync, or hurry it with `cloop fleet reconcile`",
	ReasonNotBuilt:             "take the fields out of the spec, or upgrade cloop to a version that does what they ask for",
	ReasonRetireRefused:        "nothing, unless it lasts: the runners were given work meanwhile",
	ReasonRunnerFailed:         "read the runner's report that the Event quotes",
	ReasonSourceUnavailable:    "check spec.source.git: URL, ref, the Secret of secretRef and that Git is reachable; nothing was changed",
	ReasonArtifactFailed:       "see what the source of Flux that spec.sourceRef names says of itself; nothing was changed",
	ReasonNotVerified:          "have the commit or tag signed by one of the signers whom the Secret of spec.source.git.verify names; nothing was changed",
	ReasonHistoryRewritten:     "nothing, if it was meant: what Git has now is followed; else push what was there again, and have the forge refuse forced pushes",
	ReasonDependencyNotReady:   "see what the PoolSync that is named says of itself; this one goes on by itself, and what was applied before stays",
	ReasonHealthCheckFailed:    "what Git says is applied: see what the objects that are named say of themselves",
	ReasonPathNotFound:         "correct spec.path, or commit an overlay there; nothing was changed",
	ReasonBuildFailed:          "run `cloop fleet check` on the repository and commit a fix; nothing was changed",
	ReasonEmptyBuild:           "an overlay without a document prunes nothing: commit one, or delete the PoolSync to remove its pools",
	ReasonTooManyObjects:       "divide the overlay over two PoolSyncs, or have the commit replace fewer objects at once; nothing was changed",
	ReasonValidationFailed:     "run `cloop fleet check` on the repository and commit a fix; what is wrong stays as it was applied last",
	ReasonApplyFailed:          "read the API server's message, most often of a right that the applying account lacks; it is tried again by itself",
	ReasonPruneFailed:          "read the API server's message: usually a right that the applying account lacks",
	ReasonPruneNeedsApproval:   "if the deletions are meant, annotate the PoolSync with cloop.dev/approve-prune and the revision",
	ReasonOwnedByAnother:       "leave the object in one of the two overlays; where the other PoolSync is gone for good, remove the labels poolsync.cloop.dev/name and poolsync.cloop.dev/namespace from the object, and where the other HubPool is, run `cloop executor pool release` for the pool",
	ReasonLeftToHub:            "nothing, if the hub reads this document from Git itself; else say in spec.hub which hub to push it to",
	ReasonTokenUnreadable:      "create the Secret that spec.hub.tokenSecretRef names with a token of the hub (cloop hub token create), or correct its name or key",
	ReasonTokenRefused:         "put a token into the Secret that spec.hub.tokenSecretRef names which has not ended, may use executor.read and executor.manage, and whose ceiling the pool is within",
	ReasonDefinitionRefused:    "change the fields that the hub names, or have the token's ceiling widened",
	ReasonHubSyncOwns:          "keep the pool in one of the two places, and take it out of the other",
	ReasonRenameWaits:          "take the HubPool of the old name out of Git; for a new pool beside the old one take the annotation cloop.dev/moved-from out",
	ReasonRenameTaken:          "for a new pool beside that one take the annotation cloop.dev/moved-from out; else take this HubPool out of Git",
	ReasonPoolRevoked:          "nothing, if it was meant; to have the pool made again, change its definition in Git",
	ReasonCredentialNotOurs:    "name another Secret in spec.credential.secretRef, or delete the one that is there if nobody needs it",
	ReasonCredentialUnwritten:  "create the namespace that spec.credential.secretRef names, and bind the ClusterRole cloop-fleet-credential-writer there to the fleet controller's account",
	ReasonOverridden:           "nothing, if it is meant: it ends by itself; to end it now, run `cloop executor pool show` and what that names, or change the definition in Git",
	ReasonOrphaned:             "see at the hub whether the pool is still wanted: `cloop executor pool release` keeps it without a HubPool, and `revoke` ends it",
	ReasonCommitWaits:          "see the condition Ready: it says what keeps the commit from being applied",
	ReasonContested:            "stop the other writer, or leave the field to it with spec.drift.ignore; Git's value is put back ever more slowly meanwhile",
	ReasonObserved:             "take the annotation cloop.dev/observe out of the documents once Git says what is wanted: they are applied then",
	ReasonDriftDetected:        "change the field in Git, or set spec.drift.mode to Correct to have Git's value restored",
}

// Remedy says what a person can do about a reason; empty where nothing is
// wrong.
func (r Reason) Remedy() string { return remedies[r] }
