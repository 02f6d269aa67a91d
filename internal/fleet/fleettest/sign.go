package fleettest

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/armor"
	"github.com/ProtonMail/go-crypto/openpgp/packet"
	"github.com/hiddeco/sshsig"
	"golang.org/x/crypto/ssh"
)

// Sign makes the armored signature of what Git signs.
type Sign func(payload string) (signature string)

// SSHSign signs for a namespace, which is git where Git signs.
func SSHSign(t testing.TB, key ssh.Signer, namespace string) Sign {
	return func(payload string) string {
		t.Helper()
		signature, err := sshsig.Sign(bytes.NewReader([]byte(payload)), key, sshsig.HashSHA512, namespace)
		if err != nil {
			t.Fatal(err)
		}
		return string(sshsig.Armor(signature))
	}
}

// PGPSign signs as somebody, with a configuration that may be nil.
func PGPSign(t testing.TB, entity *openpgp.Entity, config *packet.Config) Sign {
	return func(payload string) string {
		t.Helper()
		var out bytes.Buffer
		if err := openpgp.ArmoredDetachSign(&out, entity, bytes.NewReader([]byte(payload)), config); err != nil {
			t.Fatal(err)
		}
		return out.String() + "\n"
	}
}

// PGPKey makes somebody with a key.
func PGPKey(t testing.TB, name string, config *packet.Config) *openpgp.Entity {
	t.Helper()
	if config == nil {
		config = &packet.Config{}
	}
	config.Algorithm = packet.PubKeyAlgoEdDSA
	entity, err := openpgp.NewEntity(name, "", name+"@example.com", config)
	if err != nil {
		t.Fatal(err)
	}
	return entity
}

// PGPPublic is somebody's public key, armored.
func PGPPublic(t testing.TB, entity *openpgp.Entity) string {
	t.Helper()
	var out bytes.Buffer
	to, err := armor.Encode(&out, openpgp.PublicKeyType, nil)
	if err == nil {
		err = entity.Serialize(to)
	}
	if err == nil {
		err = to.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.String() + "\n"
}

// SignedCommit adds a commit to branch main whose headers are what edit makes of
// them, signed; a nil edit leaves them. What is signed has no signature in it.
func (s *Server) SignedCommit(repository string, files map[string]string, at time.Time, sign Sign, edit func(commit string) string) string {
	s.t.Helper()
	return s.sign(repository, s.Commit(repository, files), at, sign, edit)
}

// sign has the tip of branch main replaced by one that says the same and is signed.
func (s *Server) sign(repository, commit string, at time.Time, sign Sign, edit func(string) string) string {
	s.t.Helper()
	path := s.Path(repository)
	tree := s.git(path, "rev-parse", commit+"^{tree}")
	text := "tree " + tree + "\n"
	if parent := s.git(path, "log", "-1", "--format=%P", commit); parent != "" {
		text += "parent " + parent + "\n"
	}
	who := fmt.Sprintf("Fleet <fleet@example.com> %d +0000\n", at.Unix())
	text += "author " + who + "committer " + who + "\nChange the fleet\n"
	head, body, _ := bytes.Cut([]byte(text), []byte("\n\n"))
	signature := bytes.ReplaceAll(bytes.TrimRight([]byte(sign(text)), "\n"), []byte("\n"), []byte("\n "))
	text = string(head) + "\ngpgsig " + string(signature) + "\n\n" + string(body)
	if edit != nil {
		text = edit(text)
	}
	made := s.store(path, "commit", text)
	s.git(path, "update-ref", "refs/heads/main", made)
	return made
}

// SignedTag makes an annotated tag of a commit that calls itself name and is found
// under another name where as is not empty.
func (s *Server) SignedTag(repository, name, as, commit string, sign Sign) {
	s.t.Helper()
	text := fmt.Sprintf("object %s\ntype commit\ntag %s\ntagger Fleet <fleet@example.com> %d +0000\n\n%s\n", commit, name, time.Now().Unix(), name)
	if sign != nil {
		text += sign(text)
	}
	if as == "" {
		as = name
	}
	s.git(s.Path(repository), "update-ref", "refs/tags/"+as, s.store(s.Path(repository), "tag", text))
}

// LightTag makes a tag that is no object of its own.
func (s *Server) LightTag(repository, name, commit string) {
	s.t.Helper()
	s.git(s.Path(repository), "update-ref", "refs/tags/"+name, commit)
}
