package fleet_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"math"
	mathrand "math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"cloop.dev/cloop/internal/fleet"
	"cloop.dev/cloop/internal/fleet/fleettest"
)

// certificate is one of an authority of its own, for a key.
func certificate(t *testing.T, key ssh.PublicKey) *ssh.Certificate {
	t.Helper()
	out := &ssh.Certificate{Key: key, CertType: ssh.UserCert, ValidPrincipals: []string{"alice"}, ValidBefore: math.MaxUint64}
	if err := out.SignCert(rand.Reader, fleettest.Ed25519Key(t)); err != nil {
		t.Fatal(err)
	}
	return out
}

// openSSH is what OpenSSH says of a signature, where it is on the machine.
type openSSH struct {
	program, dir string
	payload      []byte
}

func newOpenSSH(t *testing.T, key ssh.Signer, payload string) *openSSH {
	t.Helper()
	program, err := exec.LookPath("ssh-keygen")
	if err != nil {
		t.Log("OpenSSH is not here: the verdicts are compared with what is written alone")
		return nil
	}
	out := &openSSH{program: program, dir: t.TempDir(), payload: []byte(payload)}
	fleettest.WriteFiles(t, out.dir, map[string]string{"signature": fleettest.SSHSign(t, key, "git")(payload)})
	return out
}

// lets says whether some name that is written among a line's lets the signature be, as
// Git asks.
func (o *openSSH) lets(t *testing.T, line string, names []string) bool {
	t.Helper()
	file := filepath.Join(o.dir, "allowed")
	if err := os.WriteFile(file, []byte(line+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		cmd := exec.Command(o.program, "-Y", "verify", "-n", "git", "-f", file, "-s", filepath.Join(o.dir, "signature"),
			"-Overify-time="+signedAt.UTC().Format("20060102150405")+"Z", "-I", name)
		cmd.Stdin = bytes.NewReader(o.payload)
		if cmd.Run() == nil {
			return true
		}
	}
	return false
}

// lets says what comes of a line: whether somebody may sign, and why not.
func lets(line, payload, signature string) (bool, error) {
	all, err := fleet.ParseSigners(map[string][]byte{"signers": []byte(line)})
	if err != nil {
		return false, err
	}
	_, err = fleet.CheckSSH(all, payload, signature, signedAt)
	return err == nil, err
}

// A line of allowed signers means what it means to OpenSSH.
func TestAllowedSigners(t *testing.T) {
	const payload = "what is signed\n"
	alice := fleettest.Ed25519Key(t)
	key := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(alice.PublicKey())))
	kind, blob, _ := strings.Cut(key, " ")
	signature := fleettest.SSHSign(t, alice, "git")(payload)
	open := newOpenSSH(t, alice, payload)
	const name = "alice@example.com"
	for line, test := range map[string]struct {
		names []string
		lets  bool
	}{
		name + " " + key: {[]string{name}, true},
		name + " " + key + " a comment of the key":                                    {[]string{name}, true},
		"  " + name + " " + key:                                                       {[]string{name}, true},
		name + "\t" + key:                                                             {[]string{name}, true},
		name + " \t " + kind + "\t\t" + blob:                                          {[]string{name}, true},
		`"` + name + `" ` + key:                                                       {[]string{name}, true},
		`"alice smith@example.com" ` + key:                                            {[]string{"alice smith@example.com"}, true},
		`"alice smith,bob" ` + key:                                                    {[]string{"alice smith", "bob"}, true},
		`alice" smith"@example.com ` + key:                                            {[]string{"alice smith", "alice smith@example.com"}, false},
		`"alice smith@example.com ` + key:                                             {[]string{"alice smith@example.com"}, false},
		"ssh-admins@example.com " + key:                                               {[]string{"ssh-admins@example.com"}, true},
		"sk-alice " + key:                                                             {[]string{"sk-alice"}, true},
		"ecdsa-sha2-nistp256 " + key:                                                  {[]string{"ecdsa-sha2-nistp256"}, true},
		"ssh-ed25519 " + key:                                                          {[]string{"ssh-ed25519"}, true},
		"*@example.com " + key:                                                        {[]string{"*@example.com"}, true},
		"!" + name + " " + key:                                                        {[]string{"!" + name, name}, false},
		"!bob," + name + " " + key:                                                    {[]string{name}, true},
		name + ",!" + name + " " + key:                                                {[]string{name}, false},
		name + ",!*@example.com " + key:                                               {[]string{name}, false},
		name + ",bob,!*@example.com " + key:                                           {[]string{name, "bob"}, true},
		name + ` namespaces="git" ` + key:                                             {[]string{name}, true},
		name + ` NameSpaces="git" ` + key:                                             {[]string{name}, true},
		name + "\t" + `namespaces="git"` + "\t" + key:                                 {[]string{name}, true},
		name + ` namespaces="file,git" ` + key:                                        {[]string{name}, true},
		name + ` namespaces="file" ` + key:                                            {[]string{name}, false},
		name + ` namespaces="" ` + key:                                                {[]string{name}, false},
		name + ` namespaces="*" ` + key:                                               {[]string{name}, true},
		name + ` namespaces="g?t" ` + key:                                             {[]string{name}, true},
		name + ` namespaces="g*" ` + key:                                              {[]string{name}, true},
		name + ` namespaces="*,!git" ` + key:                                          {[]string{name}, false},
		name + ` namespaces="!git,*" ` + key:                                          {[]string{name}, false},
		name + ` namespaces="!g*,git" ` + key:                                         {[]string{name}, false},
		name + ` namespaces="!file,git" ` + key:                                       {[]string{name}, true},
		name + ` namespaces="!file" ` + key:                                           {[]string{name}, false},
		name + ` namespaces="[g]it" ` + key:                                           {[]string{name}, false},
		name + ` namespaces="g\it" ` + key:                                            {[]string{name}, false},
		name + ` namespaces="[" ` + key:                                               {[]string{name}, false},
		name + ` namespaces=" git" ` + key:                                            {[]string{name}, false},
		name + ` namespaces="GIT" ` + key:                                             {[]string{name}, false},
		name + ` namespaces="git,` + strings.Repeat("x", 1022) + `" ` + key:           {[]string{name}, true},
		name + ` namespaces="git,` + strings.Repeat("x", 1023) + `" ` + key:           {[]string{name}, false},
		name + ` namespaces=git ` + key:                                               {[]string{name}, false},
		name + ` namespaces="git",namespaces="*" ` + key:                              {[]string{name}, false},
		name + ` cert-authority ` + key:                                               {[]string{name}, false},
		name + ` cert-authority,namespaces="git" ` + key:                              {[]string{name}, false},
		name + ` no-touch-required ` + key:                                            {[]string{name}, false},
		name + ` valid-after="20260304",valid-before="20260305" ` + key:               {[]string{name}, true},
		name + ` valid-after="20260304050607Z",valid-before="20260304050608Z" ` + key: {[]string{name}, true},
		name + ` valid-before="20260304050607UTC" ` + key:                             {[]string{name}, true},
		name + ` valid-before="20260304050606z" ` + key:                               {[]string{name}, false},
		name + ` valid-after="202603040507Z" ` + key:                                  {[]string{name}, false},
		name + ` valid-after="20260305",valid-before="20260301" ` + key:               {[]string{name}, false},
		name + ` valid-before="20260231" ` + key:                                      {[]string{name}, false},
		name + ` valid-before="19700101Z" ` + key:                                     {[]string{name}, false},
	} {
		got, err := lets(line, payload, signature)
		short := strings.ReplaceAll(line, blob, "AAAA…")
		if got != test.lets {
			t.Errorf("%s: it lets sign: %t (%v), want %t", short, got, err, test.lets)
		}
		if open != nil && open.lets(t, line, test.names) != test.lets {
			t.Errorf("%s: OpenSSH does not say %t", short, test.lets)
		}
	}
}

// Whatever patterns a line is made of, it lets sign what OpenSSH lets.
func TestPatternsOfAllowedSigners(t *testing.T) {
	const payload = "what is signed\n"
	alice := fleettest.Ed25519Key(t)
	key := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(alice.PublicKey())))
	signature := fleettest.SSHSign(t, alice, "git")(payload)
	open := newOpenSSH(t, alice, payload)
	if open == nil {
		return
	}
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any seed is good
	t.Log("seed", seed)
	random := mathrand.New(mathrand.NewPCG(seed, 0))
	list := func(letters string, most int) string {
		var out []string
		for range 1 + random.IntN(3) {
			var one strings.Builder
			if random.IntN(3) == 0 {
				one.WriteByte('!')
			}
			for range random.IntN(most) + 1 {
				one.WriteByte(letters[random.IntN(len(letters))])
			}
			out = append(out, one.String())
		}
		return strings.Join(out, ",")
	}
	allowed := 0
	for range 200 {
		names, namespaces := list("ab*?", 2), list("git*?", 3)
		if random.IntN(2) == 0 {
			namespaces = "*" + "," + namespaces
		}
		line := fmt.Sprintf("%s namespaces=%q %s", names, namespaces, key)
		var ask []string
		for name := range strings.SplitSeq(names, ",") {
			if name[0] != '!' {
				ask = append(ask, name)
			}
		}
		got, err := lets(line, payload, signature)
		if want := open.lets(t, line, ask); got != want {
			t.Errorf("%s namespaces=%q: it lets sign: %t (%v), and OpenSSH says %t", names, namespaces, got, err, want)
		}
		if got {
			allowed++
		}
	}
	t.Logf("%d of 200 let sign", allowed)
}

// A file of anything is read or refused, and what is read holds to what it says.
func FuzzSigners(f *testing.F) {
	const payload = "what is signed\n"
	alice := fleettest.Ed25519Key(f)
	key := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(alice.PublicKey())))
	signature := fleettest.SSHSign(f, alice, "git")(payload)
	for _, names := range []string{"", "alice ", "\"alice smith\"\t", "!alice ", "a*,!b? namespaces=\"git\" ", `a valid-after="20260101",valid-before="20270101" `, `a namespaces="*,!git" `, "cert-authority "} {
		f.Add(names)
	}
	f.Fuzz(func(t *testing.T, before string) {
		line := before + key
		got, err := lets(line, payload, signature)
		if err != nil && strings.Contains(err.Error(), strings.Fields(key)[1]) {
			t.Errorf("%v quotes the key", err)
		}
		if !got || strings.ContainsAny(before, "\n\r\x00") {
			return
		}
		lower := strings.ToLower(before)
		if trimmed := strings.TrimSpace(lower); strings.HasPrefix(trimmed, "#") || strings.HasPrefix(trimmed, "!") && !strings.Contains(trimmed, ",") || strings.Contains(lower, " cert-authority") && !strings.Contains(before, `"`) {
			t.Errorf("%q lets sign", before)
		}
	})
}
