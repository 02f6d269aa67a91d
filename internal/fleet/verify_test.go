package fleet_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"golang.org/x/crypto/ssh"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

var (
	signedAt = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	today    = time.Date(2026, 9, 1, 0, 0, 0, 0, time.UTC)
)

// allowed is a line of allowed signers.
func allowed(name, options string, key ssh.PublicKey) string {
	return strings.TrimSpace(name+" "+options) + " " + string(ssh.MarshalAuthorizedKey(key))
}

func signers(t *testing.T, texts ...string) *fleet.Signers {
	t.Helper()
	out, err := fleet.ParseSigners(map[string][]byte{"signers": []byte(strings.Join(texts, "\n"))})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// at makes PGP's clock stand still.
func at(when time.Time) *packet.Config {
	return &packet.Config{Time: func() time.Time { return when }}
}

// wantVerdict fails unless it is verified by who, or refused with each of the words
// where there are some.
func wantVerdict(t *testing.T, by string, err error, who string, refused []string) {
	t.Helper()
	if len(refused) == 0 {
		if err != nil || !strings.Contains(by, who) {
			t.Errorf("verified by %q, %v, want %q", by, err, who)
		}
		return
	}
	if !errors.Is(err, fleet.ErrUnverified) || errors.Is(err, fleet.ErrSource) || by != "" {
		t.Fatalf("it is %q, %v, want a refusal", by, err)
	}
	t.Log(err)
	for _, word := range refused {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q does not say %q", err, word)
		}
	}
}

func TestSignedCommits(t *testing.T) {
	alice, mallory, rsa := fleettest.Ed25519Key(t), fleettest.Ed25519Key(t), fleettest.RSAKey(t)
	bob, eve := fleettest.PGPKey(t, "bob", at(signedAt.Add(-time.Hour))), fleettest.PGPKey(t, "eve", at(signedAt.Add(-time.Hour)))
	brief := fleettest.PGPKey(t, "brief", &packet.Config{Time: at(signedAt.Add(-time.Hour)).Time, KeyLifetimeSecs: 3600 * 24})
	gone := fleettest.PGPKey(t, "gone", at(signedAt.Add(-time.Hour)))
	if err := gone.RevokeKey(packet.KeyRetired, "left", at(signedAt.Add(time.Hour))); err != nil {
		t.Fatal(err)
	}
	byAlice, byBob := fleettest.SSHSign(t, alice, "git"), fleettest.PGPSign(t, bob, at(signedAt))
	us := signers(t, allowed("alice@example.com", "", alice.PublicKey()), allowed("rita@example.com", `namespaces="git"`, rsa.PublicKey()),
		fleettest.PGPPublic(t, bob), fleettest.PGPPublic(t, brief), fleettest.PGPPublic(t, gone))
	from := func(options string) *fleet.Signers {
		return signers(t, allowed("alice@example.com", options, alice.PublicKey()))
	}
	change := func(old, new string) func(string) string {
		return func(commit string) string { return strings.Replace(commit, old, new, 1) }
	}
	undate := func(commit string) string {
		return regexp.MustCompile(`(?m)^(committer .*>) [0-9]+ `).ReplaceAllString(commit, "$1 lately ")
	}
	server := serve(t)
	server.Commit(repository, map[string]string{"a": "first"})
	for name, test := range map[string]struct {
		signers *fleet.Signers
		sign    fleettest.Sign
		edit    func(string) string
		by      string
		refused []string
	}{
		"an SSH key":                      {us, byAlice, nil, "alice@example.com (ssh-ed25519 SHA256:", nil},
		"an RSA key":                      {us, fleettest.SSHSign(t, rsa, "git"), nil, "rita@example.com (ssh-rsa SHA256:", nil},
		"a bare SSH key":                  {signers(t, string(ssh.MarshalAuthorizedKey(alice.PublicKey()))), byAlice, nil, describe(alice.PublicKey()), nil},
		"a PGP key":                       {us, byBob, nil, "bob <bob@example.com> (PGP ", nil},
		"a key within its time":           {from(`valid-after="20260304",valid-before="20260305Z"`), byAlice, nil, "alice@example.com", nil},
		"one of two lines of a key":       {signers(t, allowed("old", `valid-before="20200101"`, alice.PublicKey()), allowed("new", `valid-after="20200101"`, alice.PublicKey())), byAlice, nil, "new (", nil},
		"nobody":                          {us, func(string) string { return "" }, func(c string) string { return strings.Replace(c, "gpgsig \n", "", 1) }, "", []string{"it is not signed", "alice@example.com (ssh-ed25519", "git commit --gpg-sign"}},
		"a stranger's SSH key":            {us, fleettest.SSHSign(t, mallory, "git"), nil, "", []string{describe(mallory.PublicKey()), "no signer's key", "alice@example.com"}},
		"a stranger's PGP key":            {us, fleettest.PGPSign(t, eve, at(signedAt)), nil, "", []string{"PGP key", "no signer's key", "bob <bob@example.com>"}},
		"a key for another namespace":     {us, fleettest.SSHSign(t, alice, "file"), nil, "", []string{`for the namespace "file"`}},
		"a key that may not sign for Git": {from(`namespaces="file,mail*"`), byAlice, nil, "", []string{"alice@example.com", "may not sign for the namespace git"}},
		"a key that was too early":        {from(`valid-after="20260401"`), byAlice, nil, "", []string{"may sign from 2026-04-01", "dated 2026-03-04T05:06:07Z"}},
		"a key that was too late":         {from(`valid-before="20260304000000Z"`), byAlice, nil, "", []string{"may sign until 2026-03-04"}},
		"a key in its last second":        {from(`valid-before="20260304050607Z"`), byAlice, nil, "alice@example.com", nil},
		"a time without a date":           {from(`valid-before="20270101"`), func(p string) string { return byAlice(undate(p)) }, undate, "", []string{"does not say when it was made"}},
		"a key that all but Git is for":   {from(`namespaces="*,!git"`), byAlice, nil, "", []string{"alice@example.com", "may not sign for the namespace git"}},
		"a name that is taken out":        {signers(t, allowed("!alice@example.com", "", alice.PublicKey())), byAlice, nil, "", []string{"!alice@example.com", "is let sign by no name of the line"}},
		"a PGP key that has expired":      {us, fleettest.PGPSign(t, brief, at(signedAt)), nil, "", []string{"brief@example.com", "has expired"}},
		"a PGP key that is revoked":       {us, fleettest.PGPSign(t, gone, at(signedAt)), nil, "", []string{"gone@example.com", "revoked"}},
		"a commit that was changed":       {us, byAlice, change("Change the fleet", "Change another"), "", []string{"it was changed after it was signed", "alice@example.com"}},
		"a PGP commit that was changed":   {us, byBob, change("Change the fleet", "Change another"), "", []string{"it was changed after it was signed", "bob@example.com"}},
		"another's signature":             {us, func(string) string { return byAlice("tree of another commit") }, nil, "", []string{"changed after it was signed"}},
		"two signatures":                  {us, func(p string) string { return byAlice(p) + fleettest.SSHSign(t, mallory, "git")(p) }, nil, "", []string{"two signatures"}},
		"two headers": {us, byAlice, func(c string) string {
			return strings.Replace(c, "gpgsig ", "gpgsig "+strings.ReplaceAll(strings.TrimSpace(byBob("x")), "\n", "\n ")+"\ngpgsig ", 1)
		}, "", []string{"two signatures"}},
		"a signature of SHA-256 beside it": {us, byAlice, func(c string) string {
			return strings.Replace(c, "\n\n", "\ngpgsig-sha256 -----BEGIN\n x\n\n", 1)
		}, "alice@example.com", nil},
		"a signature in the message": {us, func(string) string { return "" }, func(c string) string { return strings.Replace(c, "gpgsig \n", "", 1) + "\ngpgsig " + byAlice(c) }, "", []string{"it is not signed"}},
		"what is no signature":       {us, func(string) string { return "-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----" }, nil, "", []string{"cannot be read"}},
		"a certificate's":            {us, func(string) string { return "-----BEGIN SIGNED MESSAGE-----\nAAAA\n-----END SIGNED MESSAGE-----" }, nil, "", []string{"neither of PGP nor of SSH"}},
		"a PGP block without an end": {us, func(string) string { return "-----BEGIN PGP SIGNATURE-----\n\nAAAA" }, nil, "", []string{"cannot be read"}},
	} {
		t.Run(name, func(t *testing.T) {
			commit := server.SignedCommit(repository, map[string]string{"a": name}, signedAt, test.sign, test.edit)
			git := open(t, server, t.TempDir(), fleet.Auth{})
			revision, err := git.Resolve(t.Context(), fleet.Ref{})
			if err != nil || revision.Commit != commit {
				t.Fatalf("%s, %v", revision, err)
			}
			by, err := git.Verify(t.Context(), revision, fleet.Verification{Commit: true, Signers: test.signers, Now: today})
			wantVerdict(t, by, err, test.by, test.refused)
			// What was fetched for it is not fetched again.
			before := server.Fetches()
			if checkout(t, git, fleet.Ref{Commit: commit}); server.Fetches() != before {
				t.Error("it is fetched twice")
			}
		})
	}
}

func TestSignedTags(t *testing.T) {
	alice, mallory := fleettest.Ed25519Key(t), fleettest.Ed25519Key(t)
	bob := fleettest.PGPKey(t, "bob", nil)
	us := signers(t, allowed("alice@example.com", "", alice.PublicKey()), fleettest.PGPPublic(t, bob))
	byAlice := fleettest.SSHSign(t, alice, "git")
	server := serve(t)
	server.Commit(repository, map[string]string{"a": "first"})
	unsigned := server.Commit(repository, map[string]string{"a": "second"})
	signed := server.SignedCommit(repository, map[string]string{"a": "third"}, time.Now(), fleettest.PGPSign(t, bob, nil), nil)
	server.SignedTag(repository, "v1.0.0", "", unsigned, byAlice)
	server.SignedTag(repository, "v1.1.0", "", signed, byAlice)
	server.SignedTag(repository, "v1.2.0", "", signed, fleettest.PGPSign(t, bob, nil))
	server.SignedTag(repository, "v2.0.0", "", signed, nil)
	server.SignedTag(repository, "v3.0.0", "", signed, fleettest.SSHSign(t, mallory, "git"))
	server.SignedTag(repository, "v1.0.0", "v4.0.0", unsigned, byAlice)
	server.LightTag(repository, "light", signed)
	tag, both := fleet.Verification{Tag: true}, fleet.Verification{Commit: true, Tag: true}
	for name, test := range map[string]struct {
		ref     fleet.Ref
		v       fleet.Verification
		by      string
		refused []string
	}{
		"a tag":                                {fleet.Ref{Tag: "v1.0.0"}, tag, "alice@example.com", nil},
		"a tag of PGP":                         {fleet.Ref{Tag: "v1.2.0"}, tag, "bob@example.com", nil},
		"the tag of a range":                   {fleet.Ref{Semver: "~1.1"}, tag, "alice@example.com", nil},
		"a tag and its commit":                 {fleet.Ref{Tag: "v1.1.0"}, both, "alice@example.com", nil},
		"the commit of a tag":                  {fleet.Ref{Tag: "v2.0.0"}, fleet.Verification{Commit: true}, "bob@example.com", nil},
		"a signed tag of a commit that is not": {fleet.Ref{Tag: "v1.0.0"}, both, "", []string{"verify commit", "it is not signed"}},
		"an unsigned tag":                      {fleet.Ref{Tag: "v2.0.0"}, both, "", []string{"verify tag v2.0.0", "it is not signed", "git tag --sign"}},
		"a stranger's tag":                     {fleet.Ref{Tag: "v3.0.0"}, tag, "", []string{describe(mallory.PublicKey())}},
		"a signed tag under another name":      {fleet.Ref{Semver: "4.x"}, tag, "", []string{`its signature is for tag "v1.0.0"`}},
		"a lightweight tag":                    {fleet.Ref{Tag: "light"}, tag, "", []string{"lightweight", "git tag --sign"}},
		"a branch":                             {fleet.Ref{}, tag, "", []string{"a branch was followed"}},
		"a commit":                             {fleet.Ref{Commit: signed}, tag, "", []string{"a commit was followed"}},
	} {
		t.Run(name, func(t *testing.T) {
			git := open(t, server, t.TempDir(), fleet.Auth{})
			revision, err := git.Resolve(t.Context(), test.ref)
			if err != nil {
				t.Fatal(err)
			}
			test.v.Signers, test.v.Now = us, time.Now()
			by, err := git.Verify(t.Context(), revision, test.v)
			wantVerdict(t, by, err, test.by, test.refused)
			if test.v.Commit && test.v.Tag && err == nil && !strings.Contains(by, " and bob") {
				t.Errorf("verified by %s alone", by)
			}
		})
	}
	t.Run("a tag of an earlier checkout", func(t *testing.T) {
		git := open(t, server, t.TempDir(), fleet.Auth{})
		checkout(t, git, fleet.Ref{Commit: signed})
		revision, err := git.Resolve(t.Context(), fleet.Ref{Tag: "v1.1.0"})
		if err != nil {
			t.Fatal(err)
		}
		tag.Signers, tag.Now = us, time.Now()
		if _, err := git.Verify(t.Context(), revision, tag); err != nil {
			t.Error(err)
		}
	})
}

// What git itself signs is read, too.
func TestWhatGitSigns(t *testing.T) {
	private, public := fleettest.Identity(t, "")
	server := serve(t)
	server.Commit(repository, map[string]string{"a": "first"})
	work := t.TempDir()
	key := filepath.Join(t.TempDir(), "key")
	fleettest.WriteFiles(t, filepath.Dir(key), map[string]string{"key": private})
	run := func(args ...string) {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-c", "gpg.format=ssh", "-c", "user.signingkey=" + key, "-c", "user.name=Alice", "-c", "user.email=alice@example.com"}, args...)...)
		cmd.Dir, cmd.Env = work, append(os.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	if out, err := exec.Command("chmod", "600", key).CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	run("clone", "-q", server.Path(repository), ".")
	run("commit", "-q", "--allow-empty", "--gpg-sign", "-m", "Signed by git\n\nwith a body")
	run("tag", "--sign", "-m", "one\n\ntwo", "v1.0.0")
	run("push", "-q", "origin", "HEAD:main", "v1.0.0")
	git := open(t, server, t.TempDir(), fleet.Auth{})
	revision, err := git.Resolve(t.Context(), fleet.Ref{Semver: "*"})
	if err != nil {
		t.Fatal(err)
	}
	by, err := git.Verify(t.Context(), revision, fleet.Verification{Commit: true, Tag: true, Signers: signers(t, allowed("alice@example.com", "", public)), Now: time.Now()})
	wantVerdict(t, by, err, "alice@example.com", nil)
}

func TestSigners(t *testing.T) {
	key := fleettest.Ed25519Key(t).PublicKey()
	private, _ := fleettest.Identity(t, "")
	bob := fleettest.PGPPublic(t, fleettest.PGPKey(t, "bob", nil))
	for text, says := range map[string]string{
		"":                                      "nobody is among the signers",
		"# none":                                "nobody is among the signers",
		private:                                 "signers: line 1: a private key has no place here",
		"alice":                                 "signers: line 1: it is neither an SSH public key nor",
		"\nalice ssh-ed25519 AAAA":              "signers: line 2: it is neither",
		allowed("alice", "cert-authority", key): "authorities are not believed",
		allowed("alice", "no-touch-required", key):                              `option "no-touch-required" is not known`,
		allowed("alice", `valid-after="soon"`, key):                             `"soon" is no time`,
		allowed("alice", `namespaces=git`, key):                                 `the value of namespaces is not in quotes: write namespaces="…"`,
		allowed("alice", `namespaces="git" x`, key):                             "it is neither",
		allowed("alice", `namespaces="git"x`, key):                              "write a comma between options",
		allowed("alice", `namespaces="git",`, key):                              `option "" is not known`,
		allowed("alice", `namespaces="a",Namespaces="b"`, key):                  "option namespaces is there twice",
		allowed("alice", `valid-after="20260102",valid-before="20260101"`, key): "its time ends before it begins",
		allowed("", `namespaces="git"`, key):                                    "it has options and no name",
		allowed("", "cert-authority", key):                                      "it has options and no name",
		allowed(`"alice`, "", key):                                              "it is neither",
		"alice " + string(ssh.MarshalAuthorizedKey(certificate(t, key))):        "certificates are not believed",
		strings.Replace(bob, "-----END", "-----AND", 1):                         "the PGP key has no end",
		strings.Replace(bob, bob[100:140], "%%%%%%%%%%", 1):                     "it is no PGP public key",
	} {
		_, err := fleet.ParseSigners(map[string][]byte{"signers": []byte(text)})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", text, err, says)
		}
		if err != nil && strings.Contains(err.Error(), strings.Fields(string(ssh.MarshalAuthorizedKey(key)))[1]) {
			t.Errorf("%v quotes the file", err)
		}
	}
	all := signers(t, bob, allowed("# comment\nalice", "", key), fleettest.PGPPublic(t, fleettest.PGPKey(t, "ben", nil)))
	for _, name := range []string{"alice (ssh-ed25519", "bob <bob@example.com>", "ben <"} {
		if !strings.Contains(all.String(), name) {
			t.Errorf("%s lacks %s", all, name)
		}
	}
}
