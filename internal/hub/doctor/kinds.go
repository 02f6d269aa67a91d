package doctor

import (
	"strings"

	"cloop.dev/cloop/apis/hubv1"
)

// Kind is what is known of a finding before anybody looks.
type Kind struct {
	ID hubv1.FindingID
	// Severities that it comes with, the worst last.
	Severities []hubv1.Severity
	Meaning    string
	Remedy     string
	// Command fixes it or shows more; ABOUT in it stands for what the finding
	// is about.
	Command string
}

const about = "ABOUT"

var (
	passes = []hubv1.Severity{hubv1.SeverityPass}
	warns  = []hubv1.Severity{hubv1.SeverityWarn}
	fails  = []hubv1.Severity{hubv1.SeverityFail}
	both   = []hubv1.Severity{hubv1.SeverityWarn, hubv1.SeverityFail}
)

var kinds = []Kind{
	{hubv1.FindingPools, passes, "The pool's runners and queue, and which build was in contact last", "", ""},
	{hubv1.FindingPoolsContact, fails,
		"Runs wait and nobody starts runners for them: the pool has no live credential, no controller was ever in contact, or none has been for ten minutes",
		"install the controller with the pool's credential, or look at its Pods and at the ExecutorPool's conditions: HubUnavailable or HubRefused says why it cannot reach the hub",
		"cloop executor pool show " + about},
	{hubv1.FindingPoolsCapacity, warns,
		"A run has waited for ten minutes although a controller is in contact, or runs wait for a cordoned pool",
		"raise both maxima if the cluster has room; for room that is not used look at the ExecutorPool's conditions and Events: a lower spec.maxRunners, a quota, an admission policy, an image that the nodes cannot pull; uncordon a pool whose cordon has served its purpose",
		"cloop executor pool show " + about},
	{hubv1.FindingPoolsStorage, warns,
		"The pool's controller reports what keeps runners from starting, such as volumes that stay Pending",
		"look at the claims and the Events in the controller's namespace: a storage class that cannot provision, a quota, an admission policy",
		"kubectl -n NAMESPACE describe xpool,pvc"},
	{hubv1.FindingPoolsDuplicate, warns,
		"Two ExecutorPools use one credential of the pool; each would retire the other's runners, so only the first serves",
		"delete one of the two, or give the one in another cluster a credential of its own",
		"cloop executor pool rotate-credential " + about},
	{hubv1.FindingPoolsOverride, warns,
		"Somebody has set aside what Git says of the pool, for a time; it ends by itself",
		"put what is to stay into the pool's file in Git, or have the pool as Git says again",
		"cloop executor pool end-override " + about},
	{hubv1.FindingPoolsProtocol, warns,
		"A controller that was in contact within a day does not speak all that a controller of the hub's build speaks",
		"upgrade the controller to the hub's build: first the definitions, then the image",
		"cloop executor controller crd | kubectl apply --server-side -f -"},

	{hubv1.FindingStorage, passes, "The database takes changes, and its disk has room", "", ""},
	{hubv1.FindingStorageDatabase, fails,
		"The hub cannot read or change its database: nothing is queued, handed out or settled until it can",
		"make room on its disk or give the data directory back, and it goes on by itself; do not stop a hub whose files were removed before they are saved, the hub's log says how; a damaged database needs a backup in its place",
		"df -h DATA-DIR"},
	{hubv1.FindingStorageDisk, both,
		"The disk of the data directory is nearly full: the hub stops taking changes when it is",
		"make room or make it larger; retention in the hub's configuration says how long logs and runs are kept",
		"df -h DATA-DIR"},

	{hubv1.FindingMembers, passes, "The hubs that share the database do the same for controllers, and their clocks agree", "", ""},
	{hubv1.FindingMembersBuilds, warns,
		"A hub that shares the database is older than another: what it cannot do is turned off for all",
		"bring every hub to the same build; the feature comes on by itself when the last old one has stopped",
		"cloop hub doctor"},
	{hubv1.FindingMembersClock, warns,
		"This hub's clock and that of the database differ: leases go by the database's, while log lines and the validity of certificates go by the hub's",
		"let a time service keep the clocks of both machines",
		"timedatectl status"},

	{hubv1.FindingAccess, passes, "No token is left from the first start that nobody needs any more", "", ""},
	{hubv1.FindingAccessBootstrap, warns,
		"The token that the hub made at its first start, or a reset made, may do everything, never ends and is nobody's own; others who have role:admin have tokens of theirs",
		"sign in as one of the others, revoke it and delete the file that it is in; who loses every token gets another at the hub's machine with `cloop hub reset-admin`",
		"cloop hub token revoke " + about},

	{hubv1.FindingTLS, passes, "The certificate that the hub shows is valid for long enough", "", ""},
	{hubv1.FindingTLSExpiry, both,
		"The certificate that the hub shows is over or soon will be: clients that check it then refuse the hub, and those that only pin its key do not",
		"renew the files of --tls-cert and --tls-key, which the hub reads again by itself; a certificate of the hub's own is made anew when the hub starts without DATA-DIR/tls/hub.crt, with a new key and so a new pin",
		"cloop hub pin"},
	{hubv1.FindingTLSReload, warns,
		"The certificate's files have changed and cannot be used, so the hub goes on with the old ones",
		"put a certificate and the key that belongs to it there; the hub tries again by itself",
		"openssl x509 -noout -subject -enddate -in " + about},

	{hubv1.FindingSyncs, passes, "The sync has applied what its repository says", "", ""},
	{hubv1.FindingSyncsFailed, fails,
		"The sync cannot read its repository or refuses what it says, so commits do not reach the hub; pools stay as they are",
		"do what the message says, commit, and the sync goes on by itself",
		"cloop fleet status"},
	{hubv1.FindingSyncsPrune, fails,
		"A commit removes more pools at once than pruneLimit of the sync: they stay until somebody says that they may go",
		"if they are to go, run the command that the message ends with; if not, put them back in Git",
		"cloop fleet status"},
	{hubv1.FindingSyncsStale, warns,
		"The sync has not looked at its repository for more than three times its interval",
		"ask for it; if nothing comes of that, look at the hub's log",
		"cloop fleet reconcile --wait"},
	{hubv1.FindingSyncsStatuses, warns,
		"What became of commits cannot be posted to the forge, so pull requests do not show it",
		"correct the token in status.tokenFile of the sync, its rights, or the way to the forge; what waits is posted then",
		"cloop fleet status"},
	{hubv1.FindingSyncsWebhooks, warns,
		"The last event that came for the sync's webhook was refused; the sync still looks by its interval",
		"give the forge and webhook.secretFile of the sync the same secret; if the forge sent nothing, somebody else did and there is nothing to do",
		"cloop fleet status"},
}

// Kinds lists every finding there is, in the order that reports have.
func Kinds() []Kind { return kinds }

// Of is the kind of an id; ok is false for none.
func Of(id hubv1.FindingID) (kind Kind, ok bool) {
	for _, k := range kinds {
		if k.ID == id {
			return k, true
		}
	}
	return Kind{}, false
}

// finding is one of the id, about a name or about nothing in particular.
func finding(id hubv1.FindingID, severity hubv1.Severity, name, found string) hubv1.Finding {
	kind, _ := Of(id)
	command := kind.Command
	if name != "" {
		command = strings.ReplaceAll(command, about, name)
	}
	return hubv1.Finding{ID: id, Severity: severity, About: name, Found: found, Meaning: kind.Meaning, Remedy: kind.Remedy, Command: command}
}
